"""A run of `penstock import`: its plan, the import, and watching for changes."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.access.keys import RoleMissing
from penstock.backends.database import DatabaseOutdated
from penstock.backends.terminal.output import progress_of, say
from penstock.core.clock import SystemClock
from penstock.core.endpoint import Client
from penstock.core.errors import InvalidInput
from penstock.ingest.event_files import EventFile, LeftOut, find_files, named_as_events, problem_of
from penstock.ingest.file_import import ImportSummary, event_importer
from penstock.lake import LakeMissing
from penstock.lake.client import LocalClient, open_client
from penstock_jobs.importers.importer import (
    ImportedEvent,
    Importer,
    SessionEvents,
    all_importers,
    homes,
    importer_named,
    recognise,
)
from penstock_jobs.importers.progress import ImportProgress, KeptReadings, WatchedSources
from penstock_jobs.importers.report import LeftOutKind, Notes, SessionImportReport
from penstock_jobs.importers.session_import import SessionImporter, SourceSelection
from penstock_jobs.importers.sources import Candidate, Source, candidates
from penstock_jobs.rewards.history.session_commits import GIT, SessionCommit, SessionCommits

if TYPE_CHECKING:
    import pyarrow as pa

AUTO = "auto"
#: The format of Penstock's own files.
EVENTS = "events"


@dataclass
class ImportPlan:
    #: Sources with their importers and sizes in bytes.
    sources: list[tuple[Source, Importer, int]] = field(default_factory=list)
    event_files: list[EventFile] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    #: Files of no known format, by suffix.
    unknown: dict[str, LeftOutKind] = field(default_factory=dict)


#: The importer of a source that was read before and did not change.
Remembered = Callable[[Source], Importer | None]


def plan_import(
    paths: list[Path], form: str = AUTO, remembered: Remembered = lambda _source: None
) -> ImportPlan:
    """Find the sources to import. Raises InvalidInput. A `remembered` source is not opened.

    With `auto`, a file that no importer recognises is read as events if it looks like events."""
    plan = ImportPlan()
    fixed = importer_named(form) if form not in (AUTO, EVENTS) else None
    usual = {home for _importer, home in homes()}
    for path in paths:
        is_known = form != EVENTS and _add_sessions(plan, path, fixed, remembered)
        if is_known or (path in usual and form != EVENTS):
            continue  # an installed agent may have no session yet
        if fixed is not None:
            raise InvalidInput(what=f"{path}", why=f"it has no file of the format {form}")
        if form == AUTO and not any(map(_may_hold_events, _files_of(path))):
            raise InvalidInput(what=f"{path}", why=_unknown_formats(path))
        files, left_out = find_files([path])
        plan.left_out += left_out
        plan.event_files += _with_events(files, plan.left_out, is_folder=path.is_dir())
    _leave_out_duplicates(plan)
    return plan


def _files_of(path: Path) -> Iterator[Candidate]:
    return (candidate for candidate, _ in candidates(path, Notes(""), lambda _folder: None))


def _unknown_formats(path: Path) -> str:
    """Say what was read, and what could have been. Raises InvalidInput for binary content."""
    files = list(_files_of(path))
    problem = None if path.is_dir() or not files else problem_of(files[0])
    kinds = Counter(file.path.suffix or "(no suffix)" for file in files)
    read = ", ".join(f"{count} × {suffix}" for suffix, count in sorted(kinds.items()))
    why = problem or f"nothing in it has a known format. Read: {read or 'no file'}"
    return f"{why}. Known formats: {', '.join(_known_formats())}"


def _known_formats() -> list[str]:
    return [EVENTS, *(importer.name for importer in all_importers())]


def _leave_out_duplicates(plan: ImportPlan) -> None:
    by_importer: dict[Importer, list[Source]] = {}
    for source, importer, _size in plan.sources:
        by_importer.setdefault(importer, []).append(source)
    for importer, sources in by_importer.items():
        if copies := importer.duplicates(sources):
            why = f"{len(copies)} × a copy of what {importer.name} keeps in full elsewhere"
            plan.left_out.append(LeftOut(min(copy.path for copy in copies), why))
            left_out = {copy.real for copy in copies}
            plan.sources = [each for each in plan.sources if each[0].real not in left_out]


def _with_events(
    files: list[EventFile], left_out: list[LeftOut], *, is_folder: bool
) -> list[EventFile]:
    """The files that hold events. Raises InvalidInput if a named file does not.

    In a folder such files are left out, if others remain."""
    fit: list[EventFile] = []
    problems: list[LeftOut] = []
    for file in files:
        if problem := problem_of(file):
            problems.append(LeftOut(file.path, problem))
        else:
            fit.append(file)
    if problems and not (fit and is_folder):
        raise InvalidInput(what=f"The file {problems[0].path}", why=problems[0].why)
    left_out += problems
    return fit


def _add_sessions(
    plan: ImportPlan, path: Path, fixed: Importer | None, remembered: Remembered
) -> bool:
    notes = Notes(str(path))

    def importer_of(candidate: Candidate) -> Importer | None:
        if fixed is None:
            return recognise(candidate)
        return fixed if fixed.recognises(candidate) else None

    unknown: list[tuple[EventFile, bool]] = []
    sources: list[tuple[Source, Importer, int]] = []
    for candidate, whole in candidates(path, notes, importer_of):
        known = None if candidate.is_folder or fixed else remembered(candidate.source())
        importer = whole or known or importer_of(candidate)
        if importer is not None:
            sources += [(each, importer, _size(each)) for each in importer.sources(candidate)]
        else:
            file = EventFile(candidate.path, candidate.folder, candidate.names)
            unknown.append((file, _looks_like_events(candidate)))
    if not sources:
        return False
    plan.sources += sources
    for kind, items in notes.skipped.items():
        plan.left_out.append(LeftOut(Path(items.example), f"{items.count} × {kind}"))
    for file, has_events in unknown:
        if has_events:
            plan.event_files.append(file)
        else:
            suffix = file.path.suffix or "(no suffix)"
            plan.unknown.setdefault(suffix, LeftOutKind(0, str(file.path))).count += 1
    return True


_EVENT_FIELDS = {"session_id", "ts", "type", "payload"}


def _looks_like_events(candidate: Candidate) -> bool:
    rows = candidate.first_rows if named_as_events(candidate.path) else []
    return bool(rows) and all(row.keys() >= _EVENT_FIELDS for row in rows)


def _may_hold_events(candidate: Candidate) -> bool:
    """Whether a file looks like events, even if their fields are misspelt."""
    rows = candidate.first_rows
    known = not rows or any(len(row.keys() & _EVENT_FIELDS) > 1 for row in rows)
    return known and named_as_events(candidate.path)


def _size(source: Source) -> int:
    try:
        return source.size()
    except OSError:
        return 0


#: Interval at which a watcher looks for changes.
_WATCH_SECONDS = 2.0
#: After this time an unchanged file is read again, if its end was left for later.
_LOOK_AGAIN_SECONDS = 60.0


@dataclass
class ImportOutcome:
    report: SessionImportReport
    left_out: list[LeftOut]
    #: None after a dry run.
    summary: ImportSummary | None = None


@dataclass
class ImportRun:
    paths: list[Path]
    form: str
    selection: SourceSelection
    #: Import commits of the sessions' repositories too.
    git: bool
    #: For a run that watches.
    kept: KeptReadings | None = None

    def plan(self, data: Path | None, url: str | None, tenant: str) -> ImportPlan:
        remembered = _remembered_by(None)
        with suppress(LakeMissing, DatabaseOutdated), open_client(data, url, tenant) as client:
            remembered = _remembered_by(_progress(client))
        return plan_import(self.paths, self.form, remembered)

    def count(self, plan: ImportPlan) -> ImportOutcome:
        """Count what would be imported."""
        importer = SessionImporter(None, None, self.selection)
        _go_through(plan, importer)
        return ImportOutcome(importer.report, plan.left_out)

    def take(self, client: Client, plan: ImportPlan) -> ImportOutcome:
        lake_import = event_importer(client)
        importer = SessionImporter(lake_import, _progress(client), self.selection, self.kept)
        _go_through(plan, importer)
        importer.flush()
        for file in plan.event_files:
            with progress_of(file.path.name) as follow:
                for read, size in lake_import.take(file):
                    follow(read, size)
        summary = lake_import.finish()
        if self.git and plan.sources:
            problems = importer.report.unfit
            commits = SessionCommits(partial(_ask, client), SystemClock().now_us())
            try:
                importer.take_events(map(_commit_event, commits.of_this_machine()), GIT)
            except RoleMissing as error:  # the key may only send events
                problems.append(("commits of the sessions", str(error)))
            for repository, own in commits.reports.items():
                if own.problem is not None:
                    problems.append((str(repository.directory), own.problem))
            summary = lake_import.finish()
        return ImportOutcome(importer.report, plan.left_out, summary)

    def watch(self, client: Client) -> None:
        """Import changes as they come, and report them. An unreadable file is reported once."""
        said: set[tuple[str, str]] = set()
        looks = WatchedSources(_LOOK_AGAIN_SECONDS)
        remembered = _remembered_by(_progress(client))
        say("Watching for changes until Ctrl-C.")
        while True:
            time.sleep(_WATCH_SECONDS)
            plan = plan_import(self.paths, self.form, remembered)
            plan.event_files.clear()
            plan.sources = [each for each in plan.sources if looks.is_due(each[0], each[1])]
            if not plan.sources:
                continue
            outcome = self.take(client, plan)
            remembered = _remembered_by(_progress(client))
            report, summary = outcome.report, outcome.summary
            report.unknown.clear()
            report.unfit = [each for each in report.unfit if each not in said]
            said.update(report.unfit)
            assert summary is not None
            if summary.stored or (summary.by_server and report.totals()) or report.unfit:
                for line in report.lines():
                    say(line)


def _ask(client: Client, sql: str) -> "pa.Table":
    with client.rows(sql, None) as answer:
        return answer.batches.read_all()


def _commit_event(commit: SessionCommit) -> ImportedEvent:
    maker = SessionEvents(commit.session_id, GIT, commit.project)
    return maker.event("vcs_commit", commit.ts_us, commit.event_id, commit.payload, commit.seq)


def _remembered_by(progress: ImportProgress | None) -> Remembered:
    return progress.importer_of if progress is not None else lambda _source: None


def _progress(client: Client) -> ImportProgress | None:
    if not isinstance(client, LocalClient):
        return None
    return ImportProgress(client.lake.database, client.caller.tenant)


def _go_through(plan: ImportPlan, importer: SessionImporter) -> None:
    importer.report.unknown |= plan.unknown
    importer.report.known = _known_formats()
    total = sum(size for _source, _importer, size in plan.sources)
    with progress_of("import") as follow:
        done = 0
        for source, of_format, size in plan.sources:
            for read, _size in importer.take(source, of_format):
                follow(done + min(read, size), total)
            done += size
            follow(done, total)
