"""Lives: what is known of the files of a chain, from all of its sessions together.

A compaction goes on with the same files in another session, and a subagent works in them too. So
what became of an edit is often seen only there. An edit stays the edit of its session, by the name
and in the turn that it has there.

A fork or a resumed session begins with what its parent holds. What is in both counts once, in the
parent. Turns keep the numbers that they have in the view `turns`.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock_jobs.rewards.rows import query_rows, row_tuples
from penstock_jobs.rewards.texts.trail import Row

_RowsOfSessions = Mapping[str, Sequence[Row]]


class ChainMember(NamedTuple):
    """A session's place in a chain, which is named by the session that it began with."""

    chain: str
    subagent: bool = False


class SessionRows(NamedTuple):
    edits: _RowsOfSessions
    looks: _RowsOfSessions
    events: _RowsOfSessions
    turns: _RowsOfSessions


@dataclass(frozen=True)
class Life:
    edits: Sequence[Row]
    looks: Sequence[Row]
    commits: Sequence[Row]
    turns_us: Sequence[int]
    ends: Sequence[Row]
    #: Session → when its latest turn began, of those that are no subagents.
    latest_us: Mapping[str, int]

    def ended_us(self, as_of_us: int) -> int | None:
        """When it was over: at the latest end of a session, unless one that has no end went on."""
        ends = {row["session_id"]: row["ts"] for row in self.ends if row["ts"] <= as_of_us}
        last = max((row["ts"] for row in self.ends if row["ts"] <= as_of_us), default=None)
        open_us = [ts for session, ts in self.latest_us.items() if session not in ends]
        return None if last is None or any(ts > last for ts in open_us) else last


def lives(rows: SessionRows, chains: Mapping[str, ChainMember]) -> Iterator[Life]:
    """Of each chain in which there is an edit; a session that is in none is one by itself."""
    members: dict[str, list[str]] = {}
    for session in sorted({session for table in rows for session in table}):
        chain = chains[session].chain if session in chains else session
        members.setdefault(chain, []).append(session)
    for chain, sessions in members.items():
        if any(session in rows.edits for session in sessions):
            yield _life(rows, chain, sessions, chains)


def _life(
    rows: SessionRows, chain: str, sessions: Sequence[str], chains: Mapping[str, ChainMember]
) -> Life:
    of_user = [s for s in sessions if s not in chains or not chains[s].subagent] or sessions
    starts = {session: _turn_starts(rows.turns.get(session, ())) for session in sessions}
    events = [row for session in sessions for row in rows.events.get(session, ())]
    commits = ((row, _files_of(row)) for row in events if row["type"] == "vcs_commit")
    return Life(
        edits=[
            {**edit, "turn": _turn_at(starts[session], edit["ts"])}
            for session in sessions
            for edit in rows.edits.get(session, ())
        ],
        looks=[look for session in sessions for look in rows.looks.get(session, ())],
        commits=[{**row, "files": files} for row, files in commits if files],
        # What a session does before its first message goes on with the turn of the one before.
        turns_us=sorted(
            ts
            for session in of_user
            for ts, turn in starts[session]
            if turn or session in (chain, of_user[0])
        ),
        ends=[row for row in events if row["type"] == "session_end"],
        latest_us={session: starts[session][-1][0] for session in of_user if starts[session]},
    )


def _turn_starts(turns: Sequence[Row]) -> list[tuple[int, int]]:
    """When each turn began, and its number; 0 is what precedes the first message."""
    return sorted((row["ts"], row["turn"]) for row in turns)


def _turn_at(starts: Sequence[tuple[int, int]], ts: int) -> int:
    at = bisect_right(starts, ts, key=lambda start: start[0])
    return starts[at - 1][1] if at else 0


def _files_of(commit: Mapping[str, Any]) -> list[Any]:
    try:
        files = msgspec.json.decode(commit["payload"]).get("files")
    except (msgspec.DecodeError, AttributeError):
        return []
    return files if isinstance(files, list) else []


_COMPARED = ["session_id", "ts", "seq", "type", "source", "source_key", "event_id", "payload"]


class Parent(NamedTuple):
    session: str
    #: The other one repeats it: a fork or a resume.
    repeated: bool


@dataclass(frozen=True)
class Relations:
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
