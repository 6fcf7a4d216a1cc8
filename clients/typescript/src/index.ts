/** Recording of a live agent, for a Penstock service. */

export { Recorder, type RecorderCounts, type RecorderOptions } from "./recorder.js";
export { RecordedSession, type EndReason, type SessionOptions } from "./session.js";
export type * from "./vocabulary.js";
export { DROPPED_TYPE } from "./vocabulary.js";
