/** What an agent says of one session. */

import { randomBytes } from "node:crypto";

import type { Common } from "./event_lines.js";
import type {
  AgentError,
  Compaction,
  CustomType,
  Edit,
  Feedback,
  FileObserved,
  Interrupt,
  ModelCall,
  Payloads,
  SessionEnd,
  SessionStart,
  TestResult,
  ToolResult,
  UserMessage,
  VcsCommit,
} from "./vocabulary.js";

export type EndReason = SessionEnd["reason"];
/** Whose session it is and on what, and the fields of its `session_start`. */
export type SessionOptions = Common & SessionStart;
export type Say = (sessionId: string, type: string, payload: object, common: Common) => void;

/** A session of an agent. No method waits, or throws what the agent would have to catch. */
export class RecordedSession {
  readonly sessionId: string;
  readonly #say: Say;
  readonly #common: Common;
  readonly #start: SessionStart;

  constructor(sessionId: string, say: Say, options: SessionOptions) {
    const { checkpoint, user, project, ...start } = options;
    this.sessionId = sessionId;
    this.#say = say;
    this.#common = given({ checkpoint, user, project });
    this.#start = start;
  }

  /** Begins with `session_start`, does the work and ends with `session_end`. What the work throws
   * goes on to the caller. */
  async run<Result>(work: (session: this) => Result | Promise<Result>): Promise<Result> {
    this.start();
    let reason: EndReason = "crash";
    try {
      const result = await work(this);
      reason = "completed";
      return result;
    } catch (error) {
      if (error instanceof Error && error.name === "AbortError") reason = "user_stop";
      throw error;
    } finally {
      this.end(reason);
    }
  }

  /** An event of any type of docs/events.md, or of one of your own, `x_…`. What is null or
   * undefined is left out. */
  event<Type extends keyof Payloads>(type: Type, payload: Payloads[Type]): void;
  event(type: CustomType, payload: object): void;
  event(type: string, payload: object): void {
    this.#say(this.sessionId, type, payload, this.#common);
  }

  start(): void {
    this.event("session_start", this.#start);
  }

  end(reason: EndReason = "completed"): void {
    this.event("session_end", { reason });
  }

  userMessage(text: string, more: Omit<UserMessage, "text"> = {}): void {
    this.event("user_message", { text, ...more });
  }

  /** The `call_id`, a new one where none is given. */
  modelCall(call: ModelCall): string {
    const id = call?.call_id ?? newId("call");
    this.event("model_call", { ...call, call_id: id });
    return id;
  }

  /** `callId` is that of the tool call which it answers. */
  toolResult(callId: string, result: Omit<ToolResult, "call_id">): void {
    this.event("tool_result", { call_id: callId, ...result });
  }

  /** The `edit_id`, a new one where none is given. The texts are of the file, or of the part that
   * changed. */
  edit(path: string, edit: Omit<Edit, "path">): string {
    const id = edit?.edit_id ?? newId("edit");
    this.event("edit", { path, ...edit, edit_id: id });
    return id;
  }

  /** What the file holds now: `{ text }`, or `{ deleted: true }`. Persistence of edits is computed
   * from it. */
  fileObserved(path: string, state: Omit<FileObserved, "path">): void {
    this.event("file_observed", { path, ...state });
  }

  feedback(target: string, kind: Feedback["kind"], value?: Feedback["value"]): void {
    this.event("feedback", { target, kind, value: value ?? null });
  }

  compaction(payload: Compaction): void {
    this.event("compaction", payload);
  }

  interrupt(payload: Interrupt): void {
    this.event("interrupt", payload);
  }

  error(payload: AgentError): void {
    this.event("error", payload);
  }

  testResult(payload: TestResult): void {
    this.event("test_result", payload);
  }

  vcsCommit(payload: VcsCommit): void {
    this.event("vcs_commit", payload);
  }
}

/** Without what is null or undefined. */
export function given(fields: object): object {
  return Object.fromEntries(
    Object.entries(fields).filter(([, value]) => value !== null && value !== undefined),
  );
}

function newId(kind: string): string {
  return `${kind}-${randomBytes(8).toString("hex")}`;
}
