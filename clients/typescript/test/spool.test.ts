/** Batches on disk, and what other processes left there. */

import assert from "node:assert/strict";
import * as fs from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { gzipSync } from "node:zlib";

import { hold, isAbandoned } from "../src/folder_lock.js";
import { unpacked } from "../src/packing.js";
import { contentOf, Spool } from "../src/spool.js";
import { batchesIn, folder } from "./support/service.js";

const MIB = 1024 * 1024;

function lines(...numbers: number[]): Buffer[] {
  return numbers.map((number) => Buffer.from(`{"n":${number}}`));
}

function content(spool: Spool): string[] {
  const found: string[] = [];
  for (let batch = spool.first(); batch !== undefined; batch = spool.first()) {
    found.push(...unpacked(contentOf(batch)).map(String));
    spool.remove(batch);
  }
  return found;
}

const texts = (...numbers: number[]) => lines(...numbers).map(String);

test("batches come out in their order and leave nothing behind", (t) => {
  const place = join(folder(t), "spool");
  const spool = new Spool(place, MIB);
  assert.ok(spool.put(lines(1, 2)));
  assert.ok(spool.put(lines(3)));
  assert.deepEqual([spool.events, spool.given, spool.gone], [3, 3, 0]);
  assert.deepEqual(content(spool), texts(1, 2, 3));
  assert.deepEqual([spool.events, spool.gone, spool.bytes], [0, 3, 0]);
  spool.close();
  assert.deepEqual(fs.readdirSync(place), []);
});

test("files and folders are of their user alone", (t) => {
  const place = folder(t);
  const spool = new Spool(place, MIB);
  spool.put(lines(1));
  const [file] = batchesIn(place);
  assert.equal(fs.statSync(join(place, file ?? "")).mode & 0o777, 0o600);
  assert.equal(fs.statSync(join(place, file ?? "", "..")).mode & 0o777, 0o700);
  spool.close();
});

test("what has no room is not taken", (t) => {
  const spool = new Spool(folder(t), 100);
  assert.ok(spool.put(lines(1)));
  let taken = 0;
  while (spool.put(lines(1))) taken += 1;
  assert.ok(taken < 5);
  const first = spool.first();
  assert.ok(first);
  spool.remove(first);
  assert.ok(spool.put(lines(1)));
  spool.close();
});

test("the next process takes over what one left, first", async (t) => {
  const place = folder(t);
  const before = new Spool(place, MIB);
  before.put(lines(1));
  before.put(lines(2));
  before.close();
  const after = new Spool(place, MIB);
  after.put(lines(3));
  await after.adopt();
  assert.equal(after.events, 3);
  assert.deepEqual(content(after), texts(1, 2, 3));
  after.close();
  assert.deepEqual(fs.readdirSync(place), []);
});

test("what a living process holds stays its own", async (t) => {
  const place = folder(t);
  const living = new Spool(place, MIB);
  living.put(lines(1));
  const other = new Spool(place, MIB);
  await other.adopt();
  assert.equal(other.first(), undefined);
  other.close();
  assert.deepEqual(content(living), texts(1));
  living.close();
});

test("of several that take over at once, each batch has one", async (t) => {
  const place = folder(t);
  const before = new Spool(place, MIB);
  for (let number = 0; number < 50; number += 1) before.put(lines(number));
  before.close();
  const others = Array.from({ length: 4 }, () => new Spool(place, MIB));
  await Promise.all(others.map((other) => other.adopt()));
  const found = others.flatMap(content).sort();
  assert.deepEqual(found, texts(...Array.from({ length: 50 }, (_, number) => number)).sort());
  for (const other of others) other.close();
});

test("files that are none of ours are left alone", async (t) => {
  const place = folder(t);
  const before = new Spool(place, MIB);
  before.put(lines(1));
  const left = join(place, batchesIn(place)[0] ?? "", "..");
  before.close();
  fs.writeFileSync(join(left, "what-x.ndjson.gz"), "x");
  fs.writeFileSync(join(left, "000000000009-1.ndjson.gz.part"), "half");
  fs.writeFileSync(join(place, "file"), "x");
  const python = join(place, "77-python");
  fs.mkdirSync(python);
  fs.writeFileSync(join(python, "lock"), "");
  fs.writeFileSync(join(python, "000000000001-1.ndjson.gz"), gzipSync("{}\n"));
  const after = new Spool(place, MIB);
  await after.adopt();
  assert.deepEqual(content(after), texts(1));
  assert.ok(fs.existsSync(join(python, "000000000001-1.ndjson.gz")));
  after.close();
});

test("a batch is halved in its place, and a broken one cannot be", (t) => {
  const spool = new Spool(folder(t), MIB);
  spool.put(lines(1, 2, 3));
  spool.put(lines(4));
  const first = spool.first();
  assert.ok(first?.path);
  spool.halve(first);
  assert.deepEqual([spool.events, spool.given, spool.first()?.events], [4, 4, 1]);
  assert.deepEqual(content(spool), texts(1, 2, 3, 4));
  spool.put(lines(1, 2));
  const broken = spool.first();
  assert.ok(broken?.path);
  fs.writeFileSync(broken.path, "no batch");
  assert.throws(() => spool.halve(broken));
  spool.close();
});

test("a folder is held by a path of any length, until it is released", async (t) => {
  for (const depth of [0, 120]) {
    const place = join(folder(t), "x".repeat(depth));
    fs.mkdirSync(place, { recursive: true });
    const lock = hold(place);
    assert.ok(lock);
    assert.equal(await isAbandoned(place), false);
    lock.release();
    assert.equal(await isAbandoned(place), true);
  }
});
