"""Imports sources of sessions, with a lake and without one."""

from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from penstock.core.settings import load_settings
from penstock.ingest.file_import import FileImporter, ImportSummary
from penstock.lake.lake import open_or_make
from penstock_jobs.importers.import_run import plan_import
from penstock_jobs.importers.progress import ImportProgress, KeptReadings
from penstock_jobs.importers.report import SessionImportReport
from penstock_jobs.importers.session_import import VENDOR_MODEL, SessionImporter

Event = dict[str, Any]

FIXTURES = Path(__file__).parents[1] / "room" / "importers" / "fixtures"
#: Beside the sources of a case: what is expected of them.
EXPECTED = "expected.json"


def cases() -> Iterator[tuple[str, Path]]:
    for folder in sorted(FIXTURES.glob("*/*")):
        yield folder.parent.name, folder


class EventCollector(SessionImporter):
    def __init__(
        self, progress: ImportProgress | None = None, kept: KeptReadings | None = None
    ) -> None:
        super().__init__(None, progress, kept=kept)
        self.events: list[Event] = []

    def _add(self, event: Any, _notes: Any) -> None:
        self.events.append(msgspec.to_builtins(event))

    def take_all(self, *paths: Path, form: str = "auto") -> None:
        for source, of_format, _size in plan_import(list(paths), form).sources:
            for _ in self.take(source, of_format):
                pass
        self.flush()


def events_of(*paths: Path, form: str = "auto", marks: bool = False) -> list[Event]:
    """The events that sources give, in their order, without a lake; with `marks` also those that
    say whose model wrote a session."""
    collector = EventCollector()
    collector.take_all(*paths, form=form)
    return [event for event in collector.events if marks or event["type"] != VENDOR_MODEL]


def payloads(events: Iterable[Event], kind: str) -> list[Event]:
    return [event["payload"] for event in events if event["type"] == kind]


def report_of(*paths: Path, form: str = "auto") -> SessionImportReport:
    importer = SessionImporter(None, None)
    for source, of_format, _size in plan_import(list(paths), form).sources:
        for _ in importer.take(source, of_format):
            pass
    return importer.report


def take(data: Path, paths: Iterable[Path]) -> tuple[SessionImportReport, ImportSummary]:
    """As `penstock import`, each path as an import of its own; what the last one says."""
    with closing(open_or_make(load_settings(data))) as lake:
        for path in paths:
            files = FileImporter(lake, "default")
            importer = SessionImporter(files, ImportProgress(lake.database, "default"))
            for source, of_format, _size in plan_import([path]).sources:
                for _ in importer.take(source, of_format):
                    pass
            importer.flush()
            outcome = importer.report, files.finish()
    return outcome


def stored(data: Path) -> list[tuple[Any, ...]]:
    sql = """SELECT session_id, event_id, type, ts, seq, source, source_key, project, payload
        FROM events ORDER BY ALL"""
    with closing(open_or_make(load_settings(data))) as lake:
        table = lake.query(sql).arrow()
    return [tuple(row.values()) for row in table.to_pylist()]
