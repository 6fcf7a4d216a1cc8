/** Secrets in what an agent said, and what stands in their place before anything is on disk.
 *
 * It looks into texts as they are, with their escapes resolved, and into base64 and hexadecimal
 * digits, to a depth. The service, which masks in any case, also looks across line breaks. */

import { createHmac, randomBytes } from "node:crypto";
import * as fs from "node:fs";
import { join } from "node:path";

import { ENCODINGS, replaced, unescaped } from "./encodings.js";
import { ABOUT_PASSWORDS, COMMON_PASSWORDS, RULES, type Rule } from "./rules.js";

const KEY_NAME = "redaction.key";
const KEY_BYTES = 32;
/** Sessions of which it is known that something was masked: their token ids decode to it. */
const SESSIONS_MAX = 10_000;
const ASSIGNED_CHARS_MAX = 512;
const MATCHES_MAX = 5_000;
const PLACEHOLDER = /\[(?:SECRET|PERSONAL):[a-z0-9_]{1,40}:[0-9a-f]{16}\]/;
/** Encodings within encodings. */
const DEPTH_MAX = 3;
/** What is decoded of a line, in its own size; one that says more was made for it. */
const DECODED_TIMES_MAX = 16;
const DECODED_CHARS_MIN = 1024 * 1024;
/** What may hide a secret from the needles of rules. */
const HIDING =
  /%(?:25)*[0-7][0-9a-fA-F]|\\(?:u00|x)[1-7]|\\[01eu][0-7f][0-7]|\\e|\\u20|\x1b|\[[0-9;]{1,12}m|&[#A-Za-z]|[\u200b-\u200d\u2060\ufeff\u00ad]|[A-Za-z0-9+/_-]{16}/;
/** They are positions of tokens, or decode to text. */
const TOKEN_KEYS = [
  "prompt_ids",
  "completion_ids",
  "logprobs",
  "policy_version_runs",
  "routed_experts",
];

interface Candidate {
  readonly text: string;
  readonly start: number;
  readonly value: string;
  readonly name: string;
  readonly isBare: boolean;
}

/** Masks the lines of one recorder. Equal secrets have equal placeholders, by a key of this user
 * beside the spool. */
export class Mask {
  readonly #folder: string;
  readonly #sessions = new Set<string>();
  #key: Buffer | undefined;
  #decodedLeft = 0;

  constructor(folder: string) {
    this.#folder = folder;
  }

  /** The line as it may be kept. Throws where that cannot be found out. */
  line(session: string, line: string): string {
    const hides = HIDING.test(line);
    const rules = hides ? RULES : rulesFor(line);
    const hasIds = line.includes('"prompt_ids"') || line.includes('"completion_ids"');
    if (rules.length === 0 && !(hasIds && this.#sessions.has(session))) return line;
    let found = 0;
    this.#decodedLeft = Math.max(DECODED_CHARS_MIN, DECODED_TIMES_MAX * line.length);
    const event = mapped(JSON.parse(line), (text, name) => {
      const masked = this.#masked(text, name, rules);
      if (masked !== text) found += 1;
      return masked;
    }) as { payload?: { tokens?: Record<string, unknown> } };
    if (found > 0) this.#remember(session);
    const tokens = event.payload?.tokens;
    const drops = hasIds && this.#sessions.has(session) && typeof tokens === "object" && tokens;
    if (drops) {
      for (const key of TOKEN_KEYS) delete drops[key];
      drops["redacted"] = true;
    }
    return found > 0 || drops ? JSON.stringify(event) : line;
  }

  #masked(text: string, name: string, rules: readonly Rule[], depth = DEPTH_MAX): string {
    let masked = text;
    for (const [type, value] of secretsIn(text, rulesFor(text, rules))) {
      masked = masked.split(value).join(this.#placeholder(type, value));
    }
    masked = this.#maskedInside(masked, depth);
    if (masked === text && name && text.length > 0 && text.length <= ASSIGNED_CHARS_MAX) {
      const secrets = secretsIn(`"${name}": "${text}"`, rules);
      const whole = secrets.find(([, value]) => value === text);
      if (whole) return this.#placeholder(...whole);
    }
    return masked;
  }

  /** With the secrets masked that it says in encodings. */
  #maskedInside(text: string, depth: number): string {
    if (depth === 0 || !HIDING.test(text)) return text;
    let masked = text;
    for (const encoded of ENCODINGS) {
      const parts = encoded(masked).flatMap(({ start, end, decoded, again }) => {
        this.#decodedLeft -= decoded.length;
        if (this.#decodedLeft < 0) throw new Error("too much is encoded");
        const inner = this.#masked(decoded, "", RULES, depth - 1);
        return inner === decoded ? [] : [{ start, end, by: again(inner) }];
      });
      if (parts.length > 0) masked = replaced(masked, parts);
    }
    return masked;
  }

  #placeholder(type: string, value: string): string {
    this.#key ??= keyIn(this.#folder);
    const digest = createHmac("sha256", this.#key).update(value).digest("hex").slice(0, 16);
    return `[SECRET:${type}:${digest}]`;
  }

  #remember(session: string): void {
    if (this.#sessions.size >= SESSIONS_MAX) {
      for (const oldest of this.#sessions) {
        this.#sessions.delete(oldest);
        break;
      }
    }
    this.#sessions.add(session);
  }
}

/** Those rules of which a needle is in the text. */
function rulesFor(text: string, rules: readonly Rule[] = RULES): readonly Rule[] {
  const lower = text.toLowerCase();
  return rules.filter((rule) => rule.needles.some((needle) => lower.includes(needle)));
}

/** The types and the values of what is to be masked in a text, the longest first. */
export function secretsIn(text: string, rules: readonly Rule[] = RULES): [string, string][] {
  const views = text.includes("\\") ? [text, unescaped(text)] : [text];
  const secrets = new Map<string, string>();
  for (const view of views) {
    for (const rule of rules) {
      let matches = 0;
      for (const match of view.matchAll(rule.pattern)) {
        matches += 1;
        if (matches > MATCHES_MAX) throw new Error("too many matches");
        const value = match.groups?.["value"] ?? match.groups?.["bare"] ?? match[0];
        if (PLACEHOLDER.test(value)) continue;
        const candidate: Candidate = {
          text: view,
          start: match.index ?? 0,
          value,
          name: match.groups?.["name"] ?? "",
          isBare: match.groups?.["bare"] !== undefined,
        };
        const isMeant = rule.checks.every((check) => CHECKS[check]?.(candidate) ?? true);
        if (isMeant && text.includes(value) && !secrets.has(value)) secrets.set(value, rule.type);
      }
    }
  }
  return [...secrets].map(([value, type]): [string, string] => [type, value]).sort(
    (a, b) => b[1].length - a[1].length,
  );
}

function mapped(value: unknown, change: (text: string, name: string) => string, name = ""): unknown {
  if (typeof value === "string") return change(value, name);
  if (Array.isArray(value)) return value.map((item) => mapped(item, change));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, item]) => [change(key, ""), mapped(item, change, key)]),
  );
}

function keyIn(folder: string): Buffer {
  const path = join(folder, KEY_NAME);
  try {
    fs.mkdirSync(folder, { mode: 0o700, recursive: true });
    fs.writeFileSync(path, randomBytes(KEY_BYTES), { mode: 0o600, flag: "wx" });
  } catch {
    // It is there, or there is no disk.
  }
  try {
    const key = fs.readFileSync(path);
    if (key.length === KEY_BYTES) return key;
  } catch {
    // One for this process alone.
  }
  return randomBytes(KEY_BYTES);
}

// Checks: which matches count, as platform/penstock/events/redaction/checks.py has them.

const EXAMPLE_WORDS =
  /example|sample|dummy|placeholder|changeme|change[_-]me|redacted|insert|replace|not[_-]?real|your[_-]|_your|my[_-]?(?:secret|token|key|pass)|fake|foobar|lorem|deadbeef|cafebabe|todo|x{4}|\*{3}|\.{3}|0{7}|123456789|abcdefgh|qwertyui|secret[_-]?(?:key|here|value|token)$/i;
const TEMPLATE =
  /\$\{|\{\{|\}\}|<%|%\(|%s|\$\(|^\$[A-Za-z_]|^<.*>$|^%[A-Za-z_]+%$|^@[A-Za-z]/;
const DIGEST_NAME = /^(?:sha\d{1,3}|md5|blake2b?|xxh\d*|integrity|crc32)[-:=_]/i;
const UUID = /^[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$/;
const WORDS_ONLY = /^[A-Za-z]+(?:[-_. /][A-Za-z]+)*[0-9]{0,3}[!?.:]?$/;
const NO_SECRET_NAME =
  /(?:iz(?:er|e|ation)|_?(?:hash|digest|checksum|sha\d*|type|kind|name|names|count|counts|limit|max|min|id|ids|url|uri|path|file|dir|field|header|prefix|suffix|length|size|ttl|expir\w*|policy|regex|pattern|label|placeholder|hint|algorithm|class|column|format|version|status|strategy|provider|endpoint|host|ref|arn|budget|usage|index|error|message|scheme|rotation|source|mode|enabled|required|fingerprint|thumbprint|ors?|ored))$/i;
const NO_SECRET_BEFORE =
  /(?:public|primary|foreign|sort|partition|cache|idempotency|i18n|page|next|cursor|pagination|continuation|csrf|unique|dedup|translation|max|num|hashed|sync|git)[_-]?$/i;
const EXPRESSION =
  /^(?:[A-Za-z_$][\w$]*(?:(?:\.|->|::|\?\.)[A-Za-z_$][\w$]*)+[!;]?|[A-Za-z_]+\d{0,2}|[A-Z]+\d{0,3}(?:_[A-Z0-9]+)+)$/;
const PASSWORD_NAME = /^(?:[a-z]*pass(?:wor[dt]|wd|phrase|code)?|pwd|psk|kennwort)?s?\d?$/i;
const COLUMN_OF_PASSWORDS = /^[ `*"]*(?:passwor[dt]|passwd|kennwort|pwd)[ `*"\r]*$/i;
const INSERT_CHARS_MAX = 2_000;
const PART_OF_PROGRAM =
  /:\/\/|^[([{]|[\w)\]][([{]|^[A-Za-z_]+\d{0,2}$|^[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+$/;
const KINDS = [/\p{Ll}/u, /\p{Lu}/u, /\p{Nd}/u, /[^\p{L}\p{N}]/u];
const LINE_CHARS_MAX = 160;
const SECTION_CHARS_MAX = 1000;
const NAME_OF_PROGRAM = /^(?:\w*(?:_|[a-z][A-Z])\w*|\w+:|\w+(?:\.|->|::|\?\.)[\w.]+[!;]?)$/;
const BEFORE_LAST =
  /^[ \t]{0,32}(?:[-+>|*][ \t]{1,4}|[+>])?(?:[A-Za-z]{1,20} ){0,5}["']?[A-Za-z0-9_.-]{1,80}["']?(?:=|:[ \t]+(?:[>|][+-]?\s+)?|(?<spaced>[ \t]+=[ \t]+))$/;
const BEFORE_ARGUMENT = /(?:^|[\s"'?&;])[A-Za-z0-9_.-]{1,80}=$|>$/;
const BEHIND_ARGUMENT = /^(?:[\s"'&;]|<\/|\\n|$)/;
const SECTION = /^\[[\w.: -]{1,60}\]\r?$/m;
const EXAMPLE_JWT_PARTS = ["eyJzdWIiOiIxMjM0NTY3ODkwI", "SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c"];
const DIGIT = /^\p{Nd}$/u;
const LETTER = /^\p{L}$/u;

const CHECKS: Record<string, (candidate: Candidate) => boolean> = {
  no_example: isNoExample,
  mixed: ({ value }) => looksRandom(value),
  token: isToken,
  password: isPassword,
  said: isSaid,
  random: ({ value, isBare }) => isBare || isJumble(value),
  in_column: isInColumn,
  strong: isStrong,
  assigned: isAssigned,
  key_block: isKeyBlock,
  jwt: isJwt,
};

function isNoExample({ value }: Candidate): boolean {
  if (EXAMPLE_WORDS.test(value) || TEMPLATE.test(value)) return false;
  const chars = [...value];
  if (chars.length < 16) return true;
  const close = pairs(chars).filter(
    ([a, b]) => Math.abs((a.codePointAt(0) ?? 0) - (b.codePointAt(0) ?? 0)) <= 1,
  );
  return close.length < 0.6 * (chars.length - 1) && new Set(chars).size >= 6;
}

function isToken({ value }: Candidate): boolean {
  if (value.length < 16 || DIGEST_NAME.test(value)) return false;
  if (value.includes("://") || /^(?:\/|\.\/|\.\.\/|~\/)/.test(value)) return false;
  if (/^\d+$/.test(value)) return false;
  return UUID.test(value) || looksRandom(value);
}

function isPassword({ value, name }: Candidate): boolean {
  const plain = value.toLowerCase().replace(/^[!?.]+|[!?.]+$/g, "");
  if (COMMON_PASSWORDS.has(plain) || /^(?:\.?\/|~\/|\$[A-Za-z_({])/.test(value)) return false;
  if (/[A-Za-z_.]\([^)]*\)/.test(value) || DIGEST_NAME.test(value)) return false;
  if (new Set(value).size < 5) return false;
  if (value.includes(" ") && name && (name !== name.toUpperCase() || !/[A-Z]/.test(name))) return false;
  if (WORDS_ONLY.test(value)) {
    if (!PASSWORD_NAME.test(name)) return false;
    return !ABOUT_PASSWORDS.test(value.toLowerCase()) && !/[_./]/.test(value.slice(0, -1));
  }
  return KINDS.filter((kind) => kind.test(value)).length >= 2;
}

function isSaid({ text, start, value }: Candidate): boolean {
  if (/\p{Nd}/u.test(value)) return /\p{L}/u.test(value);
  const end = text.indexOf(value, start) + value.length;
  return value.includes("-") && (end === text.length || text[end] === "\n");
}

function isInColumn({ text, start, value }: Candidate): boolean {
  const at = text.indexOf(value, start);
  if (text[at - 1] === "'") {
    const parts = text.slice(Math.max(0, at - INSERT_CHARS_MAX), at).split(/\bvalues\b/i);
    const [names = "", row = ""] = parts.slice(-2);
    const of = names.slice(names.lastIndexOf("(") + 1, names.lastIndexOf(")")).split(",");
    const place = row.slice(row.lastIndexOf("(") + 1).split(",").length - 1;
    return COLUMN_OF_PASSWORDS.test(of[place] ?? "");
  }
  const first = text.indexOf("|", Math.max(text.lastIndexOf("\n\n", at), 0));
  const head = text.slice(text.lastIndexOf("\n", first) + 1, text.indexOf("\n", first));
  const column = text.slice(text.lastIndexOf("\n", at) + 1, at).split("|").length - 1;
  return COLUMN_OF_PASSWORDS.test(head.split("|")[column] ?? "");
}

function isStrong(candidate: Candidate): boolean {
  const { value } = candidate;
  if (/^(?:\/|\.\/|~\/|\$|--)/.test(value)) return false;
  if (PART_OF_PROGRAM.test(value) && !(/^[\p{L}\p{N}]+$/u.test(value) && isJumble(value))) return false;
  const kinds = KINDS.filter((kind) => kind.test(value)).length;
  const short = kinds >= 3 && /\p{Nd}/u.test(value) && /\p{L}/u.test(value);
  return (short && new Set(value).size >= 6) || isToken(candidate);
}

function isAssigned({ text, start, value, name, isBare }: Candidate): boolean {
  if (NO_SECRET_NAME.test(name)) return false;
  if (name && NO_SECRET_BEFORE.test(text.slice(Math.max(0, start - 16), start))) return false;
  if (!isBare || !name) return true;
  if (isLiteral(text, start, text.indexOf(value, start + name.length), value)) return true;
  // Without quotes it is one in a configuration, and an expression in a program.
  if (EXPRESSION.test(value.replace(/\.+$/, ""))) return false;
  return /\p{Nd}/u.test(value) && /\p{L}/u.test(value);
}

function isLiteral(text: string, begin: number, start: number, value: string): boolean {
  if (NAME_OF_PROGRAM.test(value) && !isJumble(value)) return false;
  const lineStart = begin > 0 ? text.lastIndexOf("\n", begin - 1) + 1 : 0;
  const before = text.slice(Math.max(lineStart, begin - LINE_CHARS_MAX), start);
  const behind = text.slice(start + value.length, start + value.length + LINE_CHARS_MAX);
  if (BEHIND_ARGUMENT.test(behind) && BEFORE_ARGUMENT.test(before)) return true;
  const after = (behind.split("\n")[0] ?? "").trim();
  const last = after === "" || after.startsWith("#") ? BEFORE_LAST.exec(before) : null;
  if (last?.groups?.["spaced"] === undefined) return last !== null;
  return SECTION.test(text.slice(Math.max(0, begin - SECTION_CHARS_MAX), begin));
}

function isKeyBlock({ value }: Candidate): boolean {
  const [cut = "", whole] = value.split("-----BEGIN");
  const body = whole === undefined ? cut : (whole.split("-----")[1] ?? "");
  const line = /[A-Za-z0-9+/=]{24,}/.exec(body);
  return line !== null && entropyBits(line[0]) >= 3;
}

function isJwt({ value }: Candidate): boolean {
  if (EXAMPLE_JWT_PARTS.some((part) => value.includes(part))) return false;
  try {
    const head = Buffer.from(value.split(".")[0] ?? "", "base64url").toString("utf8");
    const header: unknown = JSON.parse(head);
    return typeof header === "object" && header !== null && ("alg" in header || "typ" in header);
  } catch {
    return false;
  }
}

/** Letters and digits as nobody writes words. */
function looksRandom(value: string): boolean {
  if (value.length < 12 || entropyBits(value) < 3) return false;
  const pieces = value.split(/[-_./:+=~]+/).filter((piece) => piece);
  const longest = pieces.reduce((best, piece) => (piece.length > best.length ? piece : best), "");
  if (longest.length >= 10) return isJumbled(longest);
  return pieces.filter(isJumbled).length >= Math.max(2, pieces.length - 1);
}

/** Kinds of letters change sooner than in a name. */
function isJumble(word: string): boolean {
  const pieces = word.split(/[-_./:+=~]+/);
  const longest = pieces.reduce((best, piece) => (piece.length > best.length ? piece : best), "");
  if (longest.length < 8 || /^(?:[0-9a-f]+|[0-9A-F]+)$/.test(longest)) return false;
  const words = longest.match(/[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+|[A-Z]/g)?.length ?? 0;
  const mixed = words > 4 || KINDS.slice(0, 3).every((kind) => kind.test(longest));
  return longest.length < words * (mixed ? 3.4 : 2.6);
}

function isJumbled(piece: string): boolean {
  const chars = [...piece];
  const digits = chars.filter((char) => DIGIT.test(char)).length;
  const letters = chars.filter((char) => LETTER.test(char)).length;
  const cases = pairs(chars).filter(
    ([a, b]) => LETTER.test(a) && LETTER.test(b) && isUpper(a) !== isUpper(b),
  ).length;
  if (digits > 0 && letters > 0) {
    const changes = pairs(chars).filter(([a, b]) => DIGIT.test(a) !== DIGIT.test(b)).length;
    return changes >= 3 || (changes >= 2 && cases >= 3);
  }
  return letters >= 16 && cases >= letters * 0.3;
}

function isUpper(char: string): boolean {
  return /^\p{Lu}$/u.test(char);
}

function entropyBits(value: string): number {
  const counts = new Map<string, number>();
  for (const char of value) counts.set(char, (counts.get(char) ?? 0) + 1);
  const size = [...value].length;
  return -[...counts.values()].reduce((sum, n) => sum + (n / size) * Math.log2(n / size), 0);
}

function pairs(chars: readonly string[]): [string, string][] {
  return chars.slice(1).map((char, place): [string, string] => [chars[place] ?? "", char]);
}
