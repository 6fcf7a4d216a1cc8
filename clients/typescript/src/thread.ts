/** The recorder's own thread: it writes what the agent said to the spool, and sends that to the
 * service. The agent's thread does neither, and may end without waiting for it. */

import { parentPort, workerData } from "node:worker_threads";

import { Delivery, nothing, outcome, pauseSeconds, type Outcome, type Reply } from "./delivery.js";
import { EventLines } from "./event_lines.js";
import { Mask } from "./masking.js";
import type { Drop, Notice, Order, ThreadSettings } from "./orders.js";
import { unpacked } from "./packing.js";
import { SharedState } from "./shared_state.js";
import { contentOf, Spool, type SpooledBatch } from "./spool.js";
import { DROPPED_TYPE } from "./vocabulary.js";

/** A batch is written when it has so many bytes, or when its first event is so old. A kill of the
 * process costs the events of that time. */
const BATCH_BYTES = 1024 * 1024;
const GATHER_MS = 200;
/** Sessions of which it is known how many events were dropped; of more, only together. */
const DROPPED_SESSIONS_MAX = 1_000;
/** A status that says: the batch cannot be sent. */
const UNREADABLE = 422;

interface Line {
  readonly session: string;
  readonly content: Buffer;
}

/** Wakes whoever waits for a change. */
class Change {
  #wakes: (() => void)[] = [];

  notify(): void {
    for (const wake of this.#wakes.splice(0)) wake();
  }

  /** Until the next change, or for so long. */
  async next(milliseconds?: number): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    await new Promise<void>((resolve) => {
      this.#wakes.push(resolve);
      if (milliseconds !== undefined) timer = setTimeout(resolve, milliseconds);
    });
    clearTimeout(timer);
  }
}

export class RecorderThread {
  readonly #settings: ThreadSettings;
  readonly #notify: (notice: Notice) => void;
  readonly #state: SharedState;
  readonly #spool: Spool;
  readonly #lines: EventLines;
  readonly #mask: Mask | undefined;
  readonly #change = new Change();
  #pending: Line[] = [];
  #pendingBytes = 0;
  #gathering: NodeJS.Timeout | undefined;
  #untold = new Map<string, Drop>();
  #hurry = false;
  #closed = false;

  constructor(settings: ThreadSettings, notify: (notice: Notice) => void) {
    this.#settings = settings;
    this.#notify = notify;
    this.#state = new SharedState(settings.memory);
    this.#spool = new Spool(settings.folder, settings.spoolBytesMax, (text) => this.#warn(text));
    this.#lines = new EventLines(settings.source);
    this.#mask = settings.mask ? new Mask(settings.folder) : undefined;
  }

  take(order: Order): void {
    switch (order.kind) {
      case "line":
        this.#gather(order.session, Buffer.from(order.line));
        break;
      case "drops":
        for (const [session, reason, events] of order.drops) this.#remember(session, reason, events);
        this.#state.set("dropsUnderWay", 0);
        this.#writeSoon();
        break;
      case "flush":
        void this.#flush(order.id, order.seconds);
        break;
      case "close":
        this.#write();
        this.#closed = true;
        this.#change.notify();
        break;
    }
  }

  /** Sends until it is closed and nothing is left. */
  async run(): Promise<void> {
    const delivery = new Delivery(this.#settings.url, this.#settings.key);
    await this.#spool.adopt();
    this.#counted();
    let attempts = 0;
    for (;;) {
      const batch = this.#spool.first();
      if (batch === undefined) {
        if (this.#closed) break;
        this.#hurry = false;
        await this.#change.next();
        continue;
      }
      const reply = await replyTo(delivery, batch);
      const result = outcome(reply.status);
      this.#settle(batch, result, reply);
      this.#change.notify();
      if (result !== "later" && result !== "unusable") {
        attempts = 0;
        continue;
      }
      if (attempts === 0) this.#warn(`events wait for the service: ${reply.status || "no answer,"} ${reply.problem}`);
      this.#hurry = false; // whoever flushes had an attempt
      const seconds = pauseSeconds(attempts, reply.retryAfterS, Math.random());
      attempts += 1;
      if (this.#closed) break;
      await this.#pause(seconds, reply.retryAfterS > 0);
      if (this.#closed && reply.retryAfterS > 0) break; // it asked not to be asked
    }
    delivery.close();
  }

  /** Leaves what is not sent for the next recorder. */
  end(): void {
    this.#write();
    this.#spool.close();
    if (this.#spool.events > 0) {
      this.#warn(`${this.#spool.events} events are not sent yet; the next recorder sends them`);
    }
    this.#state.set("closed", 1);
  }

  /** Whoever flushes does not wait so long, unless the service asked for it. */
  async #pause(seconds: number, asked: boolean): Promise<void> {
    const until = Date.now() + seconds * 1000;
    while (!this.#closed && !(this.#hurry && !asked)) {
      const left = until - Date.now();
      if (left <= 0) return;
      await this.#change.next(left);
    }
  }

  #gather(session: string, content: Buffer): void {
    this.#pending.push({ session, content });
    this.#pendingBytes += content.length;
    if (this.#pendingBytes >= BATCH_BYTES) this.#write();
    else this.#writeSoon();
  }

  #writeSoon(): void {
    this.#gathering ??= setTimeout(() => this.#write(), GATHER_MS);
  }

  #write(): void {
    clearTimeout(this.#gathering);
    this.#gathering = undefined;
    const gathered = this.#pending.length;
    const lines = this.#masked(this.#pending);
    const bytes = this.#pendingBytes;
    const untold = this.#untold;
    this.#pending = [];
    this.#pendingBytes = 0;
    this.#untold = new Map();
    const contents = lines.map((line) => line.content);
    for (const [session, reason, events] of untold.values()) {
      contents.push(Buffer.from(this.#lines.line(session, DROPPED_TYPE, { events, reason }, {})));
    }
    if (contents.length > 0 && !this.#spool.put(contents)) {
      this.#untold = untold;
      for (const line of lines) this.#drop(line.session, "spool_full");
    }
    this.#counted();
    this.#state.add("written", gathered);
    this.#state.add("writtenBytes", bytes);
    this.#change.notify();
  }

  /** A line that cannot be masked does not go on. */
  #masked(lines: Line[]): Line[] {
    const mask = this.#mask;
    if (mask === undefined) return lines;
    return lines.flatMap((line) => {
      try {
        const text = line.content.toString("utf8");
        const masked = mask.line(line.session, text);
        return masked === text ? line : { ...line, content: Buffer.from(masked) };
      } catch {
        this.#drop(line.session, "redaction");
        return [];
      }
    });
  }

  async #flush(id: number, seconds: number): Promise<void> {
    const until = Date.now() + seconds * 1000;
    this.#write();
    const mark = this.#spool.given;
    this.#hurry = true;
    this.#change.notify();
    while (this.#spool.gone < mark) {
      const left = until - Date.now();
      if (left <= 0) break;
      await this.#change.next(left);
    }
    this.#notify({ kind: "flushed", id, done: this.#spool.gone >= mark });
  }

  #settle(batch: SpooledBatch, result: Outcome, reply: Reply): void {
    if (result === "taken") {
      this.#spool.remove(batch);
      this.#state.add("sent", batch.events);
      this.#state.add("rejected", reply.rejected);
      if (reply.rejected > 0) this.#warn(`the service rejected ${reply.rejected} events`);
    } else if (result === "too_large" && batch.events > 1) {
      this.#halve(batch);
    } else if (result === "too_large" || result === "refused") {
      this.#giveUp(batch, result);
    }
    this.#counted();
  }

  #halve(batch: SpooledBatch): void {
    try {
      this.#spool.halve(batch);
    } catch {
      this.#lose(batch);
    }
  }

  #giveUp(batch: SpooledBatch, reason: string): void {
    try {
      for (const line of unpacked(contentOf(batch))) {
        this.#drop(String(JSON.parse(line.toString("utf8")).session_id), reason);
      }
      this.#spool.remove(batch);
    } catch {
      this.#lose(batch);
    }
  }

  /** Its file is gone or broken. */
  #lose(batch: SpooledBatch): void {
    this.#drop(this.#anySession(), "spool_lost", batch.events);
    this.#spool.remove(batch);
  }

  #drop(session: string, reason: string, events = 1): void {
    this.#state.add("dropped", events);
    this.#remember(session, reason, events);
    this.#writeSoon();
  }

  #remember(session: string, reason: string, events: number): void {
    const known = this.#untold.size < DROPPED_SESSIONS_MAX;
    const name = known || this.#untold.has(`${reason} ${session}`) ? session : this.#anySession();
    const before = this.#untold.get(`${reason} ${name}`)?.[2] ?? 0;
    this.#untold.set(`${reason} ${name}`, [name, reason, before + events]);
  }

  #anySession(): string {
    return `recorder-${process.pid}`;
  }

  #counted(): void {
    this.#state.set("spooled", this.#spool.events);
  }

  #warn(text: string): void {
    this.#notify({ kind: "warning", text });
  }
}

async function replyTo(delivery: Delivery, batch: SpooledBatch): Promise<Reply> {
  let body;
  try {
    body = contentOf(batch);
  } catch (error) {
    return { ...nothing(String(error)), status: UNREADABLE };
  }
  return delivery.send(body.content, body.encoding);
}

/** Within the worker that a recorder starts. */
async function work(port: NonNullable<typeof parentPort>): Promise<void> {
  const thread = new RecorderThread(workerData as ThreadSettings, (notice) =>
    port.postMessage(notice),
  );
  const closing = new Promise<void>((resolve) => {
    port.on("message", (order: Order) => {
      thread.take(order);
      if (order.kind === "close") setTimeout(resolve, order.seconds * 1000);
    });
  });
  await Promise.race([thread.run(), closing]);
  thread.end();
  process.exit(); // of this thread alone; a request may be under way
}

if (parentPort !== null) void work(parentPort);
