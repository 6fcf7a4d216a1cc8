/** Events and their payloads. `make docs` writes this file from the schemas that a service
 * validates by; docs/events.md says what each field means. */

/** An event's fields beside its type and its payload. */
export interface EventFields {
  session_id: string;
  ts: string | number;
  event_id?: string | null;
  seq?: number | null;
  source?: string | null;
  source_key?: string | null;
  checkpoint?: string | null;
  user?: string | null;
  project?: string | null;
}

export interface SessionStart {
  client?: string | null;
  client_version?: string | null;
  repo?: string | null;
  branch?: string | null;
  commit?: string | null;
  license?: string | null;
  consent?: "no_train" | "train" | "unknown" | null;
  task_id?: string | null;
  group_id?: string | null;
  arm?: string | null;
  parent_session?: string | null;
  link?: "compaction" | "fork" | "resume" | "subagent" | null;
  system?: string | null;
  tools?: readonly ({ [name: string]: unknown })[] | null;
}

export interface SessionEnd {
  reason: "completed" | "crash" | "timeout" | "user_stop";
}

export interface UserMessage {
  text: string;
}

export interface ModelCall {
  call_id?: string | null;
  model?: string | null;
  text?: string | null;
  thinking?: string | null;
  tool_calls?: readonly ToolCall[] | null;
  usage?: Usage | null;
  latency_ms?: number | null;
  ttft_ms?: number | null;
  finish_reason?: string | null;
  regenerates?: string | null;
  sampling?: { [name: string]: unknown } | null;
  tokens?: Tokens | null;
  system?: string | null;
  tools?: readonly ({ [name: string]: unknown })[] | null;
}

export interface ToolCall {
  id: string;
  name: string;
  arguments?: unknown;
}

export interface Usage {
  prompt?: number | null;
  completion?: number | null;
  thinking?: number | null;
  cached?: number | null;
}

export interface Tokens {
  prompt_ids?: readonly number[] | null;
  completion_ids?: readonly number[] | null;
  logprobs?: readonly number[] | null;
  tokenizer?: string | null;
  template?: string | null;
  policy_version_runs?: readonly (readonly [number, unknown])[] | null;
  routed_experts?: RoutedExperts | null;
}

export interface RoutedExperts {
  data: string;
  shape: readonly number[];
  dtype: string;
}

export interface ToolResult {
  call_id?: string | null;
  tool?: string | null;
  ok?: boolean | null;
  error_class?: "invalid_arguments" | "provider_error" | "timeout" | "unexpected_environment" | "unknown" | "user_aborted" | null;
  output?: unknown;
  duration_ms?: number | null;
}

export interface Edit {
  path: string;
  before: string;
  after: string;
  edit_id?: string | null;
  call_id?: string | null;
  language?: string | null;
}

export interface FileObserved {
  path: string;
  text?: string | null;
  deleted?: boolean | null;
  branch_changed?: boolean | null;
  edit_ids?: readonly string[] | null;
}

export interface Feedback {
  kind: "accept" | "comment" | "rating" | "reject" | "thumbs" | "undo";
  target?: string | null;
  value?: boolean | number | string | null;
  comment?: string | null;
}

export interface Compaction {
  trigger?: string | null;
  tokens_before?: number | null;
  tokens_after?: number | null;
  summary_call_id?: string | null;
}

export interface VcsCommit {
  commit?: string | null;
  branch?: string | null;
  message?: string | null;
  parents?: readonly string[] | null;
  files?: readonly unknown[] | null;
}

export interface TestResult {
  command?: string | null;
  passed?: number | null;
  failed?: number | null;
  skipped?: number | null;
  ok?: boolean | null;
  output?: string | null;
  duration_ms?: number | null;
}

export interface Interrupt {
  call_id?: string | null;
  reason?: string | null;
}

export interface AgentError {
  message?: string | null;
  error_class?: string | null;
  call_id?: string | null;
}

/** Event type to the structure of its payload. */
export interface Payloads {
  session_start: SessionStart;
  session_end: SessionEnd;
  user_message: UserMessage;
  model_call: ModelCall;
  tool_result: ToolResult;
  edit: Edit;
  file_observed: FileObserved;
  feedback: Feedback;
  compaction: Compaction;
  vcs_commit: VcsCommit;
  test_result: TestResult;
  interrupt: Interrupt;
  error: AgentError;
}

/** A type of your own, with any payload. */
export type CustomType = `x_${string}`;

/** Says how many events of its session a recorder had no room for. */
export const DROPPED_TYPE = "x_recorder_dropped";
