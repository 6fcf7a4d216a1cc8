/** Delivery of batches to the service, and what follows from its answer. */

import * as http from "node:http";
import * as https from "node:https";

/** For connecting, and for each wait within an answer. */
const ANSWER_MS_MAX = 30_000;
const ANSWER_BYTES_MAX = 1024 * 1024;
const PAUSE_SECONDS_MIN = 0.5;
const PAUSE_SECONDS_MAX = 60;
/** A service that asks for more is not listened to. */
const RETRY_AFTER_SECONDS_MAX = 300;

/** Of one attempt. `refused`: it will never be taken. `later`: the service is away, or full.
 * `unusable`: the address or the key is wrong, and somebody has to mend it. */
export type Outcome = "taken" | "too_large" | "refused" | "later" | "unusable";

/** Of the service; a status of 0 is none. */
export interface Reply {
  readonly status: number;
  readonly retryAfterS: number;
  readonly rejected: number;
  readonly problem: string;
}

export function outcome(status: number): Outcome {
  if (status === 200) return "taken";
  if (status === 413) return "too_large";
  if (status === 400 || status === 422) return "refused";
  if (status === 0 || status === 408 || status === 425 || status === 429) return "later";
  return status >= 500 ? "later" : "unusable";
}

/** Before the next attempt after so many in vain. `chance`, from 0 to 1, spreads the recorders of a
 * team, so that a service that is back is not overrun by all at once. */
export function pauseSeconds(attempts: number, retryAfterS: number, chance: number): number {
  if (retryAfterS > 0) return Math.min(retryAfterS, RETRY_AFTER_SECONDS_MAX) * (1 + chance / 4);
  const longest = Math.min(PAUSE_SECONDS_MAX, PAUSE_SECONDS_MIN * 2 ** Math.min(attempts, 10));
  return longest * (0.5 + chance / 2);
}

/** Connections to a service, one at a time. */
export class Delivery {
  readonly #url: string;
  readonly #key: string | undefined;
  readonly #agents = [
    new http.Agent({ keepAlive: true, maxSockets: 1 }),
    new https.Agent({ keepAlive: true, maxSockets: 1 }),
  ] as const;

  constructor(url: string, key: string | undefined) {
    this.#url = url;
    this.#key = key;
  }

  async send(packed: Uint8Array, encoding: string): Promise<Reply> {
    let reused = false;
    const attempt = async (): Promise<Reply> => {
      try {
        return await this.#attempt(packed, encoding, (again) => (reused = again));
      } catch (error) {
        return nothing(error instanceof Error ? `${error.name}: ${error.message}` : String(error));
      }
    };
    const reply = await attempt();
    // Servers close connections that were idle.
    return reply.status === 0 && reused ? attempt() : reply;
  }

  close(): void {
    for (const agent of this.#agents) agent.destroy();
  }

  #attempt(
    packed: Uint8Array,
    encoding: string,
    note: (reused: boolean) => void,
  ): Promise<Reply> {
    const address = new URL(this.#url);
    if (address.protocol !== "http:" && address.protocol !== "https:") {
      return Promise.reject(new Error("the service's address begins with http:// or https://"));
    }
    const secure = address.protocol === "https:";
    const options: http.RequestOptions = {
      method: "POST",
      agent: this.#agents[secure ? 1 : 0],
      timeout: ANSWER_MS_MAX,
      headers: {
        "Content-Type": "application/x-ndjson",
        "Content-Encoding": encoding,
        "Content-Length": packed.byteLength,
        ...(this.#key ? { Authorization: `Bearer ${this.#key}` } : {}),
      },
    };
    address.pathname = `${address.pathname.replace(/\/+$/, "")}/v1/events`;
    address.search = address.hash = "";
    return new Promise((resolve, reject) => {
      const request = (secure ? https : http).request(address, options, (answer) => {
        read(answer).then(resolve, reject);
      });
      request.once("socket", () => note(request.reusedSocket));
      request.once("timeout", () => request.destroy(new Error("the service does not answer")));
      request.once("error", reject);
      request.end(packed);
    });
  }
}

async function read(answer: http.IncomingMessage): Promise<Reply> {
  const status = answer.statusCode ?? 0;
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of answer) {
    const part = chunk as Buffer;
    chunks.push(part);
    size += part.length;
    if (size > ANSWER_BYTES_MAX) break; // which closes the connection
  }
  const body = document(Buffer.concat(chunks).toString("utf8"));
  const rejected = status === 200 && Array.isArray(body["rejected"]) ? body["rejected"].length : 0;
  const title = body["detail"] || body["title"] || body["error"];
  return {
    status,
    retryAfterS: seconds(answer.headers["retry-after"]),
    rejected,
    problem: status === 200 || title === undefined ? "" : String(title).slice(0, 500),
  };
}

function document(body: string): Record<string, unknown> {
  try {
    const parsed: unknown = JSON.parse(body);
    return typeof parsed === "object" && parsed !== null ? { ...parsed } : {};
  } catch {
    return {};
  }
}

function seconds(retryAfter: string | undefined): number {
  const text = (retryAfter ?? "").trim();
  return /^[0-9]{1,9}$/.test(text) ? Number(text) : 0;
}

export function nothing(problem: string): Reply {
  return { status: 0, retryAfterS: 0, rejected: 0, problem };
}
