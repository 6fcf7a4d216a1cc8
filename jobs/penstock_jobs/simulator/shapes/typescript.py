"""The shapes of TypeScript."""

from penstock_jobs.simulator.grammar import lines, shapes
from penstock_jobs.simulator.shapes.code_words import CODE_WORDS

TYPESCRIPT = {
    **CODE_WORDS,
    "head": shapes("""
import { <func>, <func2> } from "../<module>/<word>";
import type { <type>, <type2> } from "./types";

const <key>Limit = <num>;
---
import { useEffect, useMemo, useState } from "react";

import { <func> } from "@/<module>";
import { <type> } from "@/<module2>/<word>";
---
// <doc>.
import { z } from "zod";

import { <type> } from "../<word>";
import { <func>, <func2>, <func3> } from "../<module>/<key>";
"""),
    "open": shapes("""
export function <func>(<name>: <type>, <name2>: string, <key> = <num>): <type2> {
---
/** <doc>. */
export async function <func>(<name>: <type>[], <key>?: number): Promise<<type2>> {
---
export const <func> = (<name>: Readonly<<type>>, { <key>, <word> }: <type2>) => {
---
function <func>(<name>: Map<string, <type>>, <name2>: <type2> | null): boolean {
  // <note>
"""),
    "expr": lines("""
<name>
<name>.<key>
<name>?.<key>.<word>
<name>[<num>]
<func>(<name>)
<func>(<name>.<key>, <num>)
"<key>-<word>"
<num>
<name>.<key> - <num>
!<name>.<key>
Number(<name>.<key>)
Math.min(<name>, <num>)
`${<name>.<key>}:<word>`
<name> ?? <name2>
{ <key>: <name>, <word>: <num> }
[<name>, <name2>.<key>]
<name> as <type>
<name> ? <num> : <name2>.<key>
<name>.map((<key>) => <key>.<word>)
"""),
    "step": shapes("""
  const <name> = <func>(<expr>, { <key>: <expr2> });
---
  if (!<name>.<key>) {
    throw new Error(`<word> ${<name2>} <complaint>`);
  }
---
  for (const [<key>, <word>] of Object.entries(<name>.<key2>)) {
    <name2>.set(<key>, <func>(<word>, <expr3>));
  }
---
  <name>.<key> = <name2>?.<key2> ?? <num>;
---
  const <name> = <name2>.filter((<word>) => <word>.<key> > <num>).map(<func>);
---
  const [<name>, set<type>] = useState<<type>>({ <key>: <num>, <word>: "<qualifier>" });
---
  useEffect(() => {
    const <key> = setTimeout(() => <func>(<name>), <expr3>);
    return () => clearTimeout(<key>);
  }, [<name>, <name2>]);
---
  // <note>
  await <func>(<name>.<key>, <name2>);
---
  try {
    <name>.<key> = await <func>(<expr>);
  } catch (error) {
    console.warn("<qualifier> <word> <complaint>", error);
    return <expr2>;
  }
---
  const { <key>, <key2>: <name> } = <func>(<expr>);
---
  const <name> = [...<name2>].sort((a, b) => a.<key> - b.<key> || a.<word>.localeCompare(b.<word>));
---
  switch (<name>.<key>) {
    case "<qualifier>":
      return <func>(<expr>);
    case "<qualifier2>":
      <name3>.<word> += <num>;
      break;
  }
---
  const response = await fetch(`<base>/<key>/${<name>.<word>}`, { method: "POST" });
---
  if (<name>.length > <num> || <name2> === "<qualifier>") return <func>(<name>);
---
  const <name> = useMemo(() => <func>(<expr>, <expr2>), [<name2>, <expr2>]);
---
  <name>.push({ ...<name2>, <key>: <func>(<expr2>), <word>: <num> });
---
  const <name> = <name2>.reduce((sum, <word>) => sum + <word>.<key> * <num>, 0);
---
  logger.debug("<word> <qualifier>", { <key>: <name>.<key>, <name2> });
---
  const <name>: Record<string, <type>> = Object.fromEntries(<func>(<expr>));
"""),
    "close": shapes("""
  return <expr>;
}

---
  return { <key>: <name>, <word>: <func>(<expr>) };
}

---
  return <func>(<name>, <name2>.<key>);
}

"""),
    "record": shapes("""
export interface <type> {
  <name>: string;
  <key>: <type2>;
  <name2>?: number;
  readonly <word>: "<qualifier>" | "<qualifier2>";
}

---
export const <name>Schema = z.object({
  <key>: z.string().max(<num>),
  <word>: z.number().int().min(<num2>),
  <name2>: z.enum(["<qualifier>", "<qualifier2>"]),
});

---
export class <type> {
  private <key> = new Map<string, <type2>>();

  <func>(<name>: string): <type2> | undefined {
    return this.<key>.get(<name>) ?? this.<func2>(<name>, <num>);
  }
}

"""),
}
