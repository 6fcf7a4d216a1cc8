"""What breaks the promise is found in the files themselves, and named."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

from penstock.backends.execution.calls import InlineExecutor
from penstock.ingest import partition_writer
from penstock.lake.catalog import current
from penstock.lake.rows import EVENT_ROWS, RowGroupLimits
from penstock.lake.tables import segment
from penstock.lake.upkeep.verification import verify_deep
from tests.support.lakes import HandLake, hand_lake, make_event

FEW = {"bucket_bytes_target": 3000}


@pytest.fixture(autouse=True)
def _small_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_writer, "ROW_GROUPS", RowGroupLimits(4, 1 << 24))


def findings_of(lake: HandLake) -> list[tuple[str, str]]:
    return [(one.name, one.problem) for one in verify_deep(lake.lake, InlineExecutor())]


def fill(lake: HandLake) -> None:
    for half in range(3):
        lake.store([make_event(f"s{n}", 10 * half + k) for n in range(8) for k in range(2)])


def rewrite(lake: HandLake, root: Path, rows: pa.Table) -> str:
    """The first segment with these rows in its place, groups of four as before."""
    name = current(lake.lake.database).segments[0].name
    pq.write_table(rows.cast(EVENT_ROWS), root / "lake" / name, row_group_size=4)
    return name


def rows_of_first(lake: HandLake, root: Path) -> pa.Table:
    return pq.read_table(root / "lake" / current(lake.lake.database).segments[0].name)


def test_a_lake_in_order_has_no_findings(tmp_path: Path) -> None:
    with hand_lake(tmp_path, **FEW) as lake:
        assert findings_of(lake) == []
        fill(lake)
        assert findings_of(lake) == []
        assert findings_of(lake) == []


def test_an_event_that_is_there_twice_is_named(tmp_path: Path) -> None:
    """As when two writers had stored it: a segment is live twice, under two names."""
    with hand_lake(tmp_path, **FEW) as lake:
        fill(lake)
        first = current(lake.lake.database).segments[0].name
        with lake.lake.database.write() as connection:
            row = connection.execute(sa.select(segment).where(segment.c.name == first)).one()
            again = dict(row._mapping) | {"name": first.replace(".parquet", "-b.parquet")}
            del again["id"]
            connection.execute(sa.insert(segment).values(**again))
        path = tmp_path / "lake" / first
        path.with_name(path.stem + "-b.parquet").write_bytes(path.read_bytes())
        found = findings_of(lake)
        assert len(found) == 16
        assert found[0][0] == "session s0 of default"
        assert "event e0 is there 2 times" in found[0][1]
        assert first in found[0][1]


@pytest.mark.parametrize("kind", ["in a session", "between sessions", "groups"])
def test_rows_out_of_order_are_found(tmp_path: Path, kind: str) -> None:
    with hand_lake(tmp_path, **FEW) as lake:
        fill(lake)
        order = list(range(16))
        if kind == "in a session":
            order[4:6] = [5, 4]
        elif kind == "between sessions":
            order[1], order[2] = order[2], order[1]
        else:
            order = order[4:8] + order[:4] + order[8:]
        name = rewrite(lake, tmp_path, rows_of_first(lake, tmp_path).take(order))
        assert findings_of(lake)[0] == (name, "its rows are not in the order of a segment")


def test_rows_that_no_bucket_has_are_missed(tmp_path: Path) -> None:
    with hand_lake(tmp_path, **FEW) as lake:
        fill(lake)
        rewrite(lake, tmp_path, rows_of_first(lake, tmp_path).slice(0, 12))
        assert findings_of(lake) == [("events", "44 are in the buckets, the database says 48")]


def test_a_file_that_cannot_be_read_is_a_finding(tmp_path: Path) -> None:
    with hand_lake(tmp_path, **FEW) as lake:
        fill(lake)
        name = current(lake.lake.database).segments[0].name
        (tmp_path / "lake" / name).unlink()
        assert name in {name for name, _ in findings_of(lake)}
