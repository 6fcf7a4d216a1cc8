"""What a segment is on disk: what readers count on, and what a kill or an outage cannot change."""

import hashlib
from itertools import chain, pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

from penstock.ingest import partition_writer
from penstock.lake.catalog import current
from penstock.lake.rows import EVENT_ROWS, SORTED_BY, RowGroupLimits
from penstock.lake.segments import SESSION_PARTS, sessions_name
from penstock.lake.tables import segment
from penstock.lake.upkeep import merges
from penstock.lake.upkeep.merges import merge
from penstock_jobs.simulator.production import Production
from tests.support.lakes import HandLake, hand_lake, make_event

GROUP_ROWS, GROUP_BYTES = 300, 200_000


@pytest.fixture(params=["flushed", "merged"])
def lake_with_one(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> HandLake:
    """A lake whose segment was written by a flush, or by a merge."""
    for module in (partition_writer, merges):
        monkeypatch.setattr(module, "ROW_GROUPS", RowGroupLimits(GROUP_ROWS, GROUP_BYTES))
    with hand_lake(tmp_path) as lake:
        events = [
            make_event(f"s{n % 50:02}", 3000 - n, payload={"text": "x" * (n % 997)})
            for n in range(2000)
        ]
        if request.param == "flushed":
            lake.store(events)
            lake.summarise()
        else:
            lake.store(events[:1500])
            lake.store(events[1500:])
            merge(lake.lake, current(lake.lake.database).segments)
        return lake


def files_of(lake: HandLake) -> tuple[pq.ParquetFile, pq.ParquetFile]:
    [one] = current(lake.lake.database).segments
    root = lake.lake.settings.data / "lake"
    return pq.ParquetFile(root / one.name), pq.ParquetFile(root / sessions_name(one.name))


def test_row_groups_stay_within_both_limits(lake_with_one: HandLake) -> None:
    file, _ = files_of(lake_with_one)
    with file:
        groups = [file.read_row_group(number) for number in range(file.num_row_groups)]
    assert sum(group.num_rows for group in groups) == 2000
    for group in groups:
        assert 1 <= group.num_rows <= GROUP_ROWS
        assert pc.sum(pc.binary_length(group["payload"])).as_py() <= GROUP_BYTES


def test_rows_are_in_the_order_that_the_file_declares(lake_with_one: HandLake) -> None:
    file, sessions = files_of(lake_with_one)
    with file, sessions:
        rows = file.read(columns=list(SORTED_BY)).to_pylist()
        keys = [tuple(row[name] for name in SORTED_BY) for row in rows]
        assert keys == sorted(keys)
        for number in range(file.num_row_groups):
            declared = file.metadata.row_group(number).sorting_columns
            names = [file.schema_arrow.names[one.column_index] for one in declared]
            assert tuple(names) == SORTED_BY
        parts = sessions.read(columns=["tenant", "session_id"]).to_pylist()
        assert all(tuple(a.values()) <= tuple(b.values()) for a, b in pairwise(parts))


def test_schema_statistics_page_index_and_compression_are_there(lake_with_one: HandLake) -> None:
    file, sessions = files_of(lake_with_one)
    with file, sessions:
        assert file.schema_arrow.equals(EVENT_ROWS)
        assert sessions.schema_arrow.equals(SESSION_PARTS)
        for number in range(file.num_row_groups):
            group = file.metadata.row_group(number)
            for place in range(group.num_columns):
                column = group.column(place)
                assert column.compression == "ZSTD"
                assert column.has_offset_index
                assert column.has_column_index
            session = group.column(EVENT_ROWS.get_field_index("session_id"))
            assert session.statistics.has_min_max


def test_the_database_knows_the_files_to_the_byte(lake_with_one: HandLake) -> None:
    root = lake_with_one.lake.settings.data / "lake"
    with lake_with_one.lake.database.read() as connection:
        live = sa.select(segment).where(segment.c.removed_snap.is_(None))
        one = connection.execute(live).one()
    content, parts = (root / one.name).read_bytes(), (root / sessions_name(one.name)).read_bytes()
    assert (one.bytes, one.sha256) == (len(content), hashlib.sha256(content).hexdigest())
    found = (one.sessions_bytes, one.sessions_sha256)
    assert found == (len(parts), hashlib.sha256(parts).hexdigest())
    table = pq.read_table(root / one.name)
    stamps = pc.min_max(table["ts"].cast(pa.int64())).as_py()
    assert (one.rows, one.ts_min, one.ts_max) == (2000, stamps["min"], stamps["max"])


def test_a_row_larger_than_a_group_is_a_group_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_writer, "ROW_GROUPS", RowGroupLimits(10_000, 1000))
    with hand_lake(tmp_path) as lake:
        sizes = [10, 5000, 10, 10, 5000]
        lake.store(
            [make_event("s", n, payload={"text": "x" * size}) for n, size in enumerate(sizes)]
        )
        lake.summarise()
        file, _ = files_of(lake)
        with file:
            rows = [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)]
    assert rows == [1, 1, 2, 1]


def test_production_like_events_take_no_more_room_than_plain_parquet(tmp_path: Path) -> None:
    """Within 15 % of the same rows as one zstd-3 file that is not a segment."""
    lived = chain.from_iterable(Production(3).sessions(150))
    lines = [line for one in lived for _, _, line in one.lines]
    with hand_lake(tmp_path / "lake") as lake:
        lake.store(b"\n".join(lines) + b"\n")
        lake.summarise()
        [one] = current(lake.lake.database).segments
        table = pq.read_table(tmp_path / "lake" / "lake" / one.name)
        own = sum((tmp_path / "lake" / "lake" / name).stat().st_size for name in lake.files())
    pq.write_table(table, tmp_path / "plain.parquet", compression="zstd", compression_level=3)
    assert own <= 1.15 * (tmp_path / "plain.parquet").stat().st_size
