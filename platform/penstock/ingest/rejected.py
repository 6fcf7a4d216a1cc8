"""Rejected lines: reading them, and sending them again."""

from collections import defaultdict
from dataclasses import dataclass

import sqlalchemy as sa

from penstock.clock import Clock
from penstock.database.engine import now_us
from penstock.errors import InvalidInput
from penstock.eventlog.settings import EventLogSettings
from penstock.events.validation import EventInvalid, validate_line
from penstock.ingest.gateway import Acceptor
from penstock.lake.commits import RejectedRow
from penstock.lake.lake import Lake
from penstock.lake.tables import rejected

_BATCH = 500


@dataclass(frozen=True, kw_only=True)
class RejectedEntry(RejectedRow):
    """A rejected line. `line` is its position in the request that brought it."""

    id: int
    replayed_at: int | None


@dataclass(frozen=True)
class ReplayOutcome:
    accepted: int
    #: id → why the line was rejected again.
    refused: dict[int, str]


def list_rejected(lake: Lake, limit: int, *, replayed: bool = False) -> list[RejectedEntry]:
    """The newest first; with `replayed` also those that were sent again meanwhile."""
    query = sa.select(rejected).order_by(rejected.c.id.desc()).limit(limit)
    if not replayed:
        query = query.where(rejected.c.replayed_at.is_(None))
    return _read(lake, query)


def read_rejected(lake: Lake, entry_id: int) -> RejectedEntry:
    """Raises InvalidInput."""
    entries = _read(lake, sa.select(rejected).where(rejected.c.id == entry_id))
    if not entries:
        raise InvalidInput(what=f"The rejected line {entry_id}", why="there is none")
    return entries[0]


def replay_rejected(lake: Lake, clock: Clock, ids: list[int] | None = None) -> ReplayOutcome:
    """Validate these lines again, or all that were not replayed yet, and append those that are
    accepted now. After a kill it may be run again: a line that is appended twice is one event.
    Raises InvalidInput for an unknown id."""
    for entry_id in ids or ():
        read_rejected(lake, entry_id)
    query = sa.select(rejected).where(rejected.c.replayed_at.is_(None))
    if ids:
        query = query.where(rejected.c.id.in_(ids))
    query = query.order_by(rejected.c.id).limit(_BATCH)
    refused: dict[int, str] = {}
    accepted = after = 0
    while entries := _read(lake, query.where(rejected.c.id > after)):
        after = entries[-1].id
        values: defaultdict[int, list[bytes]] = defaultdict(list)
        done = []
        for entry in entries:
            try:
                _accept_again(lake, clock, entry, values)
            except EventInvalid as error:
                refused[entry.id] = str(error)
            else:
                done.append(entry.id)
        if done:
            lake.log.append(values)
            sent_again = sa.update(rejected).where(rejected.c.id.in_(done))
            with lake.database.write() as connection:
                connection.execute(sent_again.values(replayed_at=now_us()))
            accepted += len(done)
    return ReplayOutcome(accepted, refused)


def _accept_again(
    lake: Lake, clock: Clock, entry: RejectedEntry, values: defaultdict[int, list[bytes]]
) -> None:
    if entry.truncated:
        raise EventInvalid("only its beginning was kept")
    validate_line(entry.raw, lake.settings.room(EventLogSettings).event_bytes_max)
    acceptor = Acceptor.of(entry.tenant, lake.settings, lake.log)
    for piece in acceptor.accept(entry.raw, clock.now_us()):
        for partition, of_partition in piece.values.items():
            values[partition] += of_partition


def _read(lake: Lake, query: sa.Select[tuple[object, ...]]) -> list[RejectedEntry]:
    with lake.database.read() as connection:
        return [RejectedEntry(**row._mapping) for row in connection.execute(query)]
