/** What follows from the service's answers. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { outcome, pauseSeconds } from "../src/delivery.js";

test("each status has an outcome", () => {
  const expected: Record<string, number[]> = {
    taken: [200],
    too_large: [413],
    refused: [400, 422],
    later: [0, 408, 425, 429, 500, 503, 507],
    unusable: [301, 401, 403, 404],
  };
  for (const [name, statuses] of Object.entries(expected)) {
    for (const status of statuses) assert.equal(outcome(status), name, `${status}`);
  }
});

test("pauses grow to a minute and are spread", () => {
  const numbers = Array.from({ length: 12 }, (_, attempts) => attempts);
  const shortest = numbers.map((attempts) => pauseSeconds(attempts, 0, 0));
  const longest = numbers.map((attempts) => pauseSeconds(attempts, 0, 1));
  assert.deepEqual(shortest.slice(0, 3), [0.25, 0.5, 1]);
  assert.deepEqual(longest.slice(0, 3), [0.5, 1, 2]);
  assert.equal(longest.at(-1), 60);
  assert.equal(shortest.at(-1), 30);
});

test("a service that asks for a pause gets it, but not for ever", () => {
  assert.equal(pauseSeconds(0, 7, 0), 7);
  assert.equal(pauseSeconds(0, 8, 1), 10);
  assert.equal(pauseSeconds(9, 1e9, 0), 300);
});
