"""Importing sessions: from the sources of all formats to events in the log."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from penstock.ingest.errors import BodyUnreadable
from penstock.ingest.file_import import EventImporter
from penstock_jobs.importers.importer import ImportedEvent, Importer
from penstock_jobs.importers.progress import ImportProgress, mark_of
from penstock_jobs.importers.report import FormatReport, ImportReport, Notes, Unfit
from penstock_jobs.importers.sources import Source
from penstock_jobs.importers.vendors import VENDOR_MODEL, vendor_of

#: So much goes to the log at once.
_BODY_BYTES = 4 * 1024 * 1024
#: What a row of an unexpected shape may cause in an importer. It costs its source, and no other.
_SHAPES = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
#: Between two steps of the progress bar.
_STEP_EVENTS = 500


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What of the sources is taken."""

    #: Sources that did not change since are left out.
    since_us: int | None = None
    project: str | None = None


class SessionImporter:
    """Takes sources. Without `lake_import` and `progress` it only counts."""

    def __init__(
        self,
        lake_import: EventImporter | None,
        progress: ImportProgress | None,
        selection: Selection = Selection(),  # immutable
    ) -> None:
        self.report = ImportReport()
        self._lake_import = lake_import
        self._progress = progress
        self._selection = selection
        self._encoder = msgspec.json.Encoder()

    def take(self, source: Source, importer: Importer) -> Iterator[tuple[int, int]]:
        """Append the events of a source to the log; yields how many bytes of it were read so far,
        of how many. A source that cannot be read costs no other. Raises Backlogged."""
        report, notes = self.report.of(importer.name), Notes(str(source.path))
        try:
            # Before it is read: what is appended to it meanwhile is a change.
            mark, size = mark_of(source, importer), source.size()
            if self._is_old(source, report, mark):
                return
            report.sources += 1
            body, made, marked = bytearray(), 0, set[tuple[str, str]]()
            for event in importer.read(source, notes):
                if self._selection.project not in (None, event.project):
                    notes.skip("event of another project", event.project or "")
                    continue
                made += 1
                report.taken.add(event.session_id, event.type, event.payload)
                self._add(body, event, notes)
                if (vendor := _vendor_mark(event, marked)) is not None:
                    self._add(body, vendor, notes)
                if len(body) >= _BODY_BYTES:
                    self._append(body)
                if made % _STEP_EVENTS == 0:
                    yield source.progress[0], size
            self._append(body)
        except Unfit as error:
            self.report.unfit.append((str(source.path), str(error)))
            self._append(body)
        except _SHAPES as error:
            why = f"it has a shape that nobody expected: {type(error).__name__}: {error}"
            self.report.unfit.append((str(source.path), why))
            self._append(body)
        except OSError as error:
            self.report.unfit.append((str(source.path), error.strerror or str(error)))
            return
        else:
            if notes.held is not None:
                report.growing += 1
            elif self._progress is not None and self._selection.project is None:
                self._progress.note(source, importer, mark)
        report.add_skipped(notes)

    def take_events(self, events: Iterable[ImportedEvent], name: str) -> None:
        """Append events that no source holds; the report has them by this name."""
        report, notes, body = self.report.of(name), Notes(name), bytearray()
        for event in events:
            report.taken.add(event.session_id, event.type, event.payload)
            self._add(body, event, notes)
            if len(body) >= _BODY_BYTES:
                self._append(body)
        self._append(body)
        report.add_skipped(notes)

    def _is_old(self, source: Source, report: FormatReport, mark: str) -> bool:
        since_us = self._selection.since_us
        if since_us is not None and source.changed_us() < since_us:
            report.unchanged += 1
            return True
        if self._progress is not None and self._progress.knows(source, mark):
            report.unchanged += 1
            return True
        return False

    def _add(self, body: bytearray, event: ImportedEvent, notes: Notes) -> None:
        try:
            self._encoder.encode_into(event, body, len(body))
        except (ValueError, RecursionError, UnicodeEncodeError) as error:
            notes.skip(f"{event.type} that is no event: {error}", event.event_id)
            return
        body += b"\n"

    def _append(self, body: bytearray) -> None:
        if body and self._lake_import is not None:
            try:
                self._lake_import.take_body(bytes(body))
            except BodyUnreadable as error:
                raise Unfit(error.facts["why"]) from error
        body.clear()


def _vendor_mark(event: ImportedEvent, marked: set[tuple[str, str]]) -> ImportedEvent | None:
    """With the first call of a vendor's model in a session, an event that says so."""
    model = event.payload.get("model") if event.type == "model_call" else None
    vendor = vendor_of(model) if isinstance(model, str) else None
    if vendor is None or (event.session_id, vendor) in marked:
        return None
    marked.add((event.session_id, vendor))
    payload = {"vendor": vendor, "model": model, "trainable": False}
    name = f"{event.event_id}:vendor"
    return replace(event, type=VENDOR_MODEL, payload=payload, event_id=name, source_key=name)
