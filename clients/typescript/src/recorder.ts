/** The recorder as an agent sees it: what it says goes to a thread of the recorder at once, from
 * there to disk, and from there to the service. */

import { debuglog } from "node:util";
import { Worker } from "node:worker_threads";

import { EventLines, type Common } from "./event_lines.js";
import type { Drop, Notice, Order, ThreadSettings } from "./orders.js";
import { given, RecordedSession, type SessionOptions } from "./session.js";
import { SharedState } from "./shared_state.js";
import { defaultFolder } from "./spool.js";

const MIB = 1024 * 1024;
const EXIT_SECONDS = 2;
const FLUSH_SECONDS = 10;
/** A thread that is told to close needs so long beside what it may send for. */
const CLOSING_MS = 500;
/** A recorder whose threads end by themselves goes on without. */
const THREADS_MAX = 3;
/** Sessions of which it is known how many events were dropped; of more, only together. */
const DROPPED_SESSIONS_MAX = 1_000;

const debug = debuglog("penstock");

export interface RecorderOptions {
  /** A key of the role `ingest`. */
  readonly key?: string;
  /** Who records, in the ledger. */
  readonly source?: string;
  /** The folder in which events wait; on a disk of this machine. */
  readonly spool?: string;
  readonly memoryBytesMax?: number;
  readonly spoolBytesMax?: number;
  /** Whether secrets are masked before anything is on disk. The service masks them in any case. */
  readonly mask?: boolean;
  /** Is told what is wrong. Without it `NODE_DEBUG=penstock` shows it. */
  readonly warn?: (text: string) => void;
}

/** Of events since the recorder was made. */
export interface RecorderCounts {
  readonly recorded: number;
  /** The service has them. Some may be of processes that ended before they had sent them. */
  readonly sent: number;
  /** Of those sent: the service says that they are no events. */
  readonly rejected: number;
  readonly dropped: number;
  /** On disk or in memory. */
  readonly waiting: number;
}

/** Records what an agent does, for a Penstock service.
 *
 * No method waits for the network or the disk but those that give a promise, and none throws. What
 * comes in while the service is away waits on disk; what finds no room is dropped and counted. At
 * the end of the process it sends what it has for two seconds; the next process sends the rest. */
export class Recorder {
  static readonly #open = new Set<Recorder>();

  static {
    process.on("exit", () => Recorder.#closeAll());
  }

  readonly #settings: ThreadSettings;
  readonly #memoryBytesMax: number;
  readonly #warn: (text: string) => void;
  readonly #state = new SharedState();
  readonly #lines: EventLines;
  readonly #untold = new Map<string, Drop>();
  readonly #flushes = new Map<number, (done: boolean) => void>();
  #worker: Worker | undefined;
  #ended: Promise<unknown> = Promise.resolve();
  #threads = 0;
  #recorded = 0;
  #postedBytes = 0;
  #dropped = 0;
  #flushed = 0;
  #closed = false;

  constructor(url: string, options: RecorderOptions = {}) {
    this.#settings = {
      url: String(url),
      key: options.key,
      source: options.source ?? "recorder",
      folder: options.spool ?? defaultFolder(),
      spoolBytesMax: options.spoolBytesMax ?? 256 * MIB,
      mask: options.mask ?? true,
      memory: this.#state.memory,
    };
    this.#memoryBytesMax = options.memoryBytesMax ?? 16 * MIB;
    this.#warn = options.warn ?? ((text) => debug("%s", text));
    this.#lines = new EventLines(this.#settings.source);
  }

  /** A session to speak of. */
  session(sessionId: string, options: SessionOptions = {}): RecordedSession {
    return new RecordedSession(sessionId, this.record.bind(this), options);
  }

  /** An event. `common` has its fields beside the payload: `checkpoint`, `user`, `project`. */
  record(sessionId: string, type: string, payload: object, common: Common = {}): void {
    let line: string | undefined;
    let bytes = 0;
    let refusal = "";
    try {
      line = this.#lines.line(sessionId, type, given(payload), common);
      bytes = Buffer.byteLength(line);
    } catch (error) {
      refusal = "unserializable";
      this.#say(`an event cannot be written as JSON: ${describe(error)}`);
    }
    this.#recorded += 1;
    if (this.#closed) refusal = "closed";
    else if (!refusal && this.#pendingBytes() + bytes > this.#memoryBytesMax) refusal = "memory_full";
    if (!refusal && line !== undefined && this.#post({ kind: "line", session: sessionId, line })) {
      this.#postedBytes += bytes;
    } else {
      this.#state.add("written", 1); // nothing of it is waited for
      this.#drop(String(sessionId), refusal || "no_thread");
    }
    this.#tell();
  }

  /** Waits until the service has all that was recorded before; whether it has. */
  async flush(seconds: number = FLUSH_SECONDS): Promise<boolean> {
    const dropped = this.#droppedTotal();
    this.#tell(true);
    const worker = this.#worker;
    if (worker === undefined || this.#closed) return this.counts().waiting === 0;
    const id = (this.#flushed += 1);
    let timer: NodeJS.Timeout | undefined;
    const done = await new Promise<boolean>((resolve) => {
      timer = setTimeout(() => resolve(false), seconds * 1000); // it holds the process meanwhile
      this.#flushes.set(id, resolve);
      if (!this.#post({ kind: "flush", id, seconds })) resolve(false);
    });
    clearTimeout(timer);
    this.#flushes.delete(id);
    return done && this.#droppedTotal() === dropped;
  }

  /** Sends what it can in that time. The next recorder sends what is left then. */
  async close(seconds: number = EXIT_SECONDS): Promise<void> {
    if (!this.#beginClose(seconds)) return;
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise((resolve) => {
      timer = setTimeout(resolve, seconds * 1000 + CLOSING_MS);
    });
    await Promise.race([this.#ended, late]);
    clearTimeout(timer);
  }

  counts(): RecorderCounts {
    const written = this.#state.get("written");
    return {
      recorded: this.#recorded,
      sent: this.#state.get("sent"),
      rejected: this.#state.get("rejected"),
      dropped: this.#droppedTotal(),
      waiting: this.#recorded - written + this.#state.get("spooled"),
    };
  }

  /** At the end of the process nothing can be awaited: this thread waits for the others. */
  static #closeAll(): void {
    const until = Date.now() + EXIT_SECONDS * 1000 + CLOSING_MS;
    for (const recorder of Recorder.#open) recorder.#beginClose(EXIT_SECONDS);
    for (const recorder of Recorder.#open) recorder.#state.wait("closed", until - Date.now());
  }

  #beginClose(seconds: number): boolean {
    if (this.#closed) return false;
    this.#tell(true);
    this.#closed = true;
    return this.#worker !== undefined && this.#post({ kind: "close", seconds });
  }

  #post(order: Order): boolean {
    try {
      this.#worker ??= this.#started();
      this.#worker?.postMessage(order);
      return this.#worker !== undefined;
    } catch (error) {
      this.#say(`the recorder's thread is not there: ${describe(error)}`);
      return false;
    }
  }

  /** Throws where this runtime has no threads. */
  #started(): Worker | undefined {
    if (this.#threads >= THREADS_MAX) return undefined;
    this.#threads += 1;
    const worker = new Worker(new URL("./thread.js", import.meta.url), {
      workerData: this.#settings,
      env: {},
      execArgv: [], // a loader of the agent's own has nothing to load there
      name: "penstock-recorder",
      stdin: false,
    });
    worker.on("message", (notice: Notice) => this.#hear(notice));
    worker.on("error", (error) => this.#say(`the recorder's thread failed: ${describe(error)}`));
    this.#ended = new Promise((resolve) => worker.once("exit", resolve));
    worker.once("exit", () => this.#lose(worker));
    worker.unref();
    Recorder.#open.add(this);
    return worker;
  }

  #hear(notice: Notice): void {
    if (notice.kind === "warning") this.#say(notice.text);
    else this.#flushes.get(notice.id)?.(notice.done);
  }

  /** Its thread ended. Where it was not told to, what was in its memory is lost. */
  #lose(worker: Worker): void {
    if (this.#worker !== worker) return;
    this.#worker = undefined;
    Recorder.#open.delete(this);
    for (const resolve of this.#flushes.values()) resolve(false);
    if (this.#state.get("closed") === 1) return;
    const lost = this.#recorded - this.#state.get("written");
    this.#state.add("written", lost);
    this.#state.set("writtenBytes", this.#postedBytes);
    this.#state.set("spooled", 0); // its files are adopted by the next thread
    this.#state.set("dropsUnderWay", 0);
    if (lost > 0) this.#drop(`recorder-${process.pid}`, "thread_lost", lost);
  }

  #pendingBytes(): number {
    return this.#postedBytes - this.#state.get("writtenBytes");
  }

  #droppedTotal(): number {
    return this.#dropped + this.#state.get("dropped");
  }

  #drop(session: string, reason: string, events = 1): void {
    if (this.#dropped === 0) this.#say(`events are dropped: ${reason}`);
    this.#dropped += events;
    const known = this.#untold.size < DROPPED_SESSIONS_MAX || this.#untold.has(`${reason} ${session}`);
    const name = known ? session : `recorder-${process.pid}`;
    const before = this.#untold.get(`${reason} ${name}`)?.[2] ?? 0;
    this.#untold.set(`${reason} ${name}`, [name, reason, before + events]);
  }

  /** Has the thread tell the service what was dropped. While one list is under way the next grows
   * here, by session and reason, so that a flood of drops takes no memory. */
  #tell(now = false): void {
    if (this.#untold.size === 0 || this.#closed) return;
    if (!now && this.#state.get("dropsUnderWay") === 1) return;
    this.#state.set("dropsUnderWay", 1);
    if (this.#post({ kind: "drops", drops: [...this.#untold.values()] })) this.#untold.clear();
  }

  #say(text: string): void {
    try {
      this.#warn(text);
    } catch {
      // An agent is not stopped by its own listener either.
    }
  }
}

function describe(error: unknown): string {
  return error instanceof Error ? `${error.name}: ${error.message}` : String(error);
}
