"""Importers recognise the sources of a format and turn each into events.

A source is a file, or a folder whose files belong together. Reading the same source again gives the
same events with the same ids, so the lake keeps each once. A source that grew gives all earlier
events again.
"""

import os
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Generic, TypeVar

from msgspec import Struct, field

from penstock.core.errors import InvalidInput
from penstock.events.messages import present
from penstock_jobs.importers import formats
from penstock_jobs.importers.fields import moment, text
from penstock_jobs.importers.report import Notes
from penstock_jobs.importers.sources import Candidate, Source

#: `seq` is the row's number times this, plus the event's number within the row.
EVENTS_PER_ROW = 1000
#: Entries that a reader remembers, to find copies and late rows. Older ones are forgotten.
_ENTRIES_REMEMBERED = 100_000

Value = TypeVar("Value")


class ImportedEvent(Struct, omit_defaults=True, kw_only=True):
    """An event that an importer made. docs/events.md describes the fields."""

    session_id: str
    #: RFC 3339 with a zone, or microseconds.
    ts: str | int
    type: str
    payload: dict[str, Any]
    #: Unique in the session, made of the source's own ids.
    event_id: str
    seq: int | None = None
    source: str | None = None
    #: The source's id of what it was made of. Copies in resumed and forked sessions share it.
    source_key: str | None = None
    checkpoint: str | None = None
    user: str | None = None
    project: str | None = None


class SessionEvents(Struct):
    """Makes the events of one session, with their ids and numbers."""

    session_id: str
    source: str
    project: str | None = None
    #: The row of the last event, and the number of events that it had before.
    row: int = -1
    made: int = 0

    def number(self, row: int) -> int:
        """The `seq` of the next event of a row."""
        self.made = self.made + 1 if row == self.row else 0
        self.row = row
        return row * EVENTS_PER_ROW + min(self.made, EVENTS_PER_ROW - 1)

    def event(
        self, kind: str, ts: str | int, key: str, payload: dict[str, Any], seq: int
    ) -> ImportedEvent:
        """Make an event. `key` is the source's own id. None values are left out of the payload."""
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
    """The reader of a format: a class in a module of `formats/`."""

    #: Value of `--format`.
    name: ClassVar[str]
    #: Raise it when the same source gives other events, so that sources are read again.
    version: ClassVar[int] = 1
    #: Folders for `--discover`: paths that begin with ~ or a variable, such as $NAME.
    homes: ClassVar[Sequence[str]] = ()

    @abstractmethod
    def recognises(self, candidate: Candidate) -> bool:
        """Whether a file or a whole folder has this format. Decide by the content; look at the name
        first, which costs nothing."""

    def sources(self, candidate: Candidate) -> Iterable[Source]:
        """The sources in a candidate, each read and remembered by itself. A large store has one for
        each session."""
        yield candidate.source()

    def duplicates(self, sources: Sequence[Source]) -> Collection[Source]:
        """Sources to leave out, because another source of this format has all of their content."""
        return ()

    @abstractmethod
    def read(self, source: Source, notes: Notes) -> Iterator[ImportedEvent]:
        """Read the events of a source in bounded memory, and note what is skipped.

        Raises SourceUnfit if the rest cannot be read; events before that stay."""


def expanded_home(home: str) -> Path | None:
    """Expand one of an importer's `homes`. Returns None if its variable is not set."""
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
    """A reader's memory of earlier rows, which msgspec can encode."""

    ts_us: int | None = None
    #: Sessions that are marked as made with a vendor's model, with the vendor.
    marked: set[tuple[str, str]] = field(default_factory=set)


Memory = TypeVar("Memory", bound=LogMemory)


class RowReader(ABC, Generic[Memory]):
    """Makes events of the rows of a log, one by one."""

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
        """Make the events of an end that may still grow. The memory stays as it is."""

    def _made(
        self, session: SessionEvents, kind: str, payload: dict[str, Any], key: str
    ) -> ImportedEvent:
        assert self.memory.ts_us is not None
        seq = session.number(self._number)
        return session.event(kind, self.memory.ts_us, key, payload, seq)

    def _skip(self, kind: str) -> None:
        self.notes.skip(kind, f"line {self._number}")


class LogImporter(Importer):
    """The reader of a format whose files are logs that agents append to. Reading continues where it
    stopped before."""

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
    """A mapping that forgets its oldest entries, so it does not grow with its source."""

    newer: dict[str, Value] = field(default_factory=dict)
    older: dict[str, Value] = field(default_factory=dict)

    def get(self, key: str) -> Value | None:
        return self.newer.get(key, self.older.get(key))

    def __setitem__(self, key: str, value: Value) -> None:
        self.newer[key] = value
        if len(self.newer) >= _ENTRIES_REMEMBERED // 2:
            self.older, self.newer = self.newer, {}


#: Each entry point of this group names an Importer.
_GROUP = "penstock.importers"


@cache
def all_importers() -> Sequence[Importer]:
    """All importers, sorted by name."""
    modules = (
        import_module(f"{formats.__name__}.{module.name}")
        for module in pkgutil.iter_modules(formats.__path__)
    )
    known = [each for module in modules for each in _importers_in(module)]
    known += [entry.load() for entry in entry_points(group=_GROUP)]
    return sorted(known, key=lambda importer: importer.name)


def _importers_in(module: ModuleType) -> Iterator[Importer]:
    """Make the importers of a module. Base classes that it imports are left out."""
    kinds = (each for each in vars(module).values() if isinstance(each, type))
    return (
        kind()
        for kind in kinds
        if issubclass(kind, Importer) and kind.__module__ == module.__name__
    )


def importer_named(name: str) -> Importer:
    for importer in all_importers():
        if importer.name == name:
            return importer
    known = ", ".join(["auto", "events", *(importer.name for importer in all_importers())])
    raise InvalidInput(what=f"--format {name}", why=f"it is unknown; known formats: {known}")


def recognise(candidate: Candidate) -> Importer | None:
    return next((each for each in all_importers() if each.recognises(candidate)), None)


#: Stores that agents keep and nothing here can read, with the reason.
_UNREAD_STORES = {
    "~/.codeium/windsurf/cascade": "Windsurf encrypts its conversations; its hook may write them",
    "~/.gemini/antigravity/conversations": "Antigravity encrypts them; brain/ has transcripts",
    "~/.gemini/antigravity-cli/conversations": "Antigravity encrypts them; brain/ has transcripts",
}


def unread_stores() -> Iterator[tuple[Path, str]]:
    for store, why in _UNREAD_STORES.items():
        if (path := Path(store).expanduser()).is_dir():
            yield path, why


def homes() -> Iterator[tuple[Importer, Path]]:
    for importer in all_importers():
        for home in importer.homes:
            path = expanded_home(home)
            if path is not None and path.exists():
                yield importer, path
