"""The spool: batches of events on disk, until the service has them.

Each process locks a folder of its own. The next process takes over the folders of ended ones."""

import enum
import fcntl
import gzip
import json
import logging
import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from http.client import HTTPConnection
    from urllib.parse import SplitResult


_log = logging.getLogger(__name__)

_SUFFIX = ".ndjson.gz"
_LOCK = "lock"
_FAST = 1


class SpooledBatch(NamedTuple):
    """Packed lines in a file, or in memory if the disk refuses them."""

    events: int
    size: int
    path: Path | None = None
    packed: bytes = b""

    def body(self) -> bytes:
        """The packed lines. Raises OSError."""
        return self.packed if self.path is None else self.path.read_bytes()


def default_folder() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state, "penstock", "spool").expanduser()


class Spool:
    """The batches of one process, the oldest first. Thread-safe."""

    def __init__(self, folder: Path, bytes_max: int) -> None:
        self._folder = folder
        self._bytes_max = bytes_max
        self._lock = threading.RLock()
        self._own: Path | None = None
        self._own_lock: int | None = None
        self._batches: deque[SpooledBatch] = deque()
        self._adopted: dict[Path, int] = {}
        self._files = 0
        self.bytes = 0
        #: Events that are here now, and all events so far.
        self.events = 0
        self.given = 0

    @property
    def gone(self) -> int:
        return self.given - self.events

    def put(self, lines: list[bytes]) -> bool:
        """Store a batch; False without room."""
        packed = _packed(lines)
        with self._lock:
            if self.bytes + len(packed) > self._bytes_max:
                return False
            self._add(self._stored(len(lines), packed))
            self.given += len(lines)
            return True

    def first(self) -> SpooledBatch | None:
        with self._lock:
            return self._batches[0] if self._batches else None

    def remove(self, batch: SpooledBatch) -> None:
        """Remove the first batch."""
        with self._lock:
            self._batches.remove(batch)
            self.bytes -= batch.size
            self.events -= batch.events
            if batch.path is not None:
                with suppress(OSError):
                    batch.path.unlink(missing_ok=True)

    def halve(self, batch: SpooledBatch) -> None:
        """Split the first batch in two, because the service refused its size. Raises OSError,
        EOFError."""
        lines = lines_of(batch)
        middle = len(lines) // 2
        with self._lock:
            halves = [
                self._stored(len(part), _packed(part)) for part in (lines[:middle], lines[middle:])
            ]
            self.remove(batch)
            for half in reversed(halves):
                self._add(half, first=True)

    def adopt(self) -> None:
        """Take over unsent batches of ended processes."""
        with self._lock, suppress(OSError):
            for folder in sorted(self._folder.iterdir()):
                if folder == self._own or (lock := _locked(folder)) is None:
                    continue
                self._adopted[folder] = lock
                for batch in reversed(list(_batches_in(folder))):
                    self._add(batch, first=True)
                    self.given += batch.events

    def close(self) -> None:
        """Leave the remaining batches to the next process."""
        with self._lock:
            waiting = {batch.path.parent for batch in self._batches if batch.path is not None}
            for folder in {*self._adopted, *([self._own] if self._own else [])} - waiting:
                _remove(folder)
            self.forget()

    def forget(self) -> None:
        """Forget the batches and locks, which belong to the parent of this process."""
        for lock in [*self._adopted.values(), self._own_lock]:
            if lock is not None:
                with suppress(OSError):
                    os.close(lock)
        self._own_lock, self._adopted = None, {}

    def _add(self, batch: SpooledBatch, *, first: bool = False) -> None:
        if first:
            self._batches.appendleft(batch)
        else:
            self._batches.append(batch)
        self.bytes += batch.size
        self.events += batch.events

    def _stored(self, events: int, packed: bytes) -> SpooledBatch:
        try:
            folder = self._own or self._open()
            self._files += 1
            path = folder / f"{self._files:012d}-{events}{_SUFFIX}"
            part = path.with_suffix(".part")
            with open(part, "xb", opener=_private) as file:
                file.write(packed)
            part.rename(path)
        except OSError as error:
            _log.warning("events wait in memory, since the spool cannot be written: %s", error)
            return SpooledBatch(events, len(packed), packed=packed)
        return SpooledBatch(events, len(packed), path)

    def _open(self) -> Path:
        folder = self._folder / f"{os.getpid()}-{os.urandom(4).hex()}"
        folder.mkdir(mode=0o700, parents=True)
        self._own_lock = _locked(folder)
        self._own = folder
        return folder


def lines_of(batch: SpooledBatch) -> list[bytes]:
    """The lines of a batch. Raises OSError, EOFError if its file is missing or damaged."""
    return gzip.decompress(batch.body()).splitlines(keepends=True)


def _packed(lines: list[bytes]) -> bytes:
    return gzip.compress(b"".join(lines), _FAST, mtime=0)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _remove(folder: Path) -> None:
    with suppress(OSError):
        for path in folder.iterdir():
            path.unlink(missing_ok=True)
        folder.rmdir()


def _locked(folder: Path) -> int | None:
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    return lock


def _batches_in(folder: Path) -> Iterator[SpooledBatch]:
    for path in sorted(folder.glob(f"*{_SUFFIX}")):
        events = path.name.removesuffix(_SUFFIX).rpartition("-")[2]
        with suppress(OSError, ValueError):
            yield SpooledBatch(int(events), path.stat().st_size, path)


#: Timeout of connecting, and of each wait within an answer.
_ANSWER_SECONDS_MAX = 30.0
_ANSWER_BYTES_MAX = 1024 * 1024
_PAUSE_SECONDS_MIN, _PAUSE_SECONDS_MAX = 0.5, 60.0
#: The longest pause that a service may ask for.
_RETRY_AFTER_SECONDS_MAX = 300.0


class SendOutcome(enum.Enum):
    TAKEN = "taken"
    TOO_LARGE = "too_large"
    #: It will never be accepted.
    REFUSED = "refused"
    #: The service is unreachable or full.
    LATER = "later"
    #: The address or the key is wrong and must be corrected.
    UNUSABLE = "unusable"


class Reply(NamedTuple):
    status: int
    retry_after_s: float = 0.0
    rejected: int = 0
    problem: str = ""


_OUTCOMES = {200: SendOutcome.TAKEN, 413: SendOutcome.TOO_LARGE} | {
    **dict.fromkeys((400, 422), SendOutcome.REFUSED),
    **dict.fromkeys((0, 408, 425, 429), SendOutcome.LATER),
}


def outcome(reply: Reply) -> SendOutcome:
    other = SendOutcome.LATER if reply.status >= 500 else SendOutcome.UNUSABLE
    return _OUTCOMES.get(reply.status, other)


def pause_seconds(attempts: int, reply: Reply, chance: float) -> float:
    """The pause after this many failed attempts. `chance`, from 0 to 1, spreads many recorders, so
    that they do not overrun a service that is back."""
    if reply.retry_after_s:
        asked = min(reply.retry_after_s, _RETRY_AFTER_SECONDS_MAX)
        return asked * (1 + chance / 4)
    longest = min(_PAUSE_SECONDS_MAX, _PAUSE_SECONDS_MIN * 2.0 ** min(attempts, 10))
    return longest * (0.5 + chance / 2)


class Delivery:
    """One connection to a service. Not thread-safe."""

    def __init__(self, url: str, key: str | None) -> None:
        self.url = url
        self.key = key
        self._connection: HTTPConnection | None = None

    def send(self, packed: bytes) -> Reply:
        headers = {"Content-Type": "application/x-ndjson", "Content-Encoding": "gzip"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        reused = self._connection is not None
        reply = self._attempt(packed, headers)
        if reply.status == 0 and reused:  # servers close idle connections
            reply = self._attempt(packed, headers)
        return reply

    def close(self) -> None:
        if self._connection is not None:
            with suppress(OSError):
                self._connection.close()
            self._connection = None

    def _attempt(self, packed: bytes, headers: dict[str, str]) -> Reply:
        # Imported late: it takes half of the recorder's import time.
        from http.client import HTTPException
        from urllib.parse import urlsplit

        try:
            address = urlsplit(self.url)
            connection = self._connection = self._connection or _connection_to(address)
            path = f"{address.path.rstrip('/')}/v1/events"
            connection.request("POST", path, packed, headers)
            answer = connection.getresponse()
            body = answer.read(_ANSWER_BYTES_MAX)
            if answer.will_close or not answer.isclosed():
                self.close()
            return Reply(
                answer.status,
                _seconds(answer.getheader("Retry-After")),
                _rejected(answer.status, body),
                "" if answer.status == 200 else _title(body),
            )
        except (OSError, HTTPException, ValueError) as error:
            self.close()
            return Reply(0, problem=f"{type(error).__name__}: {error}")


def any_chance() -> float:
    """A random number from 0 to 1."""
    return os.urandom(1)[0] / 255


def _connection_to(address: "SplitResult") -> "HTTPConnection":
    from http.client import HTTPConnection, HTTPSConnection

    if not address.hostname or address.scheme not in ("http", "https"):
        raise ValueError("the address of the service begins with http:// or https://")
    kind = HTTPSConnection if address.scheme == "https" else HTTPConnection
    return kind(address.hostname, address.port, timeout=_ANSWER_SECONDS_MAX)


def _seconds(retry_after: str | None) -> float:
    text = (retry_after or "").strip()
    return float(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0.0


def _rejected(status: int, body: bytes) -> int:
    if status != 200:
        return 0
    with suppress(ValueError, TypeError, KeyError):
        return len(json.loads(body)["rejected"])
    return 0


def _title(body: bytes) -> str:
    with suppress(ValueError, TypeError, KeyError):
        problem = json.loads(body)
        return str(problem.get("detail") or problem.get("title") or problem.get("error"))[:500]
    return ""
