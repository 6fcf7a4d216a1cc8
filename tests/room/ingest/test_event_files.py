"""What lies in a folder that somebody imports may have been put there by somebody else."""

import gzip
import os
import socket
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.core.errors import InvalidInput
from penstock.ingest import event_files
from penstock.ingest.event_files import find_files, read_bodies
from tests.support.lakes import body_of, make_event

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

EVENTS = body_of([make_event("s", number) for number in range(3)])
MIB = 1024 * 1024
COMPRESS: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".zst": zstd.compress}


def content_of(path: Path) -> bytes:
    [file], _ = find_files([path])
    return b"".join(body.content for body in read_bodies(file))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one file, beside another."""
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "events.jsonl").write_bytes(EVENTS)
    (tmp_path / "secret.jsonl").write_bytes(EVENTS)
    return folder


# Which files


def test_pipes_sockets_and_devices_are_refused_by_name(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "socket.jsonl"))
        for name, kind in [("pipe.jsonl", "a pipe"), ("socket.jsonl", "a socket")]:
            with pytest.raises(InvalidInput, match=f"{name}.*it is {kind}, not a regular file"):
                find_files([tmp_path / name])
        with pytest.raises(
            InvalidInput, match=r"contains no file of .* but pipe\.jsonl, and it is"
        ):
            find_files([tmp_path])
    with pytest.raises(InvalidInput, match="it is a device"):
        find_files([Path("/dev/zero")])
    with pytest.raises(InvalidInput, match="it lies in /proc, which shows the system itself"):
        find_files([Path("/proc/self/environ")])


def test_a_folder_gives_what_lies_in_it_and_nothing_beside_it(folder: Path) -> None:
    (folder / "again.jsonl").symlink_to("events.jsonl")
    (folder / "out.jsonl").symlink_to("../secret.jsonl")
    (folder / "absolute.json").symlink_to("/proc/self/environ")
    (folder / "gone.jsonl").symlink_to("nowhere")
    (folder / "round.jsonl").symlink_to("round.jsonl")
    (folder / "up").symlink_to("..")
    os.mkfifo(folder / "pipe.jsonl")
    files, left_out = find_files([folder])
    assert [file.names for file in files] == [("events.jsonl",)]
    reasons = {file.path.name: file.why for file in left_out}
    assert set(reasons) == {
        "out.jsonl", "absolute.json", "gone.jsonl", "round.jsonl", "pipe.jsonl",
    }  # fmt: skip
    assert reasons["out.jsonl"] == f"it is a link that leads out of {folder}"


def test_a_link_that_somebody_names_is_theirs(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "latest").symlink_to(folder)
    (tmp_path / "latest.jsonl").symlink_to(folder / "events.jsonl")
    assert content_of(tmp_path / "latest") == EVENTS
    assert content_of(tmp_path / "latest.jsonl") == EVENTS


def test_what_becomes_a_link_or_a_pipe_meanwhile_is_not_opened(folder: Path) -> None:
    deep = folder / "deep"
    deep.mkdir()
    (deep / "events.jsonl").write_bytes(EVENTS)
    files, _ = find_files([folder])
    assert len(files) == 2
    (folder / "deep").rename(folder / "other")
    deep.symlink_to("other")
    (folder / "events.jsonl").unlink()
    (folder / "events.jsonl").symlink_to("../secret.jsonl")
    for file in files:
        with pytest.raises(InvalidInput, match=r"Not a directory|symbolic links"):
            list(read_bodies(file))
    (folder / "events.jsonl").unlink()
    os.mkfifo(folder / "events.jsonl")
    [file] = [file for file in files if file.names == ("events.jsonl",)]
    with pytest.raises(InvalidInput, match="it is a pipe"):
        list(read_bodies(file))


# What they hold


@pytest.mark.parametrize("suffix", ["", *COMPRESS])
def test_what_is_no_text_is_refused_and_named(tmp_path: Path, suffix: str) -> None:
    kinds = {
        "a picture": b"\x89PNG\r\n\x1a\n" + bytes(100),
        "an SQLite database": b"SQLite format 3\x00" + bytes(100),
        "a Parquet file": b"PAR1" + bytes(100),
        "a zip archive": b"PK\x03\x04" + bytes(100),
        r"compressed by gzip; its name must end in \.gz": gzip.compress(EVENTS),
        r"compressed by zstd; its name must end in \.zst": zstd.compress(EVENTS),
        "text in UTF-16": EVENTS.decode().encode("utf-16"),
        "not UTF-8 text": EVENTS.decode().encode("utf-16-le"),
        "are not UTF-8 text": os.urandom(1000),
    }
    for kind, content in kinds.items():
        path = tmp_path / f"some.jsonl{suffix}"
        path.write_bytes(COMPRESS.get(suffix, bytes)(content))
        with pytest.raises(InvalidInput, match=kind):
            content_of(path)


@pytest.mark.parametrize("broken", [b"\x00" * 10, b"\xff\xfe\xfd", "grün".encode("latin-1") * 5])
def test_a_few_broken_bytes_cost_their_lines_alone(tmp_path: Path, broken: bytes) -> None:
    path = tmp_path / "some.jsonl"
    path.write_bytes(EVENTS + broken + b"\n" + EVENTS)
    assert content_of(path) == EVENTS + broken + b"\n" + EVENTS


# How much


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a" * MIB, r"line 4 is longer than 8 MiB; no event is so large"),
        (b" " * MIB, r"line 4 is longer than 8 MiB"),
        (b"[1" + b",1" * MIB, r"array is longer than 8 MiB; write an event a"),
    ],
)
def test_a_bomb_is_refused_at_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, content: bytes, words: str
) -> None:
    """It would fill ten times the memory that it gets."""
    bytes_max = 8 * MIB
    monkeypatch.setattr(event_files, "BODY_BYTES", MIB)
    for name in ("LINE_BYTES_MAX", "ARRAY_BYTES_MAX"):
        monkeypatch.setattr(event_files, name, bytes_max)
    path = tmp_path / f"some.json{suffix}"
    begin = b"" if content[:1] == b"[" else EVENTS
    part = COMPRESS[suffix](content)
    path.write_bytes(COMPRESS[suffix](begin) + part * (10 * bytes_max // len(content)))
    tracemalloc.start()
    with pytest.raises(InvalidInput, match=words):
        content_of(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1.5 * bytes_max


@pytest.mark.parametrize("suffix", COMPRESS)
def test_many_lines_take_no_more_memory_than_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    monkeypatch.setattr(event_files, "BODY_BYTES", MIB)
    path = tmp_path / f"some.jsonl{suffix}"
    path.write_bytes(COMPRESS[suffix](EVENTS * (MIB // len(EVENTS))) * 20)
    [file], _ = find_files([path])
    tracemalloc.start()
    lines = sum(body.content.count(b"\n") for body in read_bodies(file))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert lines == 3 * (MIB // len(EVENTS)) * 20
    assert peak < 5 * event_files.BODY_BYTES
