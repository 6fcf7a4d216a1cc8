/** The recorder before services that behave in all ways, and what it never does to its agent. */

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import * as fs from "node:fs";
import { join } from "node:path";
import { test, type TestContext } from "node:test";

import { DROPPED_TYPE, Recorder, type RecorderOptions } from "../src/index.js";
import { batchesIn, eventually, folder, inTurn, OK, service, type Asked } from "./support/service.js";

const MINUTE = 60;

function recording(test: TestContext, url: string, options: RecorderOptions = {}): Recorder {
  const recorder = new Recorder(url, { key: "key", spool: folder(test), ...options });
  test.after(() => recorder.close(0.5));
  return recorder;
}

test("a session arrives as it was told", async (t) => {
  const server = await service(t);
  const spool = folder(t);
  const recorder = recording(t, server.url, { spool });
  const session = recorder.session("s-1", {
    checkpoint: "c-1", user: "u", client: "ours", consent: "train",
  });
  const edit = await session.run((s) => {
    s.userMessage("the streaming is broken");
    const call = s.modelCall({ text: "I look", tool_calls: [{ id: "t", name: "read" }], model: "m" });
    s.toolResult("t", { tool: "read", ok: true, output: "text" });
    const id = s.edit("src/app.ts", { before: "a\n", after: "b\n", call_id: "t" });
    s.fileObserved("src/app.ts", { text: "b\n" });
    s.fileObserved("src/old.ts", { deleted: true });
    s.feedback(call, "thumbs", 1);
    s.compaction({ trigger: "auto" });
    s.interrupt({ reason: "user" });
    s.error({ message: "boom" });
    s.testResult({ passed: 3 });
    s.vcsCommit({ commit: "abc" });
    s.event("x_mine", { anything: [1] });
    return id;
  });
  assert.ok(await recorder.flush(MINUTE));
  assert.deepEqual(recorder.counts(), { recorded: 15, sent: 15, rejected: 0, dropped: 0, waiting: 0 });
  const sent = server.events;
  assert.deepEqual(sent[0]?.payload, { client: "ours", consent: "train" });
  assert.deepEqual(sent.at(-1)?.payload, { reason: "completed" });
  assert.deepEqual(new Set(sent.map((event) => event.checkpoint)), new Set(["c-1"]));
  assert.equal(new Set(sent.map((event) => event.event_id)).size, 15);
  const times = sent.map((event) => event.ts);
  assert.deepEqual(times, [...new Set(times)].sort((a, b) => a - b));
  assert.equal(sent.find((event) => event.type === "edit")?.payload["edit_id"], edit);
  assert.deepEqual(new Set(server.asked.map((asked) => asked.path)), new Set(["/train/v1/events"]));
  assert.equal(server.asked[0]?.headers.authorization, "Bearer key");
  await recorder.close();
  assert.deepEqual(fs.readdirSync(spool), []);
});

test("a session says how it ended, and its errors go on to the agent", async (t) => {
  const server = await service(t);
  const recorder = recording(t, server.url);
  const stopped = new Error("stop");
  stopped.name = "AbortError";
  for (const error of [new Error("boom"), stopped]) {
    const work = recorder.session("s").run(() => Promise.reject(error));
    await assert.rejects(work, error);
  }
  assert.ok(await recorder.flush(MINUTE));
  const ends = server.events.filter((event) => event.type === "session_end");
  assert.deepEqual(ends.map((event) => event.payload["reason"]), ["crash", "user_stop"]);
});

test("what a service that is away misses it gets later and once", async (t) => {
  const server = await service(t);
  server.script = inTurn("cut", { status: 503 }, { status: 500 }, OK);
  const recorder = recording(t, server.url);
  recorder.session("s").userMessage("hello");
  await eventually(() => recorder.counts().sent === 1);
  // The very same events, which the service knows by their identity.
  assert.equal(new Set(server.asked.map((asked) => asked.body.toString("hex"))).size, 1);
  assert.equal(server.asked.length, 4);
});

test("a service that asks for a pause is not asked meanwhile", async (t) => {
  const server = await service(t);
  server.script = () => ({ status: 429, headers: { "Retry-After": "3600" } });
  const recorder = recording(t, server.url);
  recorder.session("s").userMessage("hello");
  await eventually(() => server.asked.length > 0);
  assert.equal(await recorder.flush(0.3), false);
  assert.equal(await recorder.flush(0.1), false);
  assert.equal(server.asked.length, 1);
  assert.equal(recorder.counts().waiting, 1);
});

for (const status of [401, 404, 500]) {
  test(`whoever flushes in vain does not have it asked all the time: ${status}`, async (t) => {
    const server = await service(t);
    server.script = () => ({ status, body: '{"title": "no key"}' });
    const warnings: string[] = [];
    const recorder = recording(t, server.url, { warn: (text) => warnings.push(text) });
    recorder.session("s").userMessage("hello");
    await eventually(() => server.asked.length > 0);
    assert.equal(await recorder.flush(0.5), false);
    assert.ok(server.asked.length >= 1 && server.asked.length <= 5, `${server.asked.length}`);
    assert.ok(warnings.some((text) => text.includes(`${status} no key`)), warnings.join());
    server.script = () => OK;
    await eventually(() => recorder.counts().sent === 1);
  });
}

test("a batch that is too large is divided until it fits", async (t) => {
  const server = await service(t);
  const fits = (asked: Asked) =>
    asked.events.length === 1 && JSON.stringify(asked.events[0]).length < 5_000;
  server.script = (asked) => (fits(asked) ? OK : { status: 413 });
  const recorder = recording(t, server.url);
  const session = recorder.session("s");
  for (let number = 0; number < 5; number += 1) session.userMessage(`${number}`);
  session.userMessage("x".repeat(10_000));
  assert.equal(await recorder.flush(MINUTE), false); // one was dropped
  await eventually(() => recorder.counts().dropped === 1 && recorder.counts().waiting === 0);
  const taken = server.asked.filter(fits).flatMap((asked) => asked.events);
  assert.deepEqual(taken.slice(0, 5).map((event) => event.payload["text"]), ["0", "1", "2", "3", "4"]);
  await eventually(() => server.events.some((event) => event.type === DROPPED_TYPE));
  const told = server.events.find((event) => event.type === DROPPED_TYPE);
  assert.deepEqual(told?.payload, { events: 1, reason: "too_large" });
  assert.equal(told?.session_id, "s");
});

test("a batch that is refused is dropped and counted", async (t) => {
  const server = await service(t);
  server.script = inTurn({ status: 400, body: '{"detail": "no events"}' }, OK);
  const recorder = recording(t, server.url);
  recorder.session("s").userMessage("hello");
  assert.equal(await recorder.flush(MINUTE), false);
  assert.equal(recorder.counts().dropped, 1);
});

test("full memory drops what comes and says so", async (t) => {
  const server = await service(t);
  const recorder = recording(t, server.url, { memoryBytesMax: 10_000 });
  recorder.session("big").userMessage("x".repeat(20_000));
  recorder.session("big").userMessage("x".repeat(20_000));
  recorder.session("small").userMessage("x");
  await recorder.flush(MINUTE);
  const { recorded, dropped } = recorder.counts();
  assert.deepEqual([recorded, dropped], [3, 2]);
  const told = server.events.filter((event) => event.type === DROPPED_TYPE);
  assert.equal(told.reduce((sum, event) => sum + Number(event.payload["events"]), 0), 2);
  assert.deepEqual(new Set(told.map((event) => event.session_id)), new Set(["big"]));
});

test("a full spool drops what comes", async (t) => {
  const server = await service(t);
  server.script = () => "cut";
  const spool = folder(t);
  const recorder = recording(t, server.url, { spool, spoolBytesMax: 2_000 });
  const session = recorder.session("s");
  for (let number = 0; number < 20; number += 1) {
    session.userMessage(randomBytes(300).toString("hex"));
    await recorder.flush(0.05);
  }
  await eventually(() => recorder.counts().dropped > 0);
  const sizes = batchesIn(spool).map((file) => fs.statSync(join(spool, file)).size);
  const size = sizes.reduce((sum, each) => sum + each, 0);
  assert.ok(size > 0 && size <= 2_000, `${size}`);
});

test("what JSON cannot say is dropped, and nothing is thrown", async (t) => {
  const server = await service(t);
  const recorder = recording(t, server.url, {
    warn: () => {
      throw new Error("a listener of the agent's own");
    },
  });
  const session = recorder.session("s");
  let deep: unknown[] = [];
  for (let depth = 0; depth < 100_000; depth += 1) deep = [deep];
  const circle: { self?: unknown } = {};
  circle.self = circle;
  const angry = { toJSON: () => { throw new Error("no"); } };
  for (const value of [deep, circle, angry, 1n]) session.event("x_odd", { value });
  session.userMessage("\ud800 alone, \\ud800 not, \u{1f600} a pair");
  await recorder.flush(MINUTE);
  assert.equal(recorder.counts().dropped, 4);
  const texts = server.events.filter((event) => event.type === "user_message");
  assert.equal(texts[0]?.payload["text"], "\ufffd alone, \\ud800 not, \u{1f600} a pair");
});

for (const url of ["", "nonsense", "ftp://host", "http://", "http://[::1"]) {
  test(`an address that is none stops no agent: ${url}`, async (t) => {
    const recorder = recording(t, url);
    recorder.session("s").userMessage("hello");
    assert.equal(await recorder.flush(0.2), false);
    assert.equal(recorder.counts().waiting, 1);
  });
}

test("a service that never answers holds nobody up", async (t) => {
  const server = await service(t);
  server.script = () => "hang";
  const spool = folder(t);
  const recorder = recording(t, server.url, { spool });
  recorder.session("s").userMessage("first");
  await eventually(() => server.asked.length > 0);
  recorder.session("s").userMessage("second");
  assert.equal(await recorder.flush(0.05), false);
  await recorder.close(0.05);
  assert.equal(recorder.counts().waiting, 2);
  server.script = () => OK;
  server.asked.length = 0;
  const next = recording(t, server.url, { spool });
  next.session("s").userMessage("third");
  await eventually(() => next.counts().sent === 3);
  assert.deepEqual(server.texts, ["first", "second", "third"]);
  await next.close();
  assert.deepEqual(fs.readdirSync(spool), []);
});

test("recording after the end is dropped", async (t) => {
  const server = await service(t);
  const recorder = recording(t, server.url);
  await recorder.close();
  recorder.session("s").userMessage("late");
  assert.equal(recorder.counts().dropped, 1);
});

test("without a disk events wait in memory", async (t) => {
  const server = await service(t);
  const spool = join(folder(t), "file");
  fs.writeFileSync(spool, "");
  const recorder = recording(t, server.url, { spool: join(spool, "spool") });
  recorder.session("s").userMessage("hello");
  assert.ok(await recorder.flush(MINUTE));
});
