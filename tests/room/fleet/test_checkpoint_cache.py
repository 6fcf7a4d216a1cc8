"""CheckpointCache are whole and verified, or not there; what is there is used."""

import io
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

import pytest

from penstock.core.errors import InvalidInput
from penstock.core.settings import Settings
from penstock.registry.checkpoints.digests import SourceFile, digest_files
from penstock.registry.fleet import FleetSettings, checkpoint_cache
from penstock.registry.fleet.checkpoint_cache import (
    CheckpointCache,
    CopyMismatch,
    FetchFailed,
    FolderTaken,
    locked,
)
from penstock.registry.fleet.registry_source import ChainLink
from tests.support.fleet.following import make_files
from tests.support.servers.s3 import BUCKET, S3Server


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data=tmp_path, rooms=(FleetSettings(follow_copies_max=1),))


@pytest.fixture
def copies(tmp_path: Path, settings: Settings) -> CheckpointCache:
    (tmp_path / "copies").mkdir()
    return CheckpointCache(tmp_path / "copies", settings)


def piece_of(uri: Path | str, name: str = "one", digest: str | None = None) -> ChainLink:
    found = digest or digest_files(str(uri), Settings(data=Path("/nonexistent"))).digest
    assert found is not None
    return ChainLink(name, found, str(uri), "whole", None)


def nothing(_bytes: int) -> None:
    pass


class Stop(Exception):
    pass


def stop_after(blocks: int) -> "checkpoint_cache.Progress":
    seen = 0

    def progress(_bytes: int) -> None:
        nonlocal seen
        seen += 1
        if seen > blocks:
            raise Stop

    return progress


def names(folder: Path) -> set[str]:
    return {one.relative_to(folder).as_posix() for one in folder.rglob("*") if one.is_file()}


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_folder_and_a_file_are_copied(
    copies: CheckpointCache, tmp_path: Path, scheme: str
) -> None:
    folder = make_files(tmp_path, "with a blank" if not scheme else "one")
    piece = piece_of(f"{scheme}{folder}")
    taken = copies.provide(piece, nothing)
    assert (taken.fetched, taken.damaged) == (True, False)
    assert taken.bytes == sum(one.stat().st_size for one in folder.rglob("*") if one.is_file())
    assert names(copies.path(piece)) == names(folder) == {"config.json", "layers/0.bin"}
    assert copies.provide(piece, stop_after(0)).fetched is False  # it is not even read again
    weights = tmp_path / "weights.bin"
    weights.write_bytes(b"weights")
    single = piece_of(f"{scheme}{weights}")
    copies.provide(single, nothing)
    assert names(copies.path(single)) == {"weights.bin"}
    again = CheckpointCache(copies.directory, copies.settings)
    assert [again.provide(one, nothing).fetched for one in (piece, single)] == [False, False]


def test_a_fetch_that_was_cut_goes_on(copies: CheckpointCache, tmp_path: Path) -> None:
    piece = piece_of(make_files(tmp_path, "one"))
    with pytest.raises(Stop):
        copies.provide(piece, stop_after(1))
    [staging] = list(copies.directory.iterdir())
    assert staging.name.startswith("fetching-")
    whole = [one for one in staging.rglob("*") if one.is_file() and one.stat().st_size]
    assert len(whole) == 1
    before = whole[0].stat().st_ino
    relative = whole[0].relative_to(staging)
    assert copies.provide(piece, nothing).fetched
    assert (copies.path(piece) / relative).stat().st_ino == before
    assert [one.name for one in copies.directory.iterdir()] == [copies.path(piece).name]


def test_remains_that_are_wrong_are_not_used(copies: CheckpointCache, tmp_path: Path) -> None:
    folder = make_files(tmp_path, "one")
    piece = piece_of(folder)
    staging = copies.directory / f"fetching-{copies.path(piece).name}"
    shutil.copytree(folder, staging)
    (staging / "layers" / "0.bin").write_bytes(b"two" * 1_000)
    (staging / "nobody's").write_text("x")
    copies.provide(piece, nothing)
    assert (copies.path(piece) / "layers" / "0.bin").read_bytes() == b"one" * 1_000
    assert names(copies.path(piece)) == {"config.json", "layers/0.bin"}


def test_other_files_than_were_registered_are_no_copy(
    copies: CheckpointCache, tmp_path: Path
) -> None:
    folder = make_files(tmp_path, "one")
    piece = piece_of(folder)
    (folder / "more").write_text("x")
    with pytest.raises(CopyMismatch):
        copies.provide(piece, nothing)
    assert list(copies.directory.iterdir()) == []


@pytest.mark.parametrize("damage", ["bytes", "gone", "more", "link"])
def test_what_changes_under_a_running_sidecar_is_seen(
    copies: CheckpointCache, tmp_path: Path, damage: str
) -> None:
    piece = piece_of(make_files(tmp_path, "one"))
    copies.provide(piece, nothing)
    file = copies.path(piece) / "layers" / "0.bin"
    if damage == "bytes":
        file.write_bytes(b"two" * 1_000)
    elif damage == "gone":
        file.unlink()
    elif damage == "more":
        (file.parent / "1.bin").write_bytes(b"")
    else:
        (copies.path(piece) / "link").symlink_to(tmp_path)
    taken = copies.provide(piece, nothing)
    assert (taken.fetched, taken.damaged) == (True, True)
    assert names(copies.path(piece)) == {"config.json", "layers/0.bin"}


def test_what_cannot_be_read_says_why(copies: CheckpointCache, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    digest = f"sha256:{'0' * 64}"
    with pytest.raises(FetchFailed, match=str(gone)):
        copies.provide(piece_of(gone, digest=digest), nothing)
    gone.mkdir()
    with pytest.raises(FetchFailed, match="no files"):
        copies.provide(piece_of(gone, digest=digest), nothing)
    (gone / "link").symlink_to(tmp_path)
    with pytest.raises(FetchFailed, match="a link to a folder"):
        copies.provide(piece_of(gone, digest=digest), nothing)
    with pytest.raises(FetchFailed, match="https: is not supported"):
        copies.provide(piece_of("https://models.test/one", digest=digest), nothing)


def test_a_file_that_would_lie_elsewhere_is_refused(
    copies: CheckpointCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    hostile = SourceFile("../../victim", 0, lambda: nullcontext(io.BytesIO()))
    monkeypatch.setattr(checkpoint_cache, "source_files", lambda *_asked: ([hostile], True))
    with pytest.raises(FetchFailed, match="has an unusable name"):
        copies.provide(
            ChainLink("one", "sha256:" + "0" * 64, "/models/one", "whole", None), nothing
        )
    assert victim.read_text() == "precious"


def test_the_least_recently_used_go_first(copies: CheckpointCache, tmp_path: Path) -> None:
    pieces = [piece_of(make_files(tmp_path, name)) for name in "abcd"]
    for one in pieces:
        copies.provide(one, nothing)
    copies.provide(pieces[0], nothing)
    copies.keep([pieces[1]])
    assert set(copies.remove_old()) == {pieces[2].digest, pieces[3].digest}
    assert copies.provide(pieces[2], nothing).fetched


class _Usage(NamedTuple):
    free: int


def test_a_full_disk_is_said_before_anything_is_written(
    copies: CheckpointCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, other = piece_of(make_files(tmp_path, "held")), piece_of(make_files(tmp_path, "other"))
    copies.provide(held, nothing)
    copies.provide(other, nothing)
    copies.keep([held])
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: _Usage(100))
    with pytest.raises(FetchFailed, match="100 free"):
        copies.provide(piece_of(make_files(tmp_path, "large")), nothing)
    assert [one.name for one in copies.directory.iterdir()] == [copies.path(held).name]


def test_one_sidecar_works_in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_cache, "_LOCK_SECONDS_MAX", 0.0)
    with locked(tmp_path / "a" / "b"):
        with pytest.raises(FolderTaken), locked(tmp_path / "a" / "b"):
            pass
        with locked(tmp_path / "a" / "c"):
            pass
    with locked(tmp_path / "a" / "b"):
        pass
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput), locked(tmp_path / "file"):
        pass


def test_from_a_bucket(copies: CheckpointCache, tmp_path: Path, s3: S3Server) -> None:
    prefix = s3.new_prefix()
    there = s3.root / BUCKET / prefix
    there.mkdir()
    made = make_files(there, "one")
    uri = f"s3://{BUCKET}/{prefix}/one?endpoint={s3.url}&region=us-east-1"
    piece = piece_of(uri)
    assert piece.digest == piece_of(made).digest
    assert copies.provide(piece, nothing).fetched
    assert names(copies.path(piece)) == names(made)
    single = piece_of(uri.replace("one?", "one/layers/0.bin?"))
    copies.provide(single, nothing)
    assert names(copies.path(single)) == {"0.bin"}
    (made / "layers" / "0.bin").write_bytes(b"other")
    shutil.rmtree(copies.path(piece))
    with pytest.raises(CopyMismatch):
        copies.provide(piece, nothing)
    shutil.rmtree(made)
    with pytest.raises(FetchFailed):
        copies.provide(piece, nothing)
