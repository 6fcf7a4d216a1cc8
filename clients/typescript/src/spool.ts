/** The spool: batches of events on disk, until the service has them.
 *
 * Each recorder has a folder of its own. What is left in the folders of processes that ended is
 * taken over by the next one, file by file: of two that try, one gets it. */

import { randomBytes } from "node:crypto";
import * as fs from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";

import { hold, isAbandoned, type FolderLock } from "./folder_lock.js";
import { packed, SUFFIXES, unpacked, type Encoding, type Packed } from "./packing.js";

const BATCH_NAME = /^[0-9]+-([0-9]+)(\.ndjson\.(?:gz|zst))$/;
/** A folder that nobody holds yet has such a name. */
const UNFINISHED = ".new-";
/** A process that was killed while it made its folder left it. */
const UNFINISHED_MS_MAX = 3_600_000;

/** Packed lines: in a file, or in memory where the disk does not take them. */
export interface SpooledBatch {
  readonly events: number;
  readonly size: number;
  readonly encoding: Encoding;
  readonly path?: string;
  readonly content?: Uint8Array;
}

/** Not the folder of the recorder for Python: each adopts what its own kind left. */
export function defaultFolder(): string {
  const state = process.env["XDG_STATE_HOME"] || join(homedir(), ".local", "state");
  return join(state, "penstock", "spool-node");
}

/** Throws where the file is gone. */
export function contentOf(batch: SpooledBatch): Packed {
  const content = batch.content ?? fs.readFileSync(batch.path ?? "");
  return { content, encoding: batch.encoding };
}

/** The batches of one recorder, the oldest first. */
export class Spool {
  readonly #folder: string;
  readonly #bytesMax: number;
  readonly #warn: (text: string) => void;
  readonly #batches: SpooledBatch[] = [];
  #own: string | undefined;
  #lock: FolderLock | undefined;
  #files = 0;
  #bytes = 0;
  #events = 0;
  #given = 0;

  /** `bytesMax` bounds what is kept, on disk and in memory together. */
  constructor(folder: string, bytesMax: number, warn: (text: string) => void = () => undefined) {
    this.#folder = folder;
    this.#bytesMax = bytesMax;
    this.#warn = warn;
  }

  /** Events that are here. */
  get events(): number {
    return this.#events;
  }

  /** Events that ever were here. */
  get given(): number {
    return this.#given;
  }

  get gone(): number {
    return this.#given - this.#events;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Whether there was room for them. */
  put(lines: readonly Uint8Array[]): boolean {
    const content = packed(lines);
    if (this.#bytes + content.content.byteLength > this.#bytesMax) return false;
    this.#add(this.#stored(lines.length, content), this.#batches.length);
    this.#given += lines.length;
    return true;
  }

  first(): SpooledBatch | undefined {
    return this.#batches[0];
  }

  /** One that somebody is done with. */
  remove(batch: SpooledBatch): void {
    const place = this.#batches.indexOf(batch);
    if (place < 0) return;
    this.#batches.splice(place, 1);
    this.#bytes -= batch.size;
    this.#events -= batch.events;
    if (batch.path !== undefined) quietly(() => fs.rmSync(batch.path ?? "", { force: true }));
  }

  /** The batch becomes two, since the service does not take it as it is. Throws where its file is
   * broken or gone. */
  halve(batch: SpooledBatch): void {
    const lines = unpacked(contentOf(batch));
    const middle = lines.length >> 1;
    const halves = [lines.slice(0, middle), lines.slice(middle)].map((part) =>
      this.#stored(part.length, packed(part)),
    );
    const place = this.#batches.indexOf(batch);
    this.remove(batch);
    halves.forEach((half, number) => this.#add(half, place + number));
  }

  /** Takes over the batches of processes that ended before these were sent. */
  async adopt(): Promise<void> {
    let place = 0;
    for (const name of listed(this.#folder)) {
      const folder = join(this.#folder, name);
      if (name.startsWith(UNFINISHED)) {
        if (Date.now() - modified(folder) > UNFINISHED_MS_MAX) removeFolder(folder);
      } else if (folder !== this.#own && (await isAbandoned(folder))) {
        for (const batch of this.#moved(folder)) {
          this.#add(batch, place);
          this.#given += batch.events;
          place += 1;
        }
        if (!listed(folder).some((file) => BATCH_NAME.test(file))) removeFolder(folder);
      }
    }
  }

  /** What is still here is taken over by the next process. */
  close(): void {
    this.#lock?.release();
    if (this.#own !== undefined && this.#batches.every((batch) => batch.path === undefined)) {
      removeFolder(this.#own);
    }
    this.#own = this.#lock = undefined;
  }

  *#moved(folder: string): Iterable<SpooledBatch> {
    for (const name of listed(folder)) {
      const [, events, suffix] = BATCH_NAME.exec(name) ?? [];
      if (events === undefined) continue;
      const encoding: Encoding = suffix === SUFFIXES.zstd ? "zstd" : "gzip";
      try {
        const path = this.#nextPath(Number(events), encoding);
        fs.renameSync(join(folder, name), path);
        yield { events: Number(events), size: fs.statSync(path).size, encoding, path };
      } catch {
        continue; // somebody else has it
      }
    }
  }

  #add(batch: SpooledBatch, place: number): void {
    this.#batches.splice(place, 0, batch);
    this.#bytes += batch.size;
    this.#events += batch.events;
  }

  #stored(events: number, { content, encoding }: Packed): SpooledBatch {
    const size = content.byteLength;
    try {
      const path = this.#nextPath(events, encoding);
      fs.writeFileSync(`${path}.part`, content, { mode: 0o600, flag: "wx" });
      fs.renameSync(`${path}.part`, path);
      return { events, size, encoding, path };
    } catch (error) {
      this.#warn(`events wait in memory, since the spool cannot be written: ${String(error)}`);
      return { events, size, encoding, content };
    }
  }

  #nextPath(events: number, encoding: Encoding): string {
    this.#own ??= this.#made();
    this.#files += 1;
    const number = String(this.#files).padStart(12, "0");
    return join(this.#own, `${number}-${events}${SUFFIXES[encoding]}`);
  }

  /** It has its name when it is held, so that no other recorder takes it for abandoned. */
  #made(): string {
    const name = `${process.pid}-${randomBytes(6).toString("hex")}`;
    const unfinished = join(this.#folder, `${UNFINISHED}${name}`);
    fs.mkdirSync(unfinished, { mode: 0o700, recursive: true });
    this.#lock = hold(unfinished);
    if (this.#lock === undefined) {
      removeFolder(unfinished);
      throw new Error(`a socket cannot be made in ${unfinished}`);
    }
    const own = join(this.#folder, name);
    fs.renameSync(unfinished, own);
    return own;
  }
}

function listed(folder: string): string[] {
  try {
    return fs.readdirSync(folder).sort();
  } catch {
    return [];
  }
}

function modified(path: string): number {
  return fs.statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? Date.now();
}

function removeFolder(folder: string): void {
  quietly(() => fs.rmSync(folder, { recursive: true, force: true }));
}

function quietly(work: () => void): void {
  try {
    work();
  } catch {
    // The next recorder tries it again.
  }
}
