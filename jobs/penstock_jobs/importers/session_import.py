"""Importing sessions: from sources of all formats to events in the event log."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from penstock.ingest.file_import import EventImporter
from penstock_jobs.importers.importer import ImportedEvent, Importer, LogImporter
from penstock_jobs.importers.progress import (
    KEPT_READERS_MAX,
    ImportProgress,
    KeptReadings,
    LogReading,
    ReadSource,
    is_log,
    mark_of,
)
from penstock_jobs.importers.report import FormatReport, Notes, SessionImportReport, SourceUnfit
from penstock_jobs.importers.sources import Source

#: Marks a session of a vendor's model. Recipes leave such sessions out.
VENDOR_MODEL = "x_vendor_model"
#: Names may begin with a provider (`anthropic/claude-…`) or a proxy's prefix (`azure-gpt-5`).
_FAMILIES = {
    "Anthropic": re.compile(
        r"(?:^|[/.:_-])(?:claude|haiku|sonnet|opus)(?:[/.:_@-]|\d|$)", re.IGNORECASE
    ),
    "OpenAI": re.compile(
        r"(?:^|[/.:])(?:gpt-(?!oss)|chatgpt|o[1345](?:-|$)|codex-|computer-use)|[_-]gpt-[3-9]",
        re.IGNORECASE,
    ),
    "Google": re.compile(r"(?:^|[/.:_-])gemini\b", re.IGNORECASE),
    "xAI": re.compile(r"(?:^|[/.:])grok-(?:[3-9]|code|build)", re.IGNORECASE),
    "Cursor": re.compile(r"(?:^|[/.:])(?:composer-\d|cursor-)", re.IGNORECASE),
    "Amazon": re.compile(r"(?:^|[/.:])nova-", re.IGNORECASE),
    "Mistral": re.compile(r"(?:^|[/.:])mistral-(?:large|medium)", re.IGNORECASE),
}


def vendor_of(model: str | None) -> str | None:
    """The vendor of a model. None for open weights and unknown names."""
    if not model:
        return None
    return next((vendor for vendor, names in _FAMILIES.items() if names.search(model)), None)


_encoder = msgspec.json.Encoder()
#: Bytes and sources that are appended to the event log together.
_BODY_BYTES = 4 * 1024 * 1024
_SOURCES_AT_ONCE = 500
#: Errors that rows of an unexpected shape cause in importers. Only their source is left out.
READ_ERRORS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
_STEP_EVENTS = 500


@dataclass(frozen=True, kw_only=True)
class SourceSelection:
    since_us: int | None = None
    project: str | None = None


@dataclass
class SessionImporter:
    """Imports sources. Without `lake_import` and `progress` it only counts."""

    lake_import: EventImporter | None
    progress: ImportProgress | None
    selection: SourceSelection = SourceSelection()
    kept: KeptReadings | None = None
    report: SessionImportReport = field(default_factory=SessionImportReport)
    _body: bytearray = field(default_factory=bytearray)
    _read: list[ReadSource] = field(default_factory=list)
    _readings: list[LogReading] = field(default_factory=list)

    def take(self, source: Source, importer: Importer) -> Iterator[tuple[int, int]]:
        """Import a source; yields the bytes read so far, and their total.

        A source that cannot be read is left out. Small sources are appended together: call `flush`
        at the end. Raises Backlogged, BodyUnreadable."""
        report, notes = self.report.of(importer.name), Notes(str(source.path))
        try:
            # Taken before reading, so that anything appended meanwhile counts as a change.
            mark, size = mark_of(source, importer), source.size()
            since_us = self.selection.since_us
            is_old = since_us is not None and source.changed_us() < since_us
            if is_old or (self.progress is not None and self.progress.knows(source, mark)):
                report.unchanged += 1
                return
        except OSError as error:
            self._leave_out(source, error.strerror or str(error))
            return
        report.sources += 1
        made, problems, read_before = 0, len(self.report.unfit), source.progress.read_bytes
        reading = self._reading(source, importer)
        marked: set[tuple[str, str]] = set()
        events = importer.read(source, notes) if reading is None else reading.events(notes)
        for event in self._readable(source, events):
            marked = reading.reader.memory.marked if reading is not None else marked
            if self.selection.project not in (None, event.project):
                notes.skip("event of another project", event.project or "")
                continue
            made += 1
            self._take(event, report, notes)
            if (vendor := _vendor_mark(event, marked)) is not None:
                self._add(vendor, notes)
            if made % _STEP_EVENTS == 0:
                yield source.progress.position, size
        if notes.held is not None:
            report.growing += 1
        report.read_bytes += source.progress.read_bytes - read_before
        report.add_skipped(notes)
        problem = self.report.unfit[-1][1] if len(self.report.unfit) > problems else None
        report.end_source(notes, gave_events=made > 0, problem=problem)
        if problem is None:
            self._note(source, importer, "" if notes.held is not None else mark, reading)

    def take_events(self, events: Iterable[ImportedEvent], name: str) -> None:
        """Import events without a source, reported under `name`. Raises as `take`."""
        report, notes = self.report.of(name), Notes(name)
        for event in events:
            self._take(event, report, notes)
        self.flush()
        report.add_skipped(notes)

    def _take(self, event: ImportedEvent, report: FormatReport, notes: Notes) -> None:
        report.taken.add(event.session_id, event.type, event.payload)
        self._add(event, notes)
        if len(self._body) >= _BODY_BYTES:
            self.flush()

    def flush(self) -> None:
        """Append the events to the event log, then remember their sources. Raises as `take`."""
        if self._body and self.lake_import is not None:
            self.lake_import.take_body(bytes(self._body))
        self._body.clear()
        if self.progress is not None and self.selection.project is None:
            self.progress.note(self._read)
        for reading in self._readings:
            if self.kept is not None:
                self.kept.keep(reading)
        self._readings.clear()
        self._read.clear()

    def _reading(self, source: Source, importer: Importer) -> LogReading | None:
        if not (isinstance(importer, LogImporter) and is_log(source, importer)):
            return None
        reading = self.kept.take(source) if self.kept is not None else None
        if reading is None and self.progress is not None:
            reading = self.progress.reading_of(source, importer)
        return reading or LogReading.begin(source, importer)

    def _note(
        self, source: Source, importer: Importer, mark: str, reading: LogReading | None
    ) -> None:
        """Note that a source was read. Raises as `take`."""
        stored = reading.to_store() if reading is not None else None
        self._read.append(ReadSource(source, importer, mark, stored))
        if reading is not None and self.kept is not None:
            self._readings = [*self._readings, reading][-KEPT_READERS_MAX:]
        if stored is not None or len(self._read) >= _SOURCES_AT_ONCE:
            self.flush()

    def _readable(self, source: Source, events: Iterator[ImportedEvent]) -> Iterator[ImportedEvent]:
        try:
            yield from events
        except SourceUnfit as error:
            self._leave_out(source, str(error))
        except OSError as error:
            self._leave_out(source, error.strerror or str(error))
        except READ_ERRORS as error:
            kind = type(error).__name__
            self._leave_out(source, f"it has an unexpected shape: {kind}: {error}")

    def _leave_out(self, source: Source, why: str) -> None:
        self.report.unfit.append((str(source.path), why))

    def _add(self, event: ImportedEvent, notes: Notes) -> None:
        start = len(self._body)
        try:
            _encoder.encode_into(event, self._body, start)
            self._body += b"\n"
        except (ValueError, RecursionError) as error:
            del self._body[start:]
            notes.skip(f"{event.type} that is not an event: {error}", event.event_id)


def _vendor_mark(event: ImportedEvent, marked: set[tuple[str, str]]) -> ImportedEvent | None:
    model = event.payload.get("model") if event.type == "model_call" else None
    vendor = vendor_of(model) if isinstance(model, str) else None
    if vendor is None or (event.session_id, vendor) in marked:
        return None
    marked.add((event.session_id, vendor))
    payload = {"vendor": vendor, "model": model, "trainable": False}
    name = f"{event.event_id}:vendor"
    return replace(event, type=VENDOR_MODEL, payload=payload, event_id=name, source_key=name)
