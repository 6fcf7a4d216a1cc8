/** Events as a recorder writes them: a line of JSON, with an identity and a time of its own. */

import { randomBytes } from "node:crypto";

import type { EventFields } from "./vocabulary.js";

/** Fields that an event has beside its payload, where the recorder does not give them itself. */
export type Common = Pick<EventFields, "checkpoint" | "user" | "project">;

/** JSON.stringify writes a surrogate that is alone as an escape, and no other: the service refuses
 * those, and file names of agents sometimes have them. */
const LONE_SURROGATES = /\\(?:u[dD][89a-fA-F][0-9a-fA-F]{2}|[^])/g;

/** Lines of one recorder. Each has an `event_id`, so that sending it again adds nothing, and a
 * later time than the one before, so that they have an order. */
export class EventLines {
  readonly #source: string;
  readonly #process = randomBytes(8).toString("hex");
  #count = 0;
  #lastUs = 0;

  constructor(source: string) {
    this.#source = source;
  }

  /** Throws what JSON.stringify throws: for circles, for a BigInt, for what is nested too deep. */
  line(sessionId: string, type: string, payload: object, common: object): string {
    this.#count += 1;
    this.#lastUs = Math.max(Date.now() * 1000, this.#lastUs + 1);
    const text = JSON.stringify({
      session_id: sessionId,
      event_id: `${this.#process}-${this.#count}`,
      source: this.#source,
      ts: this.#lastUs,
      type,
      ...common,
      payload,
    });
    return text.includes("\\ud") ? text.replace(LONE_SURROGATES, replaced) : text;
  }
}

function replaced(escape: string): string {
  return escape.length > 2 ? "\ufffd" : escape;
}
