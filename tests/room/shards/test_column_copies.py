"""Column copies: the same batches as from Parquet, made when they are asked for, never trusted."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from penstock.backends.storage.object_store import FileStore
from penstock.shards.batches import Batch, Ragged
from penstock.shards.local_copies import CACHE_FOLDER, LocalCopies
from penstock.shards.manifest import Manifest
from penstock.shards.reader import ShardReader, read_shard
from penstock.shards.schema import ROUTE_ROWS, SHARD_ROWS
from tests.support.shards.making import make_groups, make_routes, make_shard, table_of, with_routes
from tests.support.shards.reading import sequence

COLUMNS = [*SHARD_ROWS.names, *(name for name in ROUTE_ROWS.names if name != "sample_id")]


class Made(NamedTuple):
    data: Path
    manifest: Manifest

    def reader(self, **options: Any) -> ShardReader:
        return read_shard(self.data, self.manifest.id, **{"seed": 1, "batch_samples": 9} | options)

    def parquet(self, **options: Any) -> ShardReader:
        return self.reader(cache=False, **options)

    @property
    def copies(self) -> list[Path]:
        return sorted((self.data / CACHE_FOLDER).glob("*.arrow*"))


@pytest.fixture
def made(tmp_path: Path) -> Made:
    rows = with_routes(table_of(make_groups(30)))
    store = FileStore(tmp_path / "data" / "lake")
    manifest = make_shard(store, rows, routes=make_routes(rows))
    assert len(manifest.files) > 1
    return Made(tmp_path / "data", manifest)


def values_of(batch: Batch) -> dict[str, Any]:
    return {
        name: [row.tolist() for row in column] if isinstance(column, Ragged) else column.tolist()
        for name, column in batch.columns.items()
    }


def test_batches_are_the_same_and_none_is_made_that_nobody_asked_for(made: Made) -> None:
    options = {"columns": COLUMNS}
    expected = [values_of(batch) for batch in made.parquet(**options)]
    for asked in (None, False):
        assert sequence(made.reader(column_copies=asked)) == sequence(made.parquet())
    assert made.copies == []
    for making in (True, None):  # made, and used again
        got = [values_of(batch) for batch in made.reader(column_copies=making, **options)]
        np.testing.assert_equal(got, expected)
    assert len(made.copies) == 2 * len(made.manifest.files)  # with those of the experts


@pytest.mark.parametrize("damage", ["flipped", "cut", "empty", "foot"])
def test_a_damaged_copy_is_made_again(made: Made, damage: str) -> None:
    expected = sequence(made.reader(column_copies=True))
    contents = {path: path.read_bytes() for path in made.copies}
    for path, content in contents.items():
        spoilt = bytearray(content)
        if damage == "flipped":
            for at in range(0, len(spoilt) - 4000, 64):
                spoilt[at + 8] ^= 1
        elif damage == "foot":
            spoilt[-12] ^= 1
        path.write_bytes(spoilt[: {"cut": len(spoilt) // 2, "empty": 0}.get(damage, len(spoilt))])
    assert sequence(made.reader()) == expected
    assert sequence(made.reader(column_copies=True)) == expected
    assert sequence(made.reader(column_copies=True)) == expected
    assert {path: path.read_bytes() for path in made.copies} == contents


def test_the_copies_of_a_directory_are_bounded_and_forgotten(made: Made) -> None:
    sequence(made.reader(column_copies=True))
    copies = LocalCopies(made.data / CACHE_FOLDER, sum(p.stat().st_size for p in made.copies))
    count = len(made.copies)
    copies.make_room(1)
    assert len(made.copies) == count - 1
    (made.data / CACHE_FOLDER / "x.arrow.tmp-1").write_bytes(b"half")
    assert copies.forget() == count  # with the half one
    assert made.copies == []


def test_copies_of_another_directory(made: Made, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    expected = sequence(made.parquet())
    assert sequence(made.reader(cache=elsewhere, column_copies=True)) == expected
    assert made.copies == []
    assert len(list(elsewhere.glob("*.arrow"))) == len(made.manifest.files)
