"""Lives: what is known of the files of a chain, from all of its sessions together.

A compaction goes on with the same files in another session, and a subagent works in them too. So
what became of an edit is often seen only there. An edit stays the edit of its session, by the name
and in the turn that it has there.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from penstock_jobs.rewards.texts.trail import Row

_RowsOfSessions = Mapping[str, Sequence[Row]]


class ChainMember(NamedTuple):
    """A session's place in a chain, which is named by the session that it began with."""

    chain: str
    subagent: bool = False


class SessionRows(NamedTuple):
    """Rows of views by session. Times are in microseconds."""

    edits: _RowsOfSessions
    looks: _RowsOfSessions
    #: Commits and the ends of sessions.
    events: _RowsOfSessions
    turns: _RowsOfSessions


@dataclass(frozen=True)
class Life:
    """Each edit has the number of its turn."""

    edits: Sequence[Row]
    looks: Sequence[Row]
    commits: Sequence[Row]
    #: When the user's turns began.
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
    """When each turn began, and its number. Turn 0 is there only if something precedes the first
    message."""
    return sorted((row["ts"], row["turn"]) for row in turns)


def _turn_at(starts: Sequence[tuple[int, int]], ts: int) -> int:
    at = bisect_right(starts, ts, key=lambda start: start[0])
    return starts[at - 1][1] if at else 0


def _files_of(commit: Mapping[str, Any]) -> list[Any]:
    """The list is empty for a commit that carries no texts."""
    try:
        files = msgspec.json.decode(commit["payload"]).get("files")
    except (msgspec.DecodeError, AttributeError):
        return []
    return files if isinstance(files, list) else []
