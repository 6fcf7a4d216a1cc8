/** A service that answers as it is told to, and remembers what it was asked. */

import { createServer, type IncomingHttpHeaders } from "node:http";
import type { AddressInfo } from "node:net";
import type { TestContext } from "node:test";
import * as fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { unpacked, type Encoding } from "../../src/packing.js";

export interface Asked {
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
  readonly events: RecordedEvent[];
}

export interface RecordedEvent {
  readonly session_id: string;
  readonly event_id: string;
  readonly ts: number;
  readonly type: string;
  readonly checkpoint?: string;
  readonly payload: { readonly [name: string]: unknown };
}

/** `cut`: the connection is closed without a word. `hang`: no answer ever. */
export type Answer =
  | { readonly status: number; readonly body?: string; readonly headers?: Record<string, string> }
  | "cut"
  | "hang";
type Script = (asked: Asked) => Answer;

export const OK: Answer = { status: 200, body: '{"accepted": 1, "rejected": []}' };

export class Service {
  readonly asked: Asked[] = [];
  script: Script = () => OK;
  url = "";

  get events(): RecordedEvent[] {
    return this.asked.flatMap((asked) => asked.events);
  }

  get texts(): unknown[] {
    return this.events.map((event) => event.payload["text"]);
  }
}

export function inTurn(...answers: Answer[]): Script {
  return () => (answers.length > 1 ? (answers.shift() ?? OK) : (answers[0] ?? OK));
}

export async function service(test: TestContext): Promise<Service> {
  const made = new Service();
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => {
      const body = Buffer.concat(chunks);
      const encoding = request.headers["content-encoding"] as Encoding;
      const events = unpacked({ content: body, encoding }).map((line) => JSON.parse(String(line)));
      const asked = { path: request.url ?? "", headers: request.headers, body, events };
      made.asked.push(asked);
      const answer = made.script(asked);
      if (answer === "cut") request.socket.destroy();
      else if (answer !== "hang") response.writeHead(answer.status, answer.headers).end(answer.body);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  made.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/train`;
  test.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return made;
}

export function folder(test: TestContext): string {
  const made = fs.mkdtempSync(join(tmpdir(), "penstock-"));
  test.after(() => fs.rmSync(made, { recursive: true, force: true }));
  return made;
}

export function batchesIn(spool: string): string[] {
  const folders = fs.readdirSync(spool, { withFileTypes: true }).filter((entry) => entry.isDirectory());
  const files = folders.flatMap(({ name }) =>
    fs.readdirSync(join(spool, name)).map((file) => join(name, file)),
  );
  return files.filter((file) => /\.ndjson\.(gz|zst)$/.test(file)).sort();
}

/** Returns as soon as it holds; the time is so long that only a failure needs all of it. */
export async function eventually(holds: () => boolean, milliseconds = 30_000): Promise<void> {
  const until = Date.now() + milliseconds;
  while (!holds()) {
    if (Date.now() > until) throw new Error("it did not come about in time");
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}
