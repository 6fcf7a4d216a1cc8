"""Sorted segments become one sorted stream, in memory that does not grow with them."""

import random
import subprocess
import sys
import textwrap
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.backends.storage.object_store import FileStore
from penstock.lake.commits import insert_segment, next_snap
from penstock.lake.rows import EVENT_ROWS, SORTED_BY, RowGroupLimits, cut, payload_sizes
from penstock.lake.segments import SegmentWriter, new_name
from penstock.lake.upkeep.sorted_merge import in_row_groups, merge_sorted
from tests.support.lakes import hand_lake

ORDER = [(name, "ascending") for name in SORTED_BY]
rows_of_a_segment = st.lists(
    st.tuples(
        st.just("a"),
        st.sampled_from(["s1", "s2", "é", "\U0001f600", "￿"]),
        st.integers(0, 3),
        st.none() | st.integers(0, 2),
        st.integers(0, 3000),
    ),
    min_size=1,
    max_size=40,
)


Row = tuple[str, str, int, int | None, int]


def table_of(rows: list[Row], segment: int) -> pa.Table:
    """Sorted, with ids that tell in which order equal rows stood."""
    common = {"type": "user_message", "consent": "unknown", "schema_version": 1, "received_at": 0}
    names = ("tenant", "session_id", "ts", "seq")
    fields = [
        {**common, **dict(zip(names, place, strict=True)), "payload": "x" * size, "key": bytes(16)}
        for *place, size in rows
    ]
    table = pa.Table.from_pylist(fields, schema=EVENT_ROWS)
    table = table.take(pc.sort_indices(table, sort_keys=ORDER))
    ids = pa.array([f"{segment}-{n}" for n in range(len(rows))], pa.string())
    return table.set_column(5, EVENT_ROWS.field("event_id"), ids)


def write(store: FileStore, table: pa.Table, limits: RowGroupLimits) -> str:
    name = new_name("a", 0, "test")
    with SegmentWriter(store, name, "a", limits) as writer:
        writer.write(table)
    return name


@settings(max_examples=40)
@given(st.lists(rows_of_a_segment, min_size=1, max_size=6), st.sampled_from([1, 3000, 1 << 20]))
def test_a_merge_is_a_stable_sort_however_little_is_read_ahead(
    tmp_path_factory: pytest.TempPathFactory, segments: list[list[Row]], bytes_ahead: int
) -> None:
    directory = tmp_path_factory.mktemp("merge")
    store = FileStore(directory / "store")
    tables = [table_of(rows, number) for number, rows in enumerate(segments)]
    names = [write(store, one, RowGroupLimits(7, 5000)) for one in tables]
    merged = pa.concat_tables(
        merge_sorted(store, names, bytes_ahead=bytes_ahead, directory=directory / "tmp")
    )
    whole = pa.concat_tables(tables)
    assert merged.equals(whole.take(pc.sort_indices(whole, sort_keys=ORDER)))
    assert list((directory / "tmp").iterdir()) == []


@given(
    st.lists(st.lists(st.integers(0, 50), max_size=20), max_size=10),
    st.builds(RowGroupLimits, st.integers(1, 9), st.integers(1, 100)),
)
def test_row_groups_are_full_whatever_they_come_in(
    pieces: list[list[int]], limits: RowGroupLimits
) -> None:
    tables = [
        table_of([("a", "s", 0, 0, size) for size in sizes], n) for n, sizes in enumerate(pieces)
    ]
    groups = list(in_row_groups(tables, limits))
    sizes = [size for piece in pieces for size in piece]
    assert [payload_sizes(one) for one in groups] == [sizes[a:b] for a, b in cut(sizes, limits)]
    assert all(one["payload"].num_chunks == 1 for one in groups)


#: In bytes: some times what is read ahead, and a few row groups. Seen were 12 to 14 MB.
PEAK_MAX = 24 << 20
MERGE = """
    import sys
    from pathlib import Path
    import pyarrow as pa
    from penstock.lake.catalog import current
    from penstock.lake.upkeep import merges as merging
    from penstock.lake.rows import RowGroupLimits
    from tests.support.lakes import hand_lake
    merging.ROW_GROUPS = RowGroupLimits(10_000, 1 << 20)
    with hand_lake(Path(sys.argv[1]), compaction_memory_bytes_max=64 << 20) as lake:
        before = pa.default_memory_pool().max_memory()
        merged = merging.merge(lake.lake, current(lake.lake.database).segments)
        print(merged.rows, pa.default_memory_pool().max_memory() - before)
"""


@pytest.mark.parametrize(("segments", "events"), [(4, 2000), (20, 1000)])
def test_the_memory_of_a_merge_is_bounded_by_settings(
    tmp_path: Path, segments: int, events: int
) -> None:
    """24 and 60 MB of payloads, in row groups of 1 MiB; 4 MiB are read ahead."""
    dice = random.Random(segments)
    limits = RowGroupLimits(10_000, 1 << 20)
    with hand_lake(tmp_path) as hand:
        lake = hand.lake
        for number in range(segments):
            drawn: list[Row] = [
                ("a", f"s{dice.randrange(400):03}", at, None, dice.randrange(6000))
                for at in range(events)
            ]
            name = new_name("a", 0, "test")
            with SegmentWriter(lake.store, name, "a", limits) as writer:
                writer.write(table_of(drawn, number))
            with lake.database.write() as connection:
                snap = next_snap(connection, "test")
                insert_segment(
                    connection, writer.finished, snap, kind="test", partition=0, log_partitions=1
                )
    command = [sys.executable, "-c", textwrap.dedent(MERGE), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows, peak = map(int, done.stdout.split())
    assert rows == segments * events
    assert peak < PEAK_MAX
