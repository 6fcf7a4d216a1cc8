"""The shapes of Python; what they give always parses."""

from penstock_jobs.simulator.grammar import lines, shapes
from penstock_jobs.simulator.shapes.code_words import CODE_WORDS

PYTHON = {
    **CODE_WORDS,
    "head": shapes('''
"""<doc>."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from app.<module> import <func>, <func2>
from app.<module2>.<word> import <type>

logger = logging.getLogger(__name__)
---
from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

from <module>.<word> import <type>, <type2>
from <module2> import <func>

<key>_limit = <num>
---
"""<doc>.

<doc2>.
"""

import asyncio
import json

from .<module> import <type>
from .<word> import <func>, <func2>, <func3>
'''),
    "open": shapes('''
def <func>(<name>: <type>, <name2>: str, *, <key>: int = <num>) -> <type2>:
    """<doc>."""
---
def <func>(<name>: list[<type>], <key>: dict[str, int] | None = None) -> <type>:
---
async def <func>(<name>: <type>, <name2>: <type2>) -> None:
    """<doc>.

    <doc2>; see `<func2>`.
    """
---
@<module>.register("<key>.<word>")
def <func>(<name>: <type>, **<key>: Any) -> <type2> | None:
---
def _<func>(<name>: Iterable[<type>], <name2>: float = <num>) -> list[<type2>]:
    """<doc>."""
'''),
    "expr": lines("""
<name>
<name>.<key>
<name>.<key>.<word>
<name>[<num>]
<name>["<key>"]
<func>(<name>)
<func>(<name>.<key>, <num>)
len(<name>.<key>)
"<key>_<word>"
<num>
<name> - <num>
<num> * <name>.<key>
not <name>.<key>
min(<name>, <name2>)
<name>.get("<key>", <num>)
<name>.<key> or <name2>
str(<name>.<word>)
<type>.<word>(<name>)
[<name>, <name2>.<key>]
"<qualifier> <key>: %s" % <name>
<name> if <name2>.<key> else <num>
"""),
    "step": shapes("""
    <name> = <func>(<expr>, <key>=<expr2>)
---
    if <name> is None:
        raise <error>(f"<word> {<name2>} <complaint>")
---
    for <key>, <name> in enumerate(<name2>.<key2>):
        <name3>[<key>] = <func>(<name>, <expr3>)
---
    <name>.<key> = <expr> or <num>
---
    logger.info("<word> <key>=%s <qualifier>", <name>.<key>)
---
    # <note>
    <name> = [<word> for <word> in <name2> if <word>.<key> > <num>]
---
    try:
        <name> = <func>(<expr>)
    except <error>:
        logger.warning("<qualifier> <word> <complaint>", exc_info=True)
        <name> = None
---
    with <func>(<name>) as <key>:
        <key>.<word>(<expr>, timeout=<num>)
---
    if <name>.<key> < <num> and not <name2>:
        return <func>(<name>)
---
    <name> = {<key>.<word>: <key> for <key> in <func>(<expr>)}
---
    <name> = sorted(<expr>, key=lambda <word>: (<word>.<key>, <word>.<key2>))
---
    while <name> and <name2>.<key> != "<qualifier>":
        <name> = <name>.<word>
        <key> = <func>(<name>)
---
    <name> = max(<num>, min(<name2>.<key>, <num2>))
---
    total = sum(<word>.<key> * <num> for <word> in <name> if <word>.<key2> == "<qualifier>")
---
    <name> = <type>(
        <key>=<name2>.<key>,
        <word>=<func>(<expr2>),
        <key2>="<qualifier>",
    )
---
    if "<qualifier>" in <name>.<key>:
        <name2>.append(<func>(<name>, <key2>=<num>))
    else:
        <name2>.extend(<name>.<word>)
---
    assert <name>.<key> <= <num>, "<word> <complaint>"
---
    <name>, <name2> = <func>(<key>=<num>), <func2>(<expr2>)
---
    <name>.setdefault("<key>", []).append(<expr>)
---
    cursor.execute("select <key>, <word> from <table> where <key2> = ?", (<name>,))
---
    # <note>
    <func>(<name>.<key>, <name2>)
---
    <name> = Decimal(str(<name2>.<key>)) / <num>
---
    if not isinstance(<name>, <type>):
        raise TypeError(f"expected <type>, got {type(<name>).__name__}")
"""),
    "close": shapes("""
    return <expr>

---
    return <func>(<name>, <name2>)

---
    <name>.<key>.flush()
    return None

---
    return {"<key>": <name>, "<key2>": <name2>.<word>}

---
    return <type>(<name>, <key>=<num>)

"""),
    "record": shapes('''
@dataclass(frozen=True, slots=True)
class <type>:
    """<doc>."""

    <name>: str
    <key>: <type2>
    <name2>: int = <num>
    <word>: str = "<qualifier>"

    def <func>(self) -> bool:
        return self.<name2> > <num2> and self.<word> != "<qualifier2>"

---
class <type>(Exception):
    """<doc>."""

    def __init__(self, <name>: str, <key>: int = <num>) -> None:
        super().__init__(f"<word> {<name>} <complaint>")
        self.<key> = <key>

---
<key>_by_<word> = {
    "<qualifier>": <num>,
    "<key2>": <num2>,
    "<word2>": <num3>,
}

'''),
}
