"""Progress of imports: only changed sources are read again, and only the new end of large logs.

While a command runs it keeps the readers of logs. Between runs the lake remembers where reading of
a large log stopped, and the reader's memory; small logs are read again, which costs less. A place
is only kept once all events before it are in the event log."""

import os
import time
import zlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa
from sqlalchemy import BigInteger, Column, LargeBinary, String, Table, Text
from xxhash import xxh3_128_hexdigest

from penstock.access.privacy.orders import CONTENT, ErasedPart, ErasureOrder, ErasureStep
from penstock.backends.database.engine import Database, clock_us, insert_of
from penstock.backends.database.tables import metadata
from penstock.ingest.event_files import CODECS_BY_SUFFIX
from penstock_jobs.importers.importer import (
    ImportedEvent,
    Importer,
    LogImporter,
    RowReader,
    all_importers,
)
from penstock_jobs.importers.report import Notes
from penstock_jobs.importers.sources import LineCursor, LinePlace, PlaceLost, Source

#: The lake remembers a new place after this many bytes.
STORED_STEP_BYTES = 8 * 1024 * 1024
#: Readers kept for live sessions. Other logs continue from the place in the lake.
KEPT_READERS_MAX = 8


class _StoredReading(msgspec.Struct):
    version: int
    place: LinePlace
    memory: msgspec.Raw


@dataclass
class LogReading:
    source: Source
    importer: LogImporter
    reader: RowReader[Any]
    #: None at the beginning of the file.
    place: LinePlace | None = None
    #: The place in the lake.
    stored_offset: int = 0
    is_sound: bool = False

    @staticmethod
    def begin(source: Source, importer: LogImporter) -> "LogReading":
        return LogReading(source, importer, importer.reader(source, importer.memory_type()))

    def events(self, notes: Notes) -> Iterator[ImportedEvent]:
        self.is_sound = False
        try:
            yield from self._appended(notes)
        except PlaceLost:
            anew = LogReading.begin(self.source, self.importer)
            self.reader, self.place, self.stored_offset = anew.reader, None, 0
            yield from self._appended(notes)

    def _appended(self, notes: Notes) -> Iterator[ImportedEvent]:
        cursor, reader = LineCursor(self.place), self.reader
        reader.notes = notes
        is_sound = True
        for number, row in self.source.rows(notes, cursor):
            is_sound = is_sound and not cursor.is_past_place
            yield from reader.take(number, row)
        yield from reader.finish()
        self.place, self.is_sound = cursor.place, is_sound

    def to_store(self) -> bytes | None:
        """Encode the place and the reader's memory, if the lake needs an update."""
        offset = self.place.offset if self.place is not None else 0
        if not self.is_sound or offset < self.stored_offset + STORED_STEP_BYTES:
            return None
        assert self.place is not None
        try:
            memory = msgspec.Raw(msgspec.msgpack.encode(self.reader.memory))
        except (OverflowError, RecursionError, TypeError, ValueError):
            return None  # sources may hold values that msgpack cannot encode, such as large numbers
        stored = _StoredReading(self.importer.version, self.place, memory)
        self.stored_offset = offset
        return zlib.compress(msgspec.msgpack.encode(stored), 1)

    @staticmethod
    def from_store(source: Source, importer: LogImporter, content: bytes) -> "LogReading | None":
        """Decode a stored reading. Returns None if the importer has changed since."""
        try:
            stored = msgspec.msgpack.decode(zlib.decompress(content), type=_StoredReading)
            memory = msgspec.msgpack.decode(stored.memory, type=importer.memory_type)
        except (zlib.error, msgspec.MsgspecError):
            return None
        if stored.version != importer.version:
            return None
        reader, place = importer.reader(source, memory), stored.place
        return LogReading(source, importer, reader, place, place.offset)


class KeptReadings:
    """The readings that a running command keeps."""

    def __init__(self) -> None:
        self._readings: OrderedDict[Path, LogReading] = OrderedDict()

    def take(self, source: Source) -> LogReading | None:
        """Take a reading out: it continues now, and may fail."""
        reading = self._readings.pop(source.real, None)
        if reading is not None:
            reading.source = source
        return reading

    def keep(self, reading: LogReading) -> None:
        if not reading.is_sound:
            return
        self._readings[reading.source.real] = reading
        if len(self._readings) > KEPT_READERS_MAX:
            self._readings.popitem(last=False)


def is_log(source: Source, importer: Importer) -> bool:
    """Whether a source can be read on from a place: it has lines and is not compressed."""
    return (
        isinstance(importer, LogImporter)
        and not source.is_folder
        and source.real.suffix not in CODECS_BY_SUFFIX
        and importer.reads_lines(source)
    )


imported_source = Table(
    "imported_source",
    metadata,
    Column("tenant", String(128), primary_key=True),
    #: Digest of the path without links: a path may be too long for an index.
    Column("digest", String(32), primary_key=True),
    Column("path", Text, nullable=False),
    Column("format", String(128), nullable=False),
    #: Differs if the source has changed since; empty while its end is left for later.
    Column("mark", String(32), nullable=False),
    Column("imported_at", BigInteger, nullable=False),
    #: For a large log: where reading stopped, and the reader's memory.
    Column("reading", LargeBinary),
)


_CHANGING = ("path", "format", "mark", "imported_at")


class ReadSource(NamedTuple):
    """A source whose events were all imported, in the state that `mark` names."""

    source: Source
    importer: Importer
    #: Empty while its end is left for later.
    mark: str
    reading: bytes | None


class ImportProgress:
    """The sources that a tenant imported. It only saves reading: the lake itself keeps each event
    once."""

    def __init__(self, database: Database, tenant: str) -> None:
        self._database = database
        self._tenant = tenant
        columns = imported_source.c
        stored = sa.select(columns.digest, columns.mark, columns.format)
        rows = database.rows(stored.where(columns.tenant == tenant))
        #: Mark and format, by digest.
        self._known: dict[str, tuple[str, str]] = {
            row.digest: (row.mark, row.format) for row in rows
        }

    def knows(self, source: Source, mark: str) -> bool:
        return self._known.get(_digest(source), ("", ""))[0] == mark

    def importer_of(self, source: Source) -> Importer | None:
        """The importer that read a source, if the source has not changed since."""
        _, name = self._known.get(_digest(source), ("", ""))
        importer = next((each for each in all_importers() if each.name == name), None)
        try:
            unchanged = importer is not None and self.knows(source, mark_of(source, importer))
        except OSError:
            return None
        return importer if unchanged else None

    def reading_of(self, source: Source, importer: LogImporter) -> LogReading | None:
        """The stored reading of a log, if there is one."""
        columns = imported_source.c
        of_source = sa.and_(columns.tenant == self._tenant, columns.digest == _digest(source))
        stored = self._database.scalar(
            sa.select(columns.reading).where(of_source, columns.format == importer.name)
        )
        return LogReading.from_store(source, importer, stored) if stored else None

    def note(self, sources: Sequence[ReadSource]) -> None:
        """Remember that all events of these sources are in the event log."""
        rows = [self._row(source) for source in sources if source.mark or source.reading]
        if not rows:
            return
        with self._database.write() as connection:
            insert = insert_of(connection)(imported_source)
            newest = {name: insert.excluded[name] for name in _CHANGING}
            newest["reading"] = sa.func.coalesce(insert.excluded.reading, imported_source.c.reading)
            keys = ["tenant", "digest"]
            connection.execute(
                insert.on_conflict_do_update(index_elements=keys, set_=newest),
                [row | {"imported_at": clock_us(connection)} for row in rows],
            )
        for row in rows:
            self._known[row["digest"]] = row["mark"], row["format"]

    def _row(self, read: ReadSource) -> dict[str, Any]:
        return {
            "tenant": self._tenant,
            "digest": _digest(read.source),
            "path": os.fsencode(read.source.real).decode(errors="backslashreplace"),
            "format": read.importer.name,
            "mark": read.mark,
            "reading": read.reading,
        }


@dataclass
class WatchedSources:
    """The sources that a watcher reads: changed ones, and all of them from time to time."""

    again_s: float
    _looks: dict[Path, tuple[str, float]] = field(default_factory=dict)

    def is_due(self, source: Source, importer: Importer) -> bool:
        try:
            mark = mark_of(source, importer)
        except OSError:
            return False
        now = time.monotonic()
        known, until = self._looks.get(source.real, ("", now))
        if mark == known and now < until:
            return False
        self._looks[source.real] = mark, now + self.again_s
        return True


def mark_of(source: Source, importer: Importer) -> str:
    return xxh3_128_hexdigest(f"{importer.name}:{importer.version}:{source.mark()}".encode())


def _digest(source: Source) -> str:
    return xxh3_128_hexdigest(os.fsencode(source.real))


def _forget_sources(order: ErasureOrder) -> Iterator[ErasedPart]:
    mine = sa.delete(imported_source).where(imported_source.c.tenant == order.scope.tenant)
    with order.lake.database.write() as connection:
        forgotten = connection.execute(mine).rowcount
    yield ErasedPart({"imported sources": forgotten})


PART = ErasureStep(CONTENT, _forget_sources)
