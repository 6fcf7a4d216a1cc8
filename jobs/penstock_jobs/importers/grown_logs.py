"""Reading logs that grow: from where reading stopped, by a reader that remembers what came before.

While a command runs it keeps readers. Between runs the lake remembers where reading of a large log
stopped, and what its reader knew; a small one is read again, which costs less. Both follow the
events: a place is only kept once all events before it are in the log of the lake."""

import zlib
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from penstock.ingest.event_files import CODECS_BY_SUFFIX
from penstock_jobs.importers.importer import ImportedEvent, Importer, LogImporter, RowReader
from penstock_jobs.importers.report import Notes
from penstock_jobs.importers.sources import LineCursor, LinePlace, PlaceLost, Source

#: The lake remembers a place once so much was read since the one that it remembers.
STORED_STEP_BYTES = 8 * 1024 * 1024
#: So many readers are kept, of live sessions. Others go on from what the lake remembers.
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
    #: How far the lake remembers.
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
        """None where the lake remembers enough."""
        offset = self.place.offset if self.place is not None else 0
        if not self.is_sound or offset < self.stored_offset + STORED_STEP_BYTES:
            return None
        assert self.place is not None
        try:
            memory = msgspec.Raw(msgspec.msgpack.encode(self.reader.memory))
        except (OverflowError, RecursionError, TypeError, ValueError):
            return None  # a source may hold numbers, say, that msgpack has no room for
        stored = _StoredReading(self.importer.version, self.place, memory)
        self.stored_offset = offset
        return zlib.compress(msgspec.msgpack.encode(stored), 1)

    @staticmethod
    def from_store(source: Source, importer: LogImporter, content: bytes) -> "LogReading | None":
        """None where the importer has changed since."""
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
    """What a command that goes on has read so far."""

    def __init__(self) -> None:
        self._readings: OrderedDict[Path, LogReading] = OrderedDict()

    def take(self, source: Source) -> LogReading | None:
        """It is kept no longer: it goes on, and may fail."""
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
    """Whether it can be read on: what is compressed, or no file of lines, cannot."""
    return (
        isinstance(importer, LogImporter)
        and not source.is_folder
        and source.real.suffix not in CODECS_BY_SUFFIX
        and importer.reads_lines(source)
    )
