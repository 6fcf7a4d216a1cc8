"""A large lake, made fast: rows come from a query engine, not over HTTP."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pyarrow as pa

from penstock.core.settings import load_settings
from penstock.lake import commits
from penstock.lake.catalog import announce_files
from penstock.lake.commits import (
    CoveredSegment,
    LedgerCounts,
    LedgerKey,
    PartitionAdvance,
    PartitionClaim,
    agree_on_shape,
    claim_partition,
    release_claim,
)
from penstock.lake.lake import Lake, open_or_make
from penstock.lake.rows import EVENT_ROWS, ROW_GROUPS
from penstock.lake.segments import SegmentWriter, new_name, write_summaries

_EVENTS_PER_SESSION = 50
_SEGMENT_EVENTS = 500_000
_LEASE_SECONDS = 600
#: A segment of this size spans hours, and a session may run over into the next one: each session
#: of the lake lies in two.
_SPREAD = 2
#: A session begins so long after the one before it, and a segment's events later than the last's.
_SESSION_SECONDS = 20
_SEGMENT_SECONDS = 60
_ROWS = Path(__file__).with_name("large_lake.sql").read_text(encoding="utf-8")


@contextmanager
def large_lake(data: Path, events: int) -> Iterator[Lake]:
    """A lake with so many small events up to now, each session spread over several segments."""
    segments = events // _SEGMENT_EVENTS
    sessions = (segments - 1 + _SPREAD) * _SEGMENT_EVENTS // _EVENTS_PER_SESSION
    spans = timedelta(seconds=sessions * _SESSION_SECONDS + segments * _SEGMENT_SECONDS)
    begins = datetime.now(UTC) - spans
    with open_or_make(load_settings(data)) as lake:
        log = agree_on_shape(lake.database, lake.log.id, lake.log.partitions)
        claim = claim_partition(
            lake.database,
            0,
            uuid.uuid4().hex,
            log=log,
            bounds=lake.log.bounds(0),
            expires=lake.log.expires,
            lease_s=_LEASE_SECONDS,
            sure=True,
        )
        assert claim is not None
        for number in range(segments):
            rows = _rows(number, begins)
            claim = _store(lake, claim, rows)
        release_claim(lake.database, claim)
        yield lake


def _rows(number: int, begins: datetime) -> pa.Table:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        parameters = {
            "first_session": number * _SEGMENT_EVENTS // _EVENTS_PER_SESSION,
            "sessions": _SPREAD * _SEGMENT_EVENTS // _EVENTS_PER_SESSION,
            "events": _EVENTS_PER_SESSION // _SPREAD,
            "segment": number,
            "begins": begins,
            "session_s": _SESSION_SECONDS,
            "segment_s": _SEGMENT_SECONDS,
        }
        found = connection.sql(_ROWS, params=parameters).to_arrow_table()
    return found.cast(EVENT_ROWS)


def _store(lake: Lake, claim: PartitionClaim, rows: pa.Table) -> PartitionClaim:
    name = new_name("default", 0, "made")
    announce_files(lake.database, [name], 0, claim.owner, claim.epoch)
    writer = SegmentWriter(lake.store, name, "default", ROW_GROUPS)
    with writer:
        writer.write(rows)
    written = replace(writer.finished, **write_summaries(lake.store, name))
    key = LedgerKey("default", "made", 0)
    change = PartitionAdvance(
        to_offset=claim.next_offset,
        segments=[CoveredSegment(written, claim.next_offset, claim.next_offset)],
        ahead={},
        counts={key: LedgerCounts(accepted=rows.num_rows, stored=rows.num_rows)},
        consents={},
    )
    return commits.advance(lake.database, claim, change, lease_s=_LEASE_SECONDS)
