"""Lines that were refused: looking at them, and sending them again."""

from collections.abc import Iterator
from dataclasses import dataclass

import sqlalchemy as sa

from penstock.clock import Clock
from penstock.database.engine import now_us
from penstock.errors import InvalidInput
from penstock.eventlog.settings import EventLogSettings
from penstock.events.reading import Refusal, judge_line
from penstock.ingest.acceptance import Acceptor
from penstock.lake.lake import Lake
from penstock.lake.tables import rejected

_BATCH = 500


@dataclass(frozen=True)
class RejectedEntry:
    """A refused line. `line` is its place in the request that brought it."""

    id: int
    tenant: str
    source: str
    received_at: int
    line: int
    reason: str
    raw: bytes
    truncated: bool
    replayed_at: int | None


@dataclass(frozen=True)
class Replay:
    """What came of sending refused lines again."""

    accepted: int
    #: id → why it was refused again.
    refused: dict[int, str]


def list_rejected(lake: Lake, limit: int, *, replayed: bool = False) -> list[RejectedEntry]:
    """The newest first; those sent again meanwhile only when asked for."""
    query = sa.select(rejected).order_by(rejected.c.id.desc()).limit(limit)
    if not replayed:
        query = query.where(rejected.c.replayed_at.is_(None))
    with lake.database.read() as connection:
        return [RejectedEntry(**row._mapping) for row in connection.execute(query)]


def show_rejected(lake: Lake, entry_id: int) -> RejectedEntry:
    query = sa.select(rejected).where(rejected.c.id == entry_id)
    with lake.database.read() as connection:
        row = connection.execute(query).one_or_none()
    if row is None:
        raise InvalidInput(what=f"The rejected line {entry_id}", why="there is none")
    return RejectedEntry(**row._mapping)


def replay(lake: Lake, clock: Clock, ids: list[int] | None = None) -> Replay:
    """Judge these lines, or all that wait, again and put what is accepted now into the log.
    Killed in between, it may be run again: a line that was taken twice is one event. Raises
    InvalidInput for a line that there never was."""
    for entry_id in ids or ():
        show_rejected(lake, entry_id)
    outcome = Replay(0, {})
    accepted = 0
    for entries in _waiting(lake, ids):
        values: dict[int, list[bytes]] = {}
        done = []
        for entry in entries:
            try:
                _replay_one(lake, clock, entry, values)
            except Refusal as refusal:
                outcome.refused[entry.id] = str(refusal)
            else:
                done.append(entry.id)
        if done:
            lake.log.append(values)
            with lake.database.write() as connection:
                connection.execute(
                    sa.update(rejected).where(rejected.c.id.in_(done)).values(replayed_at=now_us())
                )
            accepted += len(done)
    return Replay(accepted, outcome.refused)


def _replay_one(
    lake: Lake, clock: Clock, entry: RejectedEntry, values: dict[int, list[bytes]]
) -> None:
    if entry.truncated:
        raise Refusal("only its beginning was kept")
    judge_line(entry.raw, lake.settings.room(EventLogSettings).event_bytes_max)
    acceptor = Acceptor.of(entry.tenant, lake.settings, lake.log)
    for piece in acceptor.accept(entry.raw, clock.now_us()):
        for partition, some in piece.values.items():
            values.setdefault(partition, []).extend(some)


def _waiting(lake: Lake, ids: list[int] | None) -> Iterator[list[RejectedEntry]]:
    after = 0
    while True:
        query = (
            sa.select(rejected)
            .where(rejected.c.replayed_at.is_(None), rejected.c.id > after)
            .order_by(rejected.c.id)
            .limit(_BATCH)
        )
        if ids:
            query = query.where(rejected.c.id.in_(ids))
        with lake.database.read() as connection:
            entries = [RejectedEntry(**row._mapping) for row in connection.execute(query)]
        if not entries:
            return
        yield entries
        after = entries[-1].id
