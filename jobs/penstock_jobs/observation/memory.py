"""What an observer keeps between its rounds, and when it begins again: a file of its own for each
folder and lake."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct, field
from xxhash import xxh3_64_hexdigest

from penstock.directories import make_directory, open_private
from penstock.errors import InvalidInput
from penstock_jobs.observation.looks import WatchedEdit


class ObserverMemory(Struct):
    """`unsent` are lines of events that may have been sent, or not: they are sent again."""

    edits: list[WatchedEdit] = field(default_factory=list)
    commit: str | None = None
    #: From when on edits that came in may be new.
    since_us: int = 0
    #: When it asked last, by its own clock.
    asked_us: int = 0
    unsent: list[str] = field(default_factory=list)


class MemoryFile:
    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> ObserverMemory:
        """A file that nobody can read is begun anew."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=ObserverMemory)
        except (FileNotFoundError, msgspec.MsgspecError):
            return ObserverMemory()

    def write(self, memory: ObserverMemory) -> None:
        """On disk when this returns, or not at all."""
        unfinished = self._path.with_suffix(".unfinished")
        unfinished.unlink(missing_ok=True)
        with open_private(unfinished, "xb") as file:
            file.write(msgspec.json.encode(memory))
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(self._path)


@contextmanager
def kept_memory(folder: Path, lake: str) -> Iterator[MemoryFile]:
    """Held by one process at a time. Raises InvalidInput where another holds it, or where it cannot
    be written."""
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    home = Path(state, "penstock", "observe").expanduser()
    path = home / f"{xxh3_64_hexdigest(f'{folder} {lake}'.encode())}.json"
    try:
        make_directory(home)
        lock = open_private(path.with_suffix(".lock"), "a")
    except OSError as error:
        raise InvalidInput(what=f"The folder {home}", why=error.strerror or str(error)) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            why = "another `penstock observe` looks at it"
            raise InvalidInput(what=f"The folder {folder}", why=why) from None
        yield MemoryFile(path)
