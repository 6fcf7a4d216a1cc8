/** Packing of batches: zstd where this Node has it, else gzip. */

import * as zlib from "node:zlib";

export type Encoding = "gzip" | "zstd";

interface Zstd {
  zstdCompressSync(content: Uint8Array): Buffer;
  zstdDecompressSync(packed: Uint8Array, options: { maxOutputLength: number }): Buffer;
}

const FAST = { level: 1 };
/** More, no recorder puts into a batch. */
const BATCH_BYTES_MAX = 1024 ** 3;
/** Since Node 22.15; the types that this is compiled with are of an older one. */
const zstd = "zstdCompressSync" in zlib ? (zlib as unknown as Zstd) : undefined;

export const SUFFIXES: Record<Encoding, string> = { gzip: ".ndjson.gz", zstd: ".ndjson.zst" };

export interface Packed {
  readonly content: Uint8Array;
  readonly encoding: Encoding;
}

export function packed(lines: readonly Uint8Array[]): Packed {
  const content = Buffer.concat(lines.flatMap((line) => [line, NEWLINE]));
  if (zstd) return { content: zstd.zstdCompressSync(content), encoding: "zstd" };
  return { content: zlib.gzipSync(content, FAST), encoding: "gzip" };
}

const NEWLINE = Buffer.from("\n");

/** Throws where the content is broken, or of an encoding that this Node does not know. */
export function unpacked({ content, encoding }: Packed): Buffer[] {
  const options = { maxOutputLength: BATCH_BYTES_MAX };
  let whole: Buffer;
  if (encoding === "gzip") whole = zlib.gunzipSync(content, options);
  else if (zstd) whole = zstd.zstdDecompressSync(content, options);
  else throw new Error("this Node does not know zstd");
  const lines: Buffer[] = [];
  for (let start = 0; start < whole.length; ) {
    const end = whole.indexOf(10, start);
    lines.push(whole.subarray(start, end < 0 ? whole.length : end));
    start = end < 0 ? whole.length : end + 1;
  }
  return lines;
}
