"""What an importer is: it recognises the sources of a format, and turns each into events.

A source is a file, or a folder whose files belong together, such as a store of one file a message.
The same source gives the same events with the same ids whenever it is read, so that the lake keeps
each once. A source that grew gives at least what it gave before.
"""

import os
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from msgspec import Struct, field

from penstock.core.errors import InvalidInput
from penstock.events.messages import present
from penstock_jobs.importers import formats
from penstock_jobs.importers.fields import moment, text
from penstock_jobs.importers.report import Notes
from penstock_jobs.importers.sources import Candidate, Source

#: Events of one row are numbered within it: `seq` is the row's number times this, and the event's.
EVENTS_PER_ROW = 1000
#: What a reader remembers of a log to find copies and late rows; older entries are forgotten.
_ENTRIES_REMEMBERED = 100_000

Value = TypeVar("Value")


class ImportedEvent(Struct, omit_defaults=True, kw_only=True):
    """An event as an importer makes it; the fields are those of docs/events.md."""

    session_id: str
    #: RFC 3339 with a zone, or microseconds.
    ts: str | int
    type: str
    payload: dict[str, Any]
    #: Unique in the session, and made of the source's own ids.
    event_id: str
    seq: int | None = None
    source: str | None = None
    #: The id of what it was made of, the same in the copy that a resume or a fork made of it.
    source_key: str | None = None
    checkpoint: str | None = None
    user: str | None = None
    project: str | None = None


class SessionEvents(Struct):
    """Makes the events of one session: the ids and numbers that they need."""

    session_id: str
    source: str
    project: str | None = None
    #: The row of the last event, and how many it had before.
    row: int = -1
    made: int = 0

    def number(self, row: int) -> int:
        """The `seq` of the next event of this row of the source."""
        self.made = self.made + 1 if row == self.row else 0
        self.row = row
        return row * EVENTS_PER_ROW + min(self.made, EVENTS_PER_ROW - 1)

    def event(
        self, kind: str, ts: str | int, key: str, payload: dict[str, Any], seq: int
    ) -> ImportedEvent:
        """`key` is the source's own id of what this is made of. What is None is left out."""
        return ImportedEvent(
            session_id=self.session_id,
            ts=ts,
            type=kind,
            payload=present(payload),
            event_id=key,
            seq=seq,
            source=self.source,
            source_key=key,
            project=self.project,
        )


class Importer(ABC):
    """One for each format, in a module of its own in `formats/`, in IMPORTERS."""

    #: As `--format` has it.
    name: ClassVar[str]
    #: It grows when the same source gives other events: then sources are read again.
    version: ClassVar[int] = 1
    #: What `--discover` looks into: paths that begin with ~, or with $NAME of the environment.
    homes: ClassVar[Sequence[str]] = ()

    @abstractmethod
    def recognises(self, candidate: Candidate) -> bool:
        """Whether a file, or a folder as a whole, is of this format: by its content, and by its
        name only where the content says nothing. Look at the name first: it costs nothing."""

    def sources(self, candidate: Candidate) -> Iterable[Source]:
        """What is read and remembered by itself; a large store is one source a session."""
        yield candidate.source()

    def copies(self, sources: Sequence[Source]) -> Collection[Source]:
        """Those of an import's sources that hold what another source of this format on this machine
        holds in full: they are left out."""
        return ()

    @abstractmethod
    def read(self, source: Source, notes: Notes) -> Iterator[ImportedEvent]:
        """The events of a source in bounded memory. What is not taken goes to `notes`, by kind.
        Raises SourceUnfit for a source that cannot be read at all; what came before stays."""


def expanded_home(home: str) -> Path | None:
    """One of an importer's `homes` on this machine; None where its variable is not set."""
    expanded = os.path.expandvars(home)
    return Path(expanded).expanduser() if "$" not in expanded else None


class OpenAnswer(Struct, kw_only=True):
    key: str
    ts_us: int
    seq: int
    texts: list[str] = field(default_factory=list)
    thinking: list[str] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)

    def event(self, session: SessionEvents, **facts: Any) -> ImportedEvent:
        said = {
            "text": "\n".join(self.texts) or None,
            "thinking": "\n".join(self.thinking) or None,
            "tool_calls": self.calls or None,
        }
        return session.event("model_call", self.ts_us, self.key, said | facts, self.seq)


class LogMemory(Struct):
    """What is known of the rows before, as msgspec can write it down."""

    ts_us: int | None = None
    #: Sessions that are marked as written by a vendor's model, with the vendor.
    marked: set[tuple[str, str]] = field(default_factory=set)


Memory = TypeVar("Memory", bound=LogMemory)


class RowReader(ABC, Generic[Memory]):
    """Makes events of the rows of a log, one after the other."""

    notes: Notes

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self._number = 0

    def take(self, number: int, row: dict[str, Any]) -> Iterator[ImportedEvent]:
        self._number = number
        self.memory.ts_us = moment(row, "timestamp") or self.memory.ts_us
        return self._events(text(row, "type"), row)

    @abstractmethod
    def _events(self, kind: str | None, row: dict[str, Any]) -> Iterator[ImportedEvent]: ...

    @abstractmethod
    def finish(self) -> Iterator[ImportedEvent]:
        """What the log ends with so far. It changes nothing: more rows may come."""

    def _made(
        self, session: SessionEvents, kind: str, payload: dict[str, Any], key: str
    ) -> ImportedEvent:
        assert self.memory.ts_us is not None
        seq = session.number(self._number)
        return session.event(kind, self.memory.ts_us, key, payload, seq)

    def _skip(self, kind: str) -> None:
        self.notes.skip(kind, f"line {self._number}")


class LogImporter(Importer):
    """Of a format whose files are logs of rows that agents append to: such a file is read on from
    where it ended before."""

    memory_type: ClassVar[type[LogMemory]]

    @abstractmethod
    def reader(self, source: Source, memory: Any) -> RowReader[Any]: ...

    def reads_lines(self, source: Source) -> bool:
        return True

    def rows(self, source: Source, notes: Notes) -> Iterator[tuple[int, dict[str, Any]]]:
        return source.rows(notes)

    def read(self, source: Source, notes: Notes) -> Iterator[ImportedEvent]:
        reader = self.reader(source, self.memory_type())
        reader.notes = notes
        for number, row in self.rows(source, notes):
            yield from reader.take(number, row)
        yield from reader.finish()


class RecentEntries(Struct, Generic[Value]):
    """The newest entries of a mapping that would grow with its source."""

    newer: dict[str, Value] = field(default_factory=dict)
    older: dict[str, Value] = field(default_factory=dict)

    def get(self, key: str) -> Value | None:
        if key in self.newer:
            return self.newer[key]
        return self.older.get(key)

    def __setitem__(self, key: str, value: Value) -> None:
        self.newer[key] = value
        if len(self.newer) >= _ENTRIES_REMEMBERED // 2:
            self.older, self.newer = self.newer, {}


#: Entry points of this group name an Importer each.
_GROUP = "penstock.importers"


@cache
def all_importers() -> Sequence[Importer]:
    """In the order of their names."""
    modules = (
        import_module(f"{formats.__name__}.{module.name}")
        for module in pkgutil.iter_modules(formats.__path__)
    )
    known = [each for module in modules for each in getattr(module, "IMPORTERS", ())]
    known += [entry.load() for entry in entry_points(group=_GROUP)]
    return sorted(known, key=lambda importer: importer.name)


def importer_named(name: str) -> Importer:
    for importer in all_importers():
        if importer.name == name:
            return importer
    known = ", ".join(["auto", "events", *(importer.name for importer in all_importers())])
    raise InvalidInput(what=f"--format {name}", why=f"there is no such format; known: {known}")


def recognise(candidate: Candidate) -> Importer | None:
    return next((each for each in all_importers() if each.recognises(candidate)), None)


def homes() -> Iterator[tuple[Importer, Path]]:
    for importer in all_importers():
        for home in importer.homes:
            path = expanded_home(home)
            if path is not None and path.exists():
                yield importer, path
