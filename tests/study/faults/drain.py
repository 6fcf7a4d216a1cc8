"""The writers take all that is in the log, with nobody's help; and where they do not, what waits,
who claims it, and what each writer does."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from penstock.database.engine import clock_us
from penstock.eventlog.kafka.log import KafkaEventLog
from penstock.ingest.ledger import read_ledger
from penstock.lake.lake import Lake
from penstock.lake.tables import log_partition, writer
from tests.study.faults.serving import Serving

#: For so long no event may be stored, nor found to be a repeated one: a busy machine is slow, but
#: not still. That offsets move says nothing: writers may send events to each other for ever.
_STILL_SECONDS_MAX = 120.0
_LOOK_SECONDS = 0.2
#: A wait worth a line of the report.
_SLOW_SECONDS = 10.0


@dataclass(frozen=True)
class PartitionState:
    """How far the lake covers a partition, and who may move it on."""

    partition: int
    end: int
    covered: int | None
    owner: str | None
    epoch: int
    #: Of the owner's claim; negative once it has run out.
    lease_left_s: float

    def __str__(self) -> str:
        whose = "nobody's"
        if self.owner is not None:
            whose = f"claimed by {self.owner} for {self.lease_left_s:.1f} s more"
        where = f"partition {self.partition}: {self.covered} of {self.end}"
        return f"{where}, {whose} (epoch {self.epoch})"


def drained(lake: Lake, writers: Sequence[Serving], tell: Callable[[str], None]) -> None:
    """Returns when nothing waits. Raises AssertionError when nothing is stored any more."""
    moved_s = told_s = time.monotonic()
    settled_before = -1
    while True:
        rows = read_ledger(lake).rows
        waiting = sum(row.waiting for row in rows)
        if not waiting:
            return
        now_s, settled = time.monotonic(), sum(row.stored + row.duplicate for row in rows)
        if settled != settled_before:
            settled_before, moved_s = settled, now_s
        if now_s - told_s >= _SLOW_SECONDS:
            told_s = now_s
            states = "; ".join(map(str, partition_states(lake, writers)))
            tell(f"{waiting} events wait, {settled} are settled: {states}")
        if now_s - moved_s >= _STILL_SECONDS_MAX:
            raise AssertionError(_account(lake, writers, waiting))
        time.sleep(_LOOK_SECONDS)


def partition_states(lake: Lake, writers: Sequence[Serving]) -> list[PartitionState]:
    assert isinstance(lake.log, KafkaEventLog)
    ends = lake.log.ends()
    names = {one.owner(): one.name for one in writers}
    with lake.database.read() as connection:
        now_us = clock_us(connection)
        rows = {row.partition: row for row in connection.execute(sa.select(log_partition))}
    states = []
    for partition, end in enumerate(ends):
        row = rows.get(partition)
        if row is None:
            states.append(PartitionState(partition, end, None, None, 0, 0.0))
            continue
        left_s = (row.lease_until - now_us) / 1_000_000
        of_this_log = row.next_offset if row.log_id == lake.log.id else None
        states.append(
            PartitionState(
                partition, end, of_this_log, names.get(row.owner, row.owner), row.epoch, left_s
            )
        )
    return states


def _account(lake: Lake, writers: Sequence[Serving], waiting: int) -> str:
    with lake.database.read() as connection:
        now_us = clock_us(connection)
        known = [
            f"{row.owner} for {(row.until - now_us) / 1_000_000:.1f} s more"
            for row in connection.execute(sa.select(writer))
        ]
    lines = [f"{waiting} events wait, and for {_STILL_SECONDS_MAX:g} s none was stored"]
    lines += map(str, partition_states(lake, writers))
    lines += [f"writers announced: {', '.join(known) or 'none'}"]
    for one in writers:
        problems = "; ".join(one.problems()) or "no problem"
        lines += [f"{one.name} (owner {one.owner()}): {problems}", one.stacks()]
    return "\n".join(lines)
