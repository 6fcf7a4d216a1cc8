"""Files of events into the lake, past HTTP but through the same log and writer."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from penstock.clock import SystemClock
from penstock.errors import Backlogged, InvalidInput
from penstock.ingest.acceptance import Acceptance, Acceptor
from penstock.ingest.errors import BodyUnreadable
from penstock.ingest.partition_writer import Parts
from penstock.ingest.settings import IngestSettings
from penstock.ingest.storing import wait_until_stored
from penstock.ingest.writer import Writer
from penstock.lake.lake import Lake
from penstock.metrics import Metrics

_READ_BYTES = 8 * 1024 * 1024
#: How long a running server may take to make room in the log.
_WAIT_SECONDS_MAX = 120
#: How long it may get nowhere in storing what was imported, beyond the age at which it has to.
_STORE_SECONDS_MAX = 10
_SUFFIXES = (".jsonl", ".ndjson", ".json")
_CODECS = {".gz": "gzip", ".zst": "zstd"}


@dataclass
class Imported:
    """What an import did. `stored` and `duplicate` stay 0 where a running server stores it;
    `waiting` is whether it has yet to."""

    files: int = 0
    accepted: int = 0
    rejected: int = 0
    stored: int = 0
    duplicate: int = 0
    by_server: bool = False
    waiting: bool = False


class Importer:
    """Imports files of one tenant."""

    def __init__(self, lake: Lake, tenant: str) -> None:
        self._lake = lake
        self._clock = SystemClock()
        self._metrics = Metrics()
        self._tenant = tenant
        settings = lake.settings
        self._acceptor = Acceptor.of(tenant, settings, lake.log)
        self._writer = Writer(
            Parts(
                settings=settings,
                database=lake.database,
                store=lake.store,
                log=lake.log,
                clock=self._clock,
                metrics=self._metrics,
                summariser=lake.summariser,
            )
        )
        self.imported = Imported()

    def take(self, path: Path) -> Iterator[int]:
        """Put the events of a file into the log; yields how many bytes of it were read so far.
        Raises InvalidInput, Backlogged; what was read before stays, and may be sent again."""
        first_line = 1
        for body, read in _bodies(path):
            try:
                for piece in self._acceptor.accept(body, self._clock.now_us(), first_line):
                    self._append(piece)
            except BodyUnreadable as error:
                raise InvalidInput(what=f"The file {path}", why=error.facts["why"]) from error
            first_line += body.count(b"\n")
            yield read
        self.imported.files += 1

    def finish(self) -> Imported:
        """Store what the log holds. A running server does so by itself, and is waited for: what
        comes next may ask for segments, as rewards do."""
        self.imported.by_server = not self._writer.drain()
        if self.imported.by_server:
            patience_s = (
                self._lake.settings.room(IngestSettings).flush_seconds_max + _STORE_SECONDS_MAX
            )
            self.imported.waiting = not wait_until_stored(self._lake, patience_s)
        metrics = self._metrics
        self.imported.stored = int(metrics.value("events_stored_total", tenant=self._tenant))
        duplicate = metrics.value("events_duplicate_total", tenant=self._tenant)
        self.imported.duplicate = int(duplicate)
        return self.imported

    def _append(self, piece: Acceptance) -> None:
        waited_s, drained = 0, False
        while piece.values:
            try:
                self._lake.log.append(piece.values)
                break
            except Backlogged as full:
                if drained or waited_s > _WAIT_SECONDS_MAX:
                    raise  # making room did not help
                drained = self._writer.drain()
                if not drained:  # a running server is at it
                    time.sleep(full.retry_after_s)
                    waited_s += full.retry_after_s
        self.imported.accepted += piece.accepted
        self.imported.rejected += len(piece.rejections)


def find_files(paths: list[Path]) -> list[Path]:
    """The files named, and those with events in the folders named. Raises InvalidInput."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = [one for one in sorted(path.rglob("*")) if _holds_events(one)]
            if not inside:
                kinds = ", ".join(_SUFFIXES)
                raise InvalidInput(what=f"The folder {path}", why=f"it holds no file of {kinds}")
            found += inside
        elif path.exists():
            found.append(path)
        else:
            raise InvalidInput(what=f"The file {path}", why="it does not exist")
    return found


def _holds_events(path: Path) -> bool:
    plain = path.with_suffix("") if path.suffix in _CODECS else path
    return path.is_file() and plain.suffix in _SUFFIXES


def _bodies(path: Path) -> Iterator[tuple[bytes, int]]:
    """Whole lines, or the one array that the file is, and how far the file was read."""
    with path.open("rb") as file:
        source = pa.PythonFile(file, mode="r")
        codec = _CODECS.get(path.suffix)
        stream = pa.CompressedInputStream(source, codec) if codec else source
        try:
            yield from _whole_lines(stream, file.tell)
        except OSError as error:
            raise InvalidInput(what=f"The file {path}", why=str(error)) from error


def _whole_lines(stream: pa.NativeFile, position: Callable[[], int]) -> Iterator[tuple[bytes, int]]:
    rest = b""
    while part := stream.read(_READ_BYTES):
        rest += part
        if rest.lstrip()[:1] == b"[":  # an array cannot be cut into lines
            continue
        cut = rest.rfind(b"\n") + 1
        if cut:
            yield rest[:cut], position()
            rest = rest[cut:]
    if rest:
        yield rest, position()
