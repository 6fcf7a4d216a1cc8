"""What a session has of its own: its events without those that it repeats of its parent.

A fork or a resumed session begins with what its parent holds. What is in both counts once, where
it happened: in the parent. Turns keep the numbers that they have in the view `turns`.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock_jobs.rewards.lives import ChainMember
from penstock_jobs.rewards.rows import query_rows, row_tuples

_COMPARED = ["session_id", "ts", "seq", "type", "source", "source_key", "event_id", "payload"]


class Parent(NamedTuple):
    """The session that another one names when it starts."""

    session: str
    #: The other one repeats it: a fork or a resume.
    repeated: bool


@dataclass(frozen=True)
class Relations:
    """How sessions of one tenant hang together."""

    #: The places of sessions that are in a chain with others.
    chains: Mapping[str, ChainMember] = field(default_factory=dict)
    #: No session is its own ancestor.
    parents: Mapping[str, Parent] = field(default_factory=dict)
    #: Sessions that are there only because others repeat them.
    beside: frozenset[str] = frozenset()


class OwnEvents(NamedTuple):
    rows: pa.Table
    #: Session → the numbers of its turns: of what comes before its first own message, and of each
    #: own message. Only for sessions that repeat something.
    turns: Mapping[str, Sequence[int]]


def own_events(rows: pa.Table, relations: Relations) -> OwnEvents:
    """Of these whole sessions, in the order of `read_bucket`, the events that are their own."""
    held = set(rows["session_id"].unique().to_pylist())
    links = [
        (session, *parent)
        for session, parent in sorted(relations.parents.items())
        if session in held and parent.session in held and session not in relations.beside
    ]
    turns: dict[str, list[int]] = {}
    if links:
        copied = np.zeros(rows.num_rows, bool)
        copied[_copies(rows, links)] = True
        if copied.any():
            turns = _turn_numbers(rows, copied)
            rows = rows.filter(pa.array(~copied))
    if relations.beside:
        beside = pa.array(sorted(relations.beside), pa.string())
        rows = rows.filter(pc.invert(pc.is_in(rows["session_id"], beside)))
    return OwnEvents(rows, turns)


def _copies(rows: pa.Table, links: Sequence[tuple[str, str, bool]]) -> list[int]:
    names = ("session_id", "parent_session", "repeats")
    linked = pa.table(dict(zip(names, zip(*links, strict=True), strict=True)))
    ids = pa.concat_arrays([linked[name].combine_chunks() for name in names[:2]])
    at = np.flatnonzero(pc.is_in(rows["session_id"], ids).to_numpy(zero_copy_only=False))
    told = rows.select(_COMPARED).take(at).append_column("number", pa.array(at))
    copied = query_rows("copies.sql", {"told": told, "links": linked})
    return [row["number"] for row in copied]


def _turn_numbers(rows: pa.Table, copied: NDArray[np.bool_]) -> dict[str, list[int]]:
    repeating = pc.unique(rows["session_id"].filter(pa.array(copied)))
    at = np.flatnonzero(pc.is_in(rows["session_id"], repeating).to_numpy(zero_copy_only=False))
    begun: defaultdict[str, int] = defaultdict(int)
    numbers: dict[str, list[int]] = {session: [0] for session in repeating.to_pylist()}
    kinds = row_tuples(rows.take(at), "session_id", "type")
    for (session, kind), is_copy in zip(kinds, copied[at].tolist(), strict=True):
        begun[session] += kind == "user_message"
        own = numbers[session]
        if kind == "user_message" and not is_copy:
            own.append(begun[session])
        elif not is_copy and len(own) == 1:
            own[0] = begun[session]
    return numbers
