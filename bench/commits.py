"""What the metadata database takes: commits of writers, of which all number themselves in turn, and
the look at the lake that each query begins with."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import sqlalchemy as sa

from penstock.backends.database import DatabaseLimits
from penstock.backends.database.engine import Database
from penstock.backends.database.migrations import upgrade
from penstock.backends.eventlog.log import OffsetBounds
from penstock.lake import commits
from penstock.lake.catalog import announce_files, current
from penstock.lake.commits import (
    CoveredSegment,
    LedgerCounts,
    LedgerKey,
    LogShape,
    PartitionAdvance,
    agree_on_shape,
    claim_partition,
)
from penstock.lake.segments import SegmentFile
from penstock.lake.tables import segment
from tests.support.servers.postgres import PostgresServer

_LEASE_SECONDS = 600
_COMMITS_EACH = 200
_EVENTS = 50_000
#: What a filter of the sessions of such a segment takes.
_FILTER_BYTES = 4_000


def commits_per_second(postgres: PostgresServer, writers: int) -> float:
    """Writers that do nothing but commit, each on a partition of its own."""
    with postgres.database() as url:
        database = Database(url, DatabaseLimits(connections_max=writers))
        upgrade(database)
        log = agree_on_shape(database, "bench", writers)
        together = threading.Barrier(writers + 1)

        def work(partition: int) -> None:
            claim = claim_partition(
                database,
                partition,
                f"writer-{partition}",
                log=log,
                bounds=OffsetBounds(0, 0),
                expires=True,
                lease_s=_LEASE_SECONDS,
                sure=True,
            )
            assert claim is not None
            together.wait()
            for number in range(_COMMITS_EACH):
                name = f"events/{partition}-{number}.parquet"
                announce_files(database, [name], partition, claim.owner, claim.epoch)
                change = _change(name, number + 1)
                claim = commits.advance(database, claim, change, lease_s=_LEASE_SECONDS)

        with ThreadPoolExecutor(writers) as threads:
            running = [threads.submit(work, partition) for partition in range(writers)]
            together.wait()
            started = time.perf_counter()
            for one in running:
                one.result()
            seconds = time.perf_counter() - started
        database.close()
    return writers * _COMMITS_EACH / seconds


def seconds_to_pin(postgres: PostgresServer, segments: int) -> float:
    """What a query spends to learn which segments are the lake, of so many."""
    with postgres.database() as url:
        database = Database(url, DatabaseLimits())
        upgrade(database)
        log = agree_on_shape(database, "bench", 1)
        rows = [_row(number, log) for number in range(segments)]
        with database.write() as connection:
            commits.next_snap(connection, commits.INGEST)
            connection.execute(sa.insert(segment), rows)
        current(database)
        started = time.perf_counter()
        found = current(database)
        seconds = time.perf_counter() - started
        assert len(found.segments) == segments
        database.close()
    return seconds


def _change(name: str, to_offset: int) -> PartitionAdvance:
    key = LedgerKey("default", "bench", 0)
    return PartitionAdvance(
        to_offset=to_offset,
        segments=[CoveredSegment(_file(name), to_offset - 1, to_offset)],
        ahead={},
        counts={key: LedgerCounts(accepted=_EVENTS, stored=_EVENTS)},
        consents={},
    )


def _file(name: str) -> SegmentFile:
    return SegmentFile(
        name=name,
        tenant="default",
        rows=_EVENTS,
        bytes=_EVENTS * 380,
        sha256="0" * 64,
        sessions_bytes=100_000,
        sessions_sha256="0" * 64,
        ts_min=0,
        ts_max=1,
        session_filter=bytes(_FILTER_BYTES),
    )


def _row(number: int, log: LogShape) -> dict[str, object]:
    return vars(_file(f"events/{number}.parquet")) | {
        "added_snap": 1,
        "kind": commits.INGEST,
        "partition": 0,
        "log_id": log.log_id,
        "log_partitions": log.partitions,
        "from_offset": number,
        "to_offset": number + 1,
    }
