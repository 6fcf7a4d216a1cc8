"""One run of `penstock import`: what it would take, what it takes, and what it goes on to take."""

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from penstock.access.errors import RoleMissing
from penstock.database.errors import DatabaseOutdated
from penstock.ingest.event_files import LeftOut
from penstock.ingest.file_import import ImportSummary, event_importer
from penstock.lake.desk import Desk, LocalDesk, open_desk
from penstock.lake.errors import LakeMissing
from penstock.terminal.long_commands import progress_of
from penstock.terminal.output import say
from penstock_jobs.importers.commits import GIT, commits_of_sessions
from penstock_jobs.importers.grown_logs import KeptReadings
from penstock_jobs.importers.plan import ImportPlan, Remembered, plan_import
from penstock_jobs.importers.progress import ImportProgress, WatchedSources
from penstock_jobs.importers.report import SessionImportReport
from penstock_jobs.importers.session_import import SessionImporter, SourceSelection

#: Between two looks at files that may have changed.
_WATCH_SECONDS = 2.0
#: The end of a file that somebody may still have been writing is looked at again after this.
_LOOK_AGAIN_SECONDS = 60.0


@dataclass
class ImportOutcome:
    report: SessionImportReport
    left_out: list[LeftOut]
    #: None of a dry run.
    summary: ImportSummary | None = None

    @property
    def all_rejected(self) -> bool:
        """Whether nothing of it is in the lake."""
        return bool(self.summary and self.summary.rejected and not self.summary.accepted)


@dataclass
class ImportRun:
    paths: list[Path]
    form: str
    selection: SourceSelection
    #: Whether it takes commits of the sessions' repositories too.
    git: bool
    #: Of a run that watches.
    kept: KeptReadings | None = None

    def plan(self, data: Path | None, url: str | None, tenant: str) -> ImportPlan:
        """By what the lake remembers, if there is one here."""
        remembered = _remembered_by(None)
        with suppress(LakeMissing, DatabaseOutdated), open_desk(data, url, tenant) as desk:
            remembered = _remembered_by(_progress(desk))
        return plan_import(self.paths, self.form, remembered)

    def count(self, plan: ImportPlan) -> ImportOutcome:
        """What it would take."""
        importer = SessionImporter(None, None, self.selection)
        _go_through(plan, importer)
        return ImportOutcome(importer.report, plan.left_out)

    def take(self, desk: Desk, plan: ImportPlan) -> ImportOutcome:
        lake_import = event_importer(desk)
        importer = SessionImporter(lake_import, _progress(desk), self.selection, self.kept)
        _go_through(plan, importer)
        importer.flush()
        for file in plan.event_files:
            with progress_of(file.path.name) as follow:
                for read, size in lake_import.take(file):
                    follow(read, size)
        summary = lake_import.finish()
        if self.git and plan.sources:
            problems = importer.report.unfit
            try:
                importer.take_events(commits_of_sessions(desk, problems), GIT)
            except RoleMissing as error:  # a key that may only send
                problems.append(("commits of the sessions", str(error)))
            summary = lake_import.finish()
        return ImportOutcome(importer.report, plan.left_out, summary)

    def watch(self, desk: Desk) -> None:
        """Look again and again, and say what came. A file that cannot be read says so once."""
        said: set[tuple[str, str]] = set()
        looks = WatchedSources(_LOOK_AGAIN_SECONDS)
        remembered = _remembered_by(_progress(desk))
        say("Watching for changes; Ctrl-C ends it.")
        while True:
            time.sleep(_WATCH_SECONDS)
            plan = plan_import(self.paths, self.form, remembered)
            plan.event_files.clear()
            plan.sources = [each for each in plan.sources if looks.is_due(each[0], each[1])]
            if not plan.sources:
                continue
            outcome = self.take(desk, plan)
            remembered = _remembered_by(_progress(desk))
            report, summary = outcome.report, outcome.summary
            report.unknown.clear()
            report.unfit = [each for each in report.unfit if each not in said]
            said.update(report.unfit)
            assert summary is not None
            if summary.stored or (summary.by_server and report.totals()) or report.unfit:
                for line in report.lines():
                    say(line)


def _remembered_by(progress: ImportProgress | None) -> Remembered:
    return progress.importer_of if progress is not None else lambda _source: None


def _progress(desk: Desk) -> ImportProgress | None:
    """None of a service, which knows nothing of the files here."""
    if not isinstance(desk, LocalDesk):
        return None
    return ImportProgress(desk.lake.database, desk.caller.tenant)


def _go_through(plan: ImportPlan, importer: SessionImporter) -> None:
    importer.report.unknown |= plan.unknown
    total = sum(size for _source, _importer, size in plan.sources)
    with progress_of("import") as follow:
        done = 0
        for source, of_format, size in plan.sources:
            for read, _size in importer.take(source, of_format):
                follow(done + min(read, size), total)
            done += size
            follow(done, total)
