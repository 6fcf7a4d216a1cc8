/** What a text says in base64, URL-encoded or with escapes, and how to say the same without what was
 * masked. The service looks deeper: into encodings across line breaks and behind marks of a diff. */

/** A part of a text that says something else once it is decoded. */
export interface Encoded {
  readonly start: number;
  readonly end: number;
  readonly decoded: string;
  /** What takes its place, from the decoded text after masking. */
  readonly again: (masked: string) => string;
}

// Base64 of plain text, as the service's screen has it: the high bit of each byte is 0.
const QUARTET = "[A-Za-f][A-HQ-Xg-nw-z0-3][ABEFIJMNQRUVYZcdghklopstwx014589][A-Za-z0-9+/_-]";
const BREAK = "(?:(?:\\\\r)?\\\\n|\\r?\\n)?";
const BASE64 = new RegExp(
  `(?:${QUARTET}){5}${BREAK}(?:[A-Za-z0-9+/_-]{4}${BREAK})*(?:[A-Za-z0-9+/_-]{2,3}={0,2})?`,
  "g",
);
const BREAKS = /(?:\\r)?\\n|\r?\n/g;
const URL_WORD = /[^\s"'<>]+/g;
const PERCENT = /%(?:25)?([2-7][0-9a-fA-F])/g;
const ESCAPE = /\\(?:u00[2-7][0-9a-fA-F]|x[2-7][0-9a-fA-F])/;
const ESCAPES = /\\{1,64}(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|([nrtbf"'/]))/g;
const WHITE: Record<string, string> = { n: "\n", r: "\r", t: "\t", b: "\b", f: "\f" };

/** The parts of a text in each encoding, in order. */
export const ENCODINGS: readonly ((text: string) => Encoded[])[] = [inEscapes, inBase64, inUrls];

export function unescaped(text: string): string {
  return text.replace(ESCAPES, (_all, four?: string, two?: string, one?: string) => {
    const code = four ?? two;
    return code === undefined ? (WHITE[one ?? ""] ?? one ?? "") : String.fromCharCode(parseInt(code, 16));
  });
}

/** The text with these parts in their places. */
export function replaced(text: string, parts: readonly { start: number; end: number; by: string }[]): string {
  const pieces: string[] = [];
  let at = 0;
  for (const { start, end, by } of parts) {
    pieces.push(text.slice(at, start), by);
    at = end;
  }
  return pieces.join("") + text.slice(at);
}

function inBase64(text: string): Encoded[] {
  return [...text.matchAll(BASE64)].map((match) => ({
    start: match.index,
    end: match.index + match[0].length,
    decoded: Buffer.from(match[0].replace(BREAKS, ""), "base64").toString("utf8"),
    again: (masked) => Buffer.from(masked, "utf8").toString("base64"),
  }));
}

function inUrls(text: string): Encoded[] {
  if (!text.includes("%")) return [];
  return [...text.matchAll(URL_WORD)].flatMap((match) => {
    const decoded = match[0].replace(PERCENT, (_all, code: string) => String.fromCharCode(parseInt(code, 16)));
    if (decoded === match[0]) return [];
    return [{ start: match.index, end: match.index + match[0].length, decoded, again: (masked: string) => masked }];
  });
}

function inEscapes(text: string): Encoded[] {
  if (!ESCAPE.test(text)) return [];
  return [{ start: 0, end: text.length, decoded: unescaped(text), again: (masked) => masked }];
}
