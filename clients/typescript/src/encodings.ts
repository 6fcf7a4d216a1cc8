/** What a text says in base64, in hexadecimal digits or with escapes, and how to say the same without what was
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
const HEX = /(?<![0-9A-Za-z])(?:[2-7][0-9a-fA-F]|0[9adAD]){8,}(?![0-9A-Za-z])/g;
/** What stands for other characters, and what of a terminal nobody sees. */
const ENCODED = new RegExp(
  "\\\\{1,64}(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|([01][0-7]{2}|33)|([nrtbfe\"'/]))" +
    "|%(?:25){0,4}([0-7][0-9A-Fa-f])|(&(?:#[0-9]{1,5}|#[xX][0-9A-Fa-f]{1,4}|[A-Za-z]{2,9});)" +
    "|(?:\\x1b\\[[0-9;:?]{0,64}[@-~]|\\x1b\\][^\\x07\\x1b]{0,1024}(?:\\x07|\\x1b\\\\)|\\x1b[()][A-Z0-9])" +
    "|\\[[0-9]{1,3}(?:;[0-9]{1,3}){0,4}m|[\\u200b-\\u200d\\u2060\\ufeff\\u00ad]",
  "g",
);
const WHITE: Record<string, string> = { n: "\n", r: "\r", t: "\t", b: "\b", f: "\f", e: "\x1b" };
const ENTITIES: Record<string, string> = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: " " };

/** The parts of a text in each encoding, in order. */
export const ENCODINGS: readonly ((text: string) => Encoded[])[] = [
  (text) => inEscapes(text, ""),
  (text) => inEscapes(text, " "),
  inBase64,
  inHex,
];

/** One level of encodings undone; a colour may end a word, or stand in it. */
export function unescaped(text: string, colour = ""): string {
  return text.replace(ENCODED, (_all, ...groups: (string | undefined)[]) => {
    const [four, two, octal, control, percent, entity] = groups;
    const code = four ?? two ?? percent;
    if (code !== undefined) return String.fromCharCode(parseInt(code, 16));
    if (octal !== undefined) return String.fromCharCode(parseInt(octal, 8));
    if (control !== undefined) return WHITE[control] ?? control;
    return entity === undefined ? colour : characterOf(entity);
  });
}

function characterOf(entity: string): string {
  const number = /^&#(?:[xX]([0-9A-Fa-f]+)|([0-9]+));$/.exec(entity);
  if (number === null) return ENTITIES[entity.slice(1, -1)] ?? entity;
  return String.fromCharCode(number[1] === undefined ? Number(number[2]) : parseInt(number[1], 16));
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

function inHex(text: string): Encoded[] {
  return [...text.matchAll(HEX)].map((match) => ({
    start: match.index,
    end: match.index + match[0].length,
    decoded: Buffer.from(match[0], "hex").toString("utf8"),
    again: (masked) => Buffer.from(masked, "utf8").toString("hex"),
  }));
}

/** The whole of a text that says a secret in escapes takes its decoded form. */
function inEscapes(text: string, colour: string): Encoded[] {
  const decoded = unescaped(text, colour);
  return decoded === text ? [] : [{ start: 0, end: text.length, decoded, again: (masked) => masked }];
}
