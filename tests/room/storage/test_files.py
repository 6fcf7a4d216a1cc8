"""What is the file store's own: the order of its syncs, and what a killed writer leaves."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.backends.storage import open_store
from penstock.backends.storage.object_store import FileStore
from penstock.core.errors import SettingInvalid
from penstock.core.settings import Settings


class Calls:
    """What this process asks of the disk, in order."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.made: list[str] = []
        self.failing = ""
        self._patch(patch, os, "fsync", lambda descriptor: f"sync {_name_of(descriptor)}")
        self._patch(patch, os, "rename", lambda old, new: f"rename {Path(new).name}")
        self._patch(patch, os, "mkdir", lambda path, *_mode: f"make {Path(path).name}")

    def _patch(
        self, patch: pytest.MonkeyPatch, module: object, name: str, say: Callable[..., str]
    ) -> None:
        real = getattr(module, name)

        def call(*arguments: object) -> None:
            self.made.append(say(*arguments))
            if self.made[-1] == self.failing:
                raise OSError("it failed")
            real(*arguments)

        patch.setattr(module, name, call)


def _name_of(descriptor: int) -> str:
    return Path(f"/proc/self/fd/{descriptor}").readlink().name


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def calls(root: Path, monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(monkeypatch)


def put(root: Path, name: str) -> None:
    with FileStore(root).create(name) as file:
        file.write(b"content")


def test_a_file_is_synced_then_renamed_then_its_directory_is_synced(
    root: Path, calls: Calls
) -> None:
    """And so are those above it that are new, before."""
    put(root, "events/p-0000/a")
    write = ["sync a.unfinished", "rename a", "sync p-0000"]
    above = root.parent.name
    assert calls.made == [
        *("make lake", f"sync {above}"),
        *("make events", "sync lake"),
        *("make p-0000", "sync events"),
        *write,
    ]
    calls.made.clear()
    put(root, "events/p-0000/a")
    assert calls.made == write


@pytest.mark.parametrize("step", ["sync a.unfinished", "rename a", "sync events"])
def test_a_disk_that_fails_is_an_error_and_leaves_nothing_half(
    root: Path, calls: Calls, step: str
) -> None:
    calls.failing = step
    with pytest.raises(OSError, match="it failed"):
        put(root, "events/a")
    if step != "sync events":  # then the object may be there: who announced it takes care of it
        assert [path for path in root.rglob("*") if path.is_file()] == []


WRITE_FOR_EVER = """
import os, sys
from pathlib import Path
from penstock.backends.storage import FileStore
with FileStore(Path(sys.argv[1])).create("events/a") as file:
    while True:
        file.write(b"x" * 4096)
        file.flush()
        os.write(1, b".")
"""


def test_a_killed_writer_leaves_only_an_unfinished_file(root: Path) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITE_FOR_EVER, str(root)], stdout=subprocess.PIPE
    )
    assert writer.stdout is not None
    assert writer.stdout.read(3) == b"..."
    writer.send_signal(signal.SIGKILL)
    writer.communicate(timeout=300)

    store = FileStore(root)
    [left] = store.list("events")
    assert left.name == "events/a"
    assert left.size >= 3 * 4096
    with pytest.raises(FileNotFoundError):
        store.open("events/a")
    store.delete("events/a")
    assert [path for path in root.rglob("*") if path.is_file()] == []
    put(root, "events/a")
    (root / "events" / "a.unfinished").write_bytes(b"half")  # of another try
    store.delete("events/a")
    assert list(store.list()) == []


def test_an_address_opens_a_store_in_its_directory(tmp_path: Path) -> None:
    place = tmp_path / "a lake"
    settings = Settings(data=tmp_path, store_url=f"file://{tmp_path}/a%20lake")
    with open_store(settings).create("a") as file:
        file.write(b"x")
    assert (place / "a").read_bytes() == b"x"


@pytest.mark.parametrize("url", ["", "file:", "file://", "file://host/lake", "ftp://x/y", "/lake"])
def test_an_address_that_is_none_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(SettingInvalid, match="is neither file://DIR"):
        open_store(Settings(data=tmp_path, store_url=url))
