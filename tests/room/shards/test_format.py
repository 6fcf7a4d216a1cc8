"""The files of a shard and its manifest."""

import hashlib
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.backends.storage.object_store import FileStore
from penstock.core.errors import InvalidInput
from penstock.shards.manifest import (
    MANIFEST_NAME,
    Counts,
    Manifest,
    PartFile,
    Tokenizer,
    check_digest,
    files_of,
    part_name,
    read_manifest,
    read_part,
    read_rows,
)
from penstock.shards.schema import SHARD_ROWS
from penstock.shards.shard import ShardDamaged, ShardMissing
from penstock.shards.writer import PartLimits, PartWriter, row_bytes
from tests.support.shards.making import (
    SMALL,
    make_groups,
    make_routes,
    make_row,
    make_shard,
    own_folder,
    publish,
    stored_in,
    table_of,
    with_routes,
)

ROWS = table_of(make_groups(80))


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path)


def write(
    store: FileStore, folder: str, pieces: list[pa.Table], limits: PartLimits = SMALL
) -> list[PartFile]:
    with PartWriter(store, folder, limits) as writer:
        for piece in pieces:
            writer.write(piece)
    return writer.files


def path_of(store: FileStore, manifest: Manifest, number: int = 0) -> Path:
    return Path(store.address(f"{own_folder(manifest.id)}/{part_name(number)}"))


def test_what_was_written_is_read_back(store: FileStore) -> None:
    manifest = make_shard(store, ROWS)
    assert read_manifest(store, own_folder(manifest.id), manifest.id) == manifest
    assert pa.concat_tables(read_rows(stored_in(store, manifest))).equals(ROWS)
    assert len(manifest.files) > 2
    for part in manifest.files:
        check_digest(store, f"{own_folder(manifest.id)}/{part.name}", part)


@settings(max_examples=6)
@given(cuts=st.sets(st.integers(1, ROWS.num_rows - 1), max_size=20))
def test_how_rows_are_handed_in_changes_no_byte(
    tmp_path_factory: pytest.TempPathFactory, cuts: set[int]
) -> None:
    store = FileStore(tmp_path_factory.mktemp("shards"))
    edges = [0, *sorted(cuts), ROWS.num_rows]
    pieces = [ROWS.slice(start, end - start) for start, end in pairwise(edges)]
    assert write(store, "cut", pieces) == write(store, "whole", [ROWS])


def test_a_group_is_in_one_part_and_a_row_group_is_bounded(store: FileStore) -> None:
    manifest = make_shard(store, ROWS)
    groups = [
        set(one["group_id"].to_pylist())
        for part in manifest.files
        for one in [
            pa.concat_tables(read_part(store, f"{own_folder(manifest.id)}/{part.name}", part))
        ]
    ]
    assert sum(map(len, groups)) == len(set[str]().union(*groups))
    assert [(one.first, one.last) for one in manifest.files] == [
        (min(one), max(one)) for one in groups
    ]
    for rows in read_rows(stored_in(store, manifest)):
        assert int(row_bytes(rows).sum()) <= SMALL.row_group_bytes_max
    assert not any(one.continued for one in manifest.files)


def test_a_group_larger_than_a_row_group_goes_on_in_the_next(store: FileStore) -> None:
    rows = [
        make_row("a"),
        *(make_row("b", rollout, tokens=100) for rollout in range(9)),
        make_row("c"),
    ]
    limits = PartLimits(part_bytes_target=2000, part_rows_target=100, row_group_bytes_max=4000)
    manifest = make_shard(store, rows, limits=limits)
    assert [one.rows for one in manifest.files] == [10, 1]
    large, small = manifest.files
    assert large.row_groups == [1, 3, 3, 3]
    assert (large.continued, small.continued) == ([2, 3], [])
    assert (large.groups, small.groups) == (2, 1)
    rows = [make_row(name, tokens=tokens) for name, tokens in (("a", 9), ("b", 9000), ("c", 9))]
    assert [one.row_groups for one in make_shard(store, rows).files] == [[1, 1], [1]]


def test_the_files_carry_checksums_and_page_indexes_and_no_time(store: FileStore) -> None:
    rows = with_routes(table_of([make_row("a"), make_row("b")]))
    manifest = make_shard(store, rows, routes=make_routes(rows))
    file = pq.ParquetFile(path_of(store, manifest))
    assert file.schema_arrow.equals(SHARD_ROWS, check_metadata=True)
    assert set(file.metadata.metadata) == {b"ARROW:schema", b"penstock.shard"}
    for part in files_of(manifest):
        path = Path(store.address(f"{own_folder(manifest.id)}/{part.name}"))
        group = pq.ParquetFile(path).metadata.row_group(0)
        columns = [group.column(number) for number in range(group.num_columns)]
        assert {column.compression for column in columns} == {"ZSTD"}
        assert all(column.has_offset_index for column in columns)
        texts = {"messages", "tools", "preferences", "routed_experts"}
        compared = {one.path_in_schema for one in columns if one.has_column_index}
        assert compared == {one.path_in_schema for one in columns} - texts


def test_a_write_that_failed_leaves_nothing(store: FileStore) -> None:
    writer = PartWriter(store, "x", SMALL)

    def write_and_fail() -> None:
        with writer:
            writer.write(table_of([make_row("a")]))
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        write_and_fail()
    assert list(store.list()) == []
    assert writer.files == []


def test_routes_lie_beside_their_rows(store: FileStore) -> None:
    rows = with_routes(ROWS)
    manifest = make_shard(store, rows, routes=make_routes(rows))
    with (
        pytest.raises(InvalidInput, match="belong to other rows"),
        PartWriter(store, "x", SMALL, routed=True) as writer,
    ):
        writer.write(ROWS, make_routes(ROWS.slice(1)))
    for part in manifest.files:
        side = part.routes
        assert side is not None
        assert sum(side.row_groups) == part.rows
        routes = pa.concat_tables(read_part(store, f"{own_folder(manifest.id)}/{side.name}", side))
        own = pa.concat_tables(read_part(store, f"{own_folder(manifest.id)}/{part.name}", part))
        assert routes["sample_id"].equals(own["sample_id"])


# The manifest


def test_a_manifest_has_one_form_and_its_digest_is_its_name() -> None:
    made = Manifest(
        name="a",
        query="select 'ü'",
        tokenizer=Tokenizer(sha256="00", id="t"),
        files=[],
        counts=Counts(excluded={"z": 1, "b": 2}),
    )
    content = made.canonical()
    assert "select 'ü'" in content.decode()
    assert content.startswith(b'{"code_version":"","counted_from":null,"counts":{"exc')
    assert made.id == f"sha256:{hashlib.sha256(content).hexdigest()}"
    assert made.id != Manifest(name="b", files=[], counts=Counts()).id


def test_a_shard_may_be_named_by_the_begin_of_its_id(store: FileStore) -> None:
    manifest = make_shard(store, ROWS.slice(0, 0))  # an empty one is one too
    folder, begin = own_folder(manifest.id), manifest.id[: len("sha256:") + 16]
    assert read_manifest(store, folder, begin) == manifest
    for wrong in ("", "sha256:abc", manifest.id.upper(), manifest.id + "0"):
        with pytest.raises(InvalidInput, match="shard id"):
            own_folder(wrong)
    store.delete(f"{folder}/{MANIFEST_NAME}")
    with pytest.raises(ShardMissing, match="The shard sha256"):
        read_manifest(store, folder, manifest.id)


def test_another_manifest_in_its_place_is_refused(store: FileStore) -> None:
    one, other = make_shard(store, ROWS), make_shard(store, ROWS, name="other")
    for content in (other.canonical(), one.canonical()[:-1]):
        path = Path(store.address(f"{own_folder(one.id)}/{MANIFEST_NAME}"))
        path.write_bytes(content)
        with pytest.raises(ShardDamaged, match="is the manifest of"):
            read_manifest(store, own_folder(one.id), one.id)
    later = Manifest(name="a", files=[], counts=Counts(), format=3)
    publish(store, "", store, later)
    with pytest.raises(ShardDamaged, match="the format 3"):
        read_manifest(store, own_folder(later.id), later.id)


# Damage


def test_a_changed_byte(store: FileStore) -> None:
    manifest = make_shard(store, ROWS)
    path = path_of(store, manifest)
    content = bytearray(path.read_bytes())
    content[1000] ^= 1
    path.write_bytes(content)
    with pytest.raises(ShardDamaged, match="its checksum is"):
        check_digest(store, f"{own_folder(manifest.id)}/{part_name(0)}", manifest.files[0])
    with pytest.raises(ShardDamaged, match=r"part-00000\.parquet"):
        list(read_rows(stored_in(store, manifest)))


def test_a_shard_is_not_published_with_a_file_that_changed(
    store: FileStore, tmp_path: Path
) -> None:
    files = write(store, "staging", [ROWS])
    manifest = Manifest(name="a", files=files, counts=Counts())
    path = tmp_path / "staging" / part_name(len(files) - 1)
    path.write_bytes(b"x" * path.stat().st_size)
    target = FileStore(tmp_path / "target")
    with pytest.raises(ShardDamaged, match="its checksum is"):
        publish(store, "staging", target, manifest)
    with pytest.raises(ShardMissing):
        read_manifest(target, own_folder(manifest.id), manifest.id)
    assert len(list(files_of(manifest))) == len(files)


def test_a_flipped_bit_anywhere_in_a_foot_is_told_as_damage(tmp_path: Path) -> None:
    """A foot has no checksum of its own: what can still be read has the columns of a shard."""
    store = FileStore(tmp_path)
    manifest = make_shard(store, ROWS.slice(0, 4))
    part = manifest.files[0]
    name = f"{own_folder(manifest.id)}/{part.name}"
    path = tmp_path / name
    content = path.read_bytes()
    foot = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    damaged = 0
    for place in range(foot, len(content), 97):
        flipped = bytearray(content)
        flipped[place] ^= 1 << place % 8
        path.write_bytes(flipped)
        try:
            for rows in read_part(store, name, part):
                assert rows.schema.equals(SHARD_ROWS)
        except ShardDamaged:
            damaged += 1
    assert damaged > 10
