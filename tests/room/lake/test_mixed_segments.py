"""A lake of before tenants were apart: its segments hold several, until upkeep has written them
again."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

from penstock.ingest.ledger import read_ledger
from penstock.lake.catalog import create_snapshot, current
from penstock.lake.commits import INGEST, insert_segment, next_snap
from penstock.lake.merges import compact
from penstock.lake.rows import ROW_GROUPS, SORT_KEYS
from penstock.lake.segments import SegmentWriter
from penstock.lake.statements import Preparation
from penstock.lake.tables import segment
from penstock.lake.upkeep import collect
from penstock.lake.verification import verify
from tests.support.lakes import Event, HandLake, hand_lake, make_event

TENANTS = ["a", "b", "c"]
ROWS = "select session_id, event_id, received_at from events order by all"
SESSIONS = "select session_id, events from sessions order by all"


def make_mixed(lake: HandLake, file: str) -> None:
    """Put one segment of several tenants, as they were written before, in the place of all that
    belong to somebody."""
    apart = [stored for stored in current(lake.lake.database).segments if stored.tenant is not None]
    tables = []
    for stored in apart:
        with lake.lake.store.open(stored.name) as content:
            tables.append(pq.read_table(content))
    rows = pa.concat_tables(tables).sort_by(SORT_KEYS)
    name = f"events/p-0000/{file}.parquet"
    writer = SegmentWriter(lake.lake.store, name, None, ROW_GROUPS, lake.lake.summariser)
    with writer:
        writer.write(rows)
    with lake.lake.database.write() as connection:
        ids = segment.c.id.in_([stored.id for stored in apart])
        old = connection.execute(sa.select(segment).where(ids)).all()[0]
        connection.execute(sa.delete(segment).where(ids))
        snap = next_snap(connection, INGEST)
        origin = {"log_id": old.log_id, "from_offset": 0, "to_offset": 0, "log_partitions": 1}
        insert_segment(connection, writer.finished, snap, kind=INGEST, partition=0, **origin)
    for stored in apart:
        lake.lake.store.delete(stored.name)
        lake.lake.store.delete(stored.name.removesuffix(".parquet") + ".sessions.parquet")


def answers(lake: HandLake, as_of: str | None = None) -> list[list[Event]]:
    return [
        lake.rows(sql, as_of=as_of, tenant=tenant) for tenant in TENANTS for sql in (ROWS, SESSIONS)
    ]


@pytest.fixture
def paths(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that the connections of queries may open."""
    opened: list[str] = []
    apply = Preparation.apply

    def apply_and_note(preparation: Preparation, connection: object) -> None:
        opened.extend(preparation.paths)
        apply(preparation, connection)  # type: ignore[arg-type]

    monkeypatch.setattr(Preparation, "apply", apply_and_note)
    return opened


def test_a_query_can_open_no_file_of_another_tenant(tmp_path: Path, paths: list[str]) -> None:
    with hand_lake(tmp_path) as lake:
        for tenant in TENANTS:
            lake.store([make_event("s", 1)], tenant)
        lake.rows(ROWS, tenant="b")
        lake.rows(SESSIONS, tenant="b")
        lake.rows(ROWS, tenant="nobody")
        assert len(paths) == 2
        assert all("/events/t-b/p-0000/" in path for path in paths)


def test_a_lake_of_before_gives_the_same_rows_before_and_after_upkeep(
    tmp_path: Path, paths: list[str]
) -> None:
    with hand_lake(tmp_path, compaction_segments_min=2) as lake:
        for number in range(4):
            for tenant in TENANTS:
                lake.send([make_event(f"s{number}", number), make_event("s", number)], tenant)
            lake.store()
            make_mixed(lake, f"old-{number}")
        lake.store([make_event("s", 9)], "a")
        expected = answers(lake)
        assert [len(rows) for rows in expected] == [9, 5, 8, 5, 8, 5]
        create_snapshot(lake.lake.database, "old")
        assert sum(stored.tenant is None for stored in current(lake.lake.database).segments) == 4

        assert compact(lake.lake, lake.metrics)

        live = current(lake.lake.database).segments
        assert sorted(str(stored.tenant) for stored in live) == ["a", "a", "b", "c"]
        paths.clear()
        assert answers(lake) == expected
        assert not [path for path in paths if "/events/p-0000/" in path]
        assert answers(lake, "old") == expected
        collect(lake.lake, grace_s=0)
        assert answers(lake, "old") == expected
        assert verify(lake.lake).findings == []
        assert read_ledger(lake.lake).discrepancies == []


def test_a_file_that_holds_one_tenant_after_all_stays_as_it_is(tmp_path: Path) -> None:
    with hand_lake(tmp_path) as lake:
        lake.store([make_event("s", 1)], "a")
        make_mixed(lake, "old")
        [before] = current(lake.lake.database).segments
        assert before.tenant is None
        compact(lake.lake, lake.metrics)
        [after] = current(lake.lake.database).segments
        assert (after.tenant, after.name) == ("a", before.name)
