/** Agents that end in all ways, as processes. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import * as fs from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

import { batchesIn, folder, OK, service, type Service } from "./support/service.js";

const HEAD = `
import { Recorder } from ${JSON.stringify(new URL("../src/index.js", import.meta.url).href)};
const recorder = new Recorder(process.argv[2], { key: "key", spool: process.argv[3] });
const session = recorder.session("s");
`;

interface Ended {
  readonly status: number | null;
  readonly signal: string | null;
  readonly milliseconds: number;
}

async function agent(server: Service, spool: string, program: string): Promise<Ended> {
  const file = join(spool, "..", "agent.mjs");
  fs.writeFileSync(file, HEAD + program);
  const started = Date.now();
  const child = spawn(process.execPath, [file, server.url, spool], { stdio: "ignore" });
  return new Promise((resolve) => {
    child.on("exit", (status, signal) =>
      resolve({ status, signal, milliseconds: Date.now() - started }),
    );
  });
}

for (const [name, program, status] of [
  ["by itself", "session.userMessage('last words')", 0],
  ["by process.exit", "session.userMessage('last words'); process.exit(3)", 3],
  ["by an error", "session.userMessage('last words'); throw new Error('boom')", 1],
] as const) {
  test(`the end of a process sends what is left: ${name}`, async (t) => {
    const server = await service(t);
    const spool = join(folder(t), "spool");
    assert.equal((await agent(server, spool, program)).status, status);
    assert.deepEqual(server.texts, ["last words"]);
    assert.deepEqual(fs.readdirSync(spool), []);
  });
}

test("a process that nothing holds ends, whatever the service does", async (t) => {
  const server = await service(t);
  server.script = () => "hang";
  const spool = join(folder(t), "spool");
  const program = "session.userMessage('hello'); await new Promise((r) => setTimeout(r, 400));";
  const ended = await agent(server, spool, program);
  assert.equal(ended.status, 0);
  assert.equal(batchesIn(spool).length, 1);
});

test("what a killed process left the next one sends, also while its event loop was busy", async (t) => {
  const server = await service(t);
  server.script = () => "cut";
  const spool = join(folder(t), "spool");
  const program = `
    import { readdirSync } from "node:fs";
    session.userMessage("hello");
    const spool = process.argv[3];
    const list = (folder) => { try { return readdirSync(folder); } catch { return []; } };
    const isThere = () => list(spool).some((name) =>
      list(spool + "/" + name).some((file) => file.endsWith(".gz") || file.endsWith(".zst")));
    for (const until = Date.now() + 60_000; !isThere() && Date.now() < until; ); // its loop never turns
    process.kill(process.pid, "SIGKILL");
  `;
  assert.equal((await agent(server, spool, program)).signal, "SIGKILL");
  server.script = () => OK;
  server.asked.length = 0;
  const next = "session.userMessage('next'); await recorder.flush(60);";
  assert.equal((await agent(server, spool, next)).status, 0);
  assert.deepEqual(server.texts.sort(), ["hello", "next"]);
  assert.deepEqual(fs.readdirSync(spool), []);
});

test("workers of node:cluster and of node:worker_threads record for themselves", async (t) => {
  const server = await service(t);
  const spool = join(folder(t), "spool");
  const program = `
    import cluster from "node:cluster";
    import { isMainThread, Worker } from "node:worker_threads";
    if (cluster.isPrimary && isMainThread) {
      session.userMessage("primary");
      cluster.fork();
      new Worker(new URL(import.meta.url), { argv: process.argv.slice(2) });
    } else if (isMainThread) {
      session.userMessage("cluster");
      await recorder.flush(60);
      cluster.worker.disconnect();
    } else {
      session.userMessage("thread");
    }
  `;
  assert.equal((await agent(server, spool, program)).status, 0);
  assert.deepEqual(server.texts.sort(), ["cluster", "primary", "thread"]);
  assert.deepEqual(fs.readdirSync(spool), []);
});
