/** What the agent's thread and the recorder's know of each other at any moment: numbers in memory
 * that both see. It needs no turn of the agent's event loop, which may be busy or at its end. */

const NAMES = [
  /** Events that are on disk, or dropped, or sent: nothing of them is in memory. */
  "written",
  "writtenBytes",
  "sent",
  "rejected",
  /** By the recorder's thread. */
  "dropped",
  /** Events in the spool. */
  "spooled",
  /** 1 while a list of dropped events is under way. */
  "dropsUnderWay",
  /** 1 once the recorder's thread has closed. */
  "closed",
] as const;

export type Cell = (typeof NAMES)[number];

const PLACES = Object.fromEntries(NAMES.map((name, place) => [name, place])) as Record<
  Cell,
  number
>;

export class SharedState {
  readonly #cells: BigInt64Array;

  constructor(readonly memory = new SharedArrayBuffer(NAMES.length * 8)) {
    this.#cells = new BigInt64Array(memory);
  }

  get(cell: Cell): number {
    return Number(Atomics.load(this.#cells, PLACES[cell]));
  }

  set(cell: Cell, value: number): void {
    Atomics.store(this.#cells, PLACES[cell], BigInt(value));
    Atomics.notify(this.#cells, PLACES[cell]);
  }

  add(cell: Cell, value: number): void {
    Atomics.add(this.#cells, PLACES[cell], BigInt(value));
  }

  /** Holds the calling thread until the cell is no longer 0, or for so long. */
  wait(cell: Cell, milliseconds: number): void {
    Atomics.wait(this.#cells, PLACES[cell], 0n, Math.max(0, milliseconds));
  }
}
