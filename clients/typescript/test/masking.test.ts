/** Secrets do not reach the disk of the agent. Those here are put together when the tests run. */

import assert from "node:assert/strict";
import * as fs from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

import { Recorder } from "../src/index.js";
import { Mask, secretsIn } from "../src/masking.js";
import { contentOf } from "../src/spool.js";
import { unpacked, type Encoding } from "../src/packing.js";
import { batchesIn, folder } from "./support/service.js";

const TOKEN = "gh" + "p_" + "a8Xk2Lm9Qz4Rt7Wv1Yc3Bn6Df5Gh0JpSuE2K";

function line(payload: object, session = "s"): string {
  return JSON.stringify({ session_id: session, type: "x_mine", payload });
}

test("a secret becomes a placeholder wherever it stands, and equal ones equal ones", (t) => {
  const mask = new Mask(folder(t));
  const payload = { a: `use ${TOKEN} now`, b: [JSON.stringify({ c: `x\n${TOKEN}` })], [TOKEN]: 1 };
  const masked = mask.line("s", line(payload));
  assert.ok(!masked.includes(TOKEN));
  const placeholders = masked.match(/\[SECRET:github_token:[0-9a-f]{16}\]/g) ?? [];
  assert.equal(placeholders.length, 3);
  assert.equal(new Set(placeholders).size, 1);
  assert.equal(new Mask(folder(t)).line("s", line({ a: "plain words" })), line({ a: "plain words" }));
});

test("a secret is masked in encodings, and in encodings within encodings", (t) => {
  const base64 = (text: string) => Buffer.from(text).toString("base64");
  const escaped = [...TOKEN].map((char) => `\\u00${char.charCodeAt(0).toString(16)}`).join("");
  const hidden = [
    base64(`the key is ${TOKEN}, keep it`),
    base64(TOKEN),
    `/x?q=${encodeURIComponent("key=" + TOKEN + "&a")}`,
    [...TOKEN].map((char) => `%${char.charCodeAt(0).toString(16)}`).join(""),
    escaped,
    JSON.stringify({ a: JSON.stringify({ b: `x ${TOKEN}` }) }),
    JSON.stringify({ a: base64(JSON.stringify({ key: TOKEN })) }),
    base64(base64(`so: ${TOKEN}`)),
  ];
  for (const text of hidden) {
    const masked = JSON.parse(new Mask(folder(t)).line("s", line({ text: `see ${text} here` })));
    const after: string = masked.payload.text;
    assert.ok(!after.includes(text), text);
    assert.ok(after.startsWith("see ") && after.endsWith(" here"), after);
  }
  const plain = line({ image: base64("no secret in here, and nothing else".repeat(9)), u: "a%20b" });
  assert.equal(new Mask(folder(t)).line("s", plain), plain);
});

test("the value of a key that names a secret is one", (t) => {
  const masked = new Mask(folder(t)).line("s", line({ password: "corr3ct-horse!9" }));
  assert.match(masked, /"password":"\[SECRET:password:[0-9a-f]{16}\]"/);
});

test("token ids go with the text, and from then on with their session", (t) => {
  const mask = new Mask(folder(t));
  const tokens = { prompt_ids: [1], completion_ids: [2], tokenizer: "t" };
  assert.ok(mask.line("s", line({ text: "plain", tokens })).includes("prompt_ids"));
  const masked = JSON.parse(mask.line("s", line({ text: TOKEN, tokens })));
  assert.deepEqual(masked.payload.tokens, { tokenizer: "t", redacted: true });
  assert.ok(!mask.line("s", line({ text: "plain", tokens })).includes("prompt_ids"));
  assert.ok(mask.line("other", line({ text: "plain", tokens }, "other")).includes("prompt_ids"));
});

test("what is on disk has no secret", async (t) => {
  const spool = folder(t);
  const recorder = new Recorder("http://127.0.0.1:9", { spool });
  recorder.session("s").userMessage(`use ${TOKEN} please`);
  await recorder.close(60);
  const [file] = batchesIn(spool);
  const path = join(spool, file ?? "");
  const encoding: Encoding = path.endsWith("zst") ? "zstd" : "gzip";
  const content = unpacked(contentOf({ events: 1, size: 0, encoding, path })).join("\n");
  assert.ok(content.includes("[SECRET:github_token:"));
  assert.ok(!content.includes(TOKEN));
  assert.equal(fs.statSync(join(spool, "redaction.key")).mode & 0o777, 0o600);
});

test("texts that are made to be slow are not", (t) => {
  for (const unit of ["password = '", "token: a", "a.b_", "eyJ", "-----BEGIN PRIVATE " + "KEY-----\n", "\\",
    "aGVsbG8gd29ybGQsIGhl", "%41", "\\u0041"]) {
    const text = unit.repeat(Math.ceil(30_000 / unit.length));
    const started = process.cpuUsage();
    secretsIn(text);
    new Mask(folder(t)).line("s", line({ text }));
    const { user } = process.cpuUsage(started);
    assert.ok(user < 20_000_000, `${unit}: ${user} µs`);
  }
});
