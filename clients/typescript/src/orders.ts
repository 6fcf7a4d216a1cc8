/** What the agent's thread and the recorder's send each other. */

/** How many events of a session were dropped, and why. */
export type Drop = readonly [session: string, reason: string, events: number];

export type Order =
  | { readonly kind: "line"; readonly session: string; readonly line: string }
  | { readonly kind: "drops"; readonly drops: readonly Drop[] }
  | { readonly kind: "flush"; readonly id: number; readonly seconds: number }
  | { readonly kind: "close"; readonly seconds: number };

export type Notice =
  | { readonly kind: "flushed"; readonly id: number; readonly done: boolean }
  | { readonly kind: "warning"; readonly text: string };

/** What the recorder's thread is started with. */
export interface ThreadSettings {
  readonly url: string;
  readonly key: string | undefined;
  readonly source: string;
  readonly folder: string;
  readonly spoolBytesMax: number;
  readonly mask: boolean;
  readonly memory: SharedArrayBuffer;
}
