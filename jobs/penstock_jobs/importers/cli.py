"""`penstock import`: files of events, and sessions that agents keep."""

import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.errors import InvalidInput
from penstock.events.event import TENANT_DEFAULT
from penstock.lake.desk import Desk, LocalDesk, open_desk
from penstock.terminal import options
from penstock.terminal.long_commands import ended_as_by_ctrl_c, progress_of
from penstock.terminal.options import since_us
from penstock.terminal.output import say, show_json, show_text

if TYPE_CHECKING:
    from penstock.ingest.event_files import LeftOut
    from penstock.ingest.file_import import ImportSummary
    from penstock_jobs.importers.plan import ImportPlan, Remembered
    from penstock_jobs.importers.report import SessionImportReport
    from penstock_jobs.importers.session_import import SessionImporter, SourceSelection

#: Between two looks at files that may have changed.
_WATCH_SECONDS = 2.0
#: The end of a file that somebody may still have been writing is looked at again after this.
_LOOK_AGAIN_SECONDS = 60.0


def import_(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(parser=options.path, help="Files, or folders of files."),
    ] = None,
    data: options.DeskData = None,
    url: options.Url = None,
    *,
    form: Annotated[
        str,
        typer.Option("--format", help="How they are written, such as events or claude-code."),
    ] = "auto",
    discover: Annotated[
        bool, typer.Option("--discover", help="Look where agents keep their sessions, and ask.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --discover: do not ask.")] = False,
    since: Annotated[
        str | None, typer.Option(help="Only files that changed since; an age such as 7d too.")
    ] = None,
    project: Annotated[str | None, typer.Option(help="Only sessions of this project.")] = None,
    git: Annotated[
        bool,
        typer.Option(
            "--git/--no-git",
            help="Take commits of the sessions' repositories, which say what became of edits.",
        ),
    ] = True,
    watch: Annotated[
        bool, typer.Option("--watch", help="Go on with what changes, until Ctrl-C.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what it would take, and take nothing.")
    ] = False,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """Take sessions that agents keep, or events from files. A second run of the same files adds
    nothing, and reads only what changed.

    Regular files alone are read; in a folder no link that leads out of it is followed.

    Example: penstock import ~/.claude/projects
    """
    from penstock_jobs.importers.plan import plan_import
    from penstock_jobs.importers.session_import import SourceSelection

    named = _named_paths(paths or [], discover=discover)
    plan = plan_import(named, form, _remembered(data, url, tenant))
    selection = SourceSelection(since_us=since_us(since) if since else None, project=project)
    if discover and not dry_run and not yes:
        _ask(plan, selection)
    if dry_run:
        _show(_count(plan, selection), None, plan.left_out, json=json)
        return
    with open_desk(data, url, tenant, make=True) as desk:
        report, summary = _take(desk, plan, selection, git=git)
        _show(report, summary, plan.left_out, json=json)
        if summary.rejected and not summary.accepted:
            raise typer.Exit(2)  # nothing of it is in the lake
        if watch:
            with suppress(KeyboardInterrupt), ended_as_by_ctrl_c():
                _watch(desk, named, form, selection, git=git)


def _ask(plan: "ImportPlan", selection: "SourceSelection") -> None:
    """Ends the command where the answer is no."""
    show_text(*_count(plan, selection).lines())
    if not typer.confirm("Import these?", err=True):
        raise typer.Exit(1)


def _remembered(data: Path | None, url: str | None, tenant: str) -> "Remembered":
    """By the lake, if there is one here."""
    from penstock.database.errors import DatabaseOutdated
    from penstock.lake.errors import LakeMissing
    from penstock_jobs.importers.progress import ImportProgress

    with suppress(LakeMissing, DatabaseOutdated), open_desk(data, url, tenant) as desk:
        if isinstance(desk, LocalDesk):
            return ImportProgress(desk.lake.database, tenant).importer_of
    return lambda _source: None


def _named_paths(paths: list[Path], *, discover: bool) -> list[Path]:
    """Raises InvalidInput."""
    if not discover:
        if not paths:
            raise InvalidInput(what="The command", why="name files or folders, or add --discover")
        return paths
    from penstock_jobs.importers.registry import homes

    there = list(dict.fromkeys(path for _importer, path in homes()))
    if not there:
        raise InvalidInput(what="--discover", why="no agent keeps sessions in its usual folder")
    return [*paths, *there]


def _count(plan: "ImportPlan", selection: "SourceSelection") -> "SessionImportReport":
    from penstock_jobs.importers.session_import import SessionImporter

    importer = SessionImporter(None, None, selection)
    _go_through(plan, importer)
    return importer.report


def _watch(
    desk: Desk, paths: list[Path], form: str, selection: "SourceSelection", *, git: bool
) -> None:
    """Look again and again, and say what came. A file that cannot be read says so once."""
    from penstock_jobs.importers.plan import plan_import
    from penstock_jobs.importers.progress import ImportProgress, WatchedSources

    said: set[tuple[str, str]] = set()
    remembered: Remembered = lambda _source: None  # noqa: E731
    if isinstance(desk, LocalDesk):
        remembered = ImportProgress(desk.lake.database, desk.caller.tenant).importer_of
    looks = WatchedSources(_LOOK_AGAIN_SECONDS)
    say("Watching for changes; Ctrl-C ends it.")
    while True:
        time.sleep(_WATCH_SECONDS)
        plan = plan_import(paths, form, remembered)
        plan.event_files.clear()
        plan.sources = [each for each in plan.sources if looks.is_due(each[0], each[1])]
        if not plan.sources:
            continue
        report, summary = _take(desk, plan, selection, git=git)
        report.unknown.clear()
        report.unfit = [each for each in report.unfit if each not in said]
        said.update(report.unfit)
        if summary.stored or (summary.by_server and report.totals()) or report.unfit:
            for line in report.lines():
                say(line)


def _take(
    desk: Desk, plan: "ImportPlan", selection: "SourceSelection", *, git: bool
) -> "tuple[SessionImportReport, ImportSummary]":
    from penstock.access.errors import RoleMissing
    from penstock.ingest.file_import import event_importer
    from penstock_jobs.importers.commits import GIT, commits_of_sessions
    from penstock_jobs.importers.progress import ImportProgress
    from penstock_jobs.importers.session_import import SessionImporter

    lake_import = event_importer(desk)
    progress = None  # a service knows nothing of the files here, and each event again
    if isinstance(desk, LocalDesk):
        progress = ImportProgress(desk.lake.database, desk.caller.tenant)
    importer = SessionImporter(lake_import, progress, selection)
    _go_through(plan, importer)
    importer.flush()
    for file in plan.event_files:
        with progress_of(file.path.name) as follow:
            for read, size in lake_import.take(file):
                follow(read, size)
    summary = lake_import.finish()
    if git and plan.sources:
        problems = importer.report.unfit
        try:
            importer.take_events(commits_of_sessions(desk, problems), GIT)
        except RoleMissing as error:  # a key that may only send
            problems.append(("commits of the sessions", str(error)))
        summary = lake_import.finish()
    return importer.report, summary


def _go_through(plan: "ImportPlan", importer: "SessionImporter") -> None:
    importer.report.unknown |= plan.unknown
    total = sum(size for _source, _importer, size in plan.sources)
    with progress_of("import") as follow:
        done = 0
        for source, of_format, size in plan.sources:
            for read, _size in importer.take(source, of_format):
                follow(done + min(read, size), total)
            done += size
            follow(done, total)


def _show(
    report: "SessionImportReport",
    summary: "ImportSummary | None",
    left_out: "list[LeftOut]",
    *,
    json: bool,
) -> None:
    for path, why in left_out:
        say(f"left out: {path}: {why}")
    if json:
        show_json(report.document() | (asdict(summary) if summary else {}))
        return
    for line in report.lines():
        say(line)
    if summary is None:
        return
    if not report.formats or summary.files:
        counts = f"{summary.accepted} events accepted, {summary.rejected} lines rejected"
        files = "1 file" if summary.files == 1 else f"{summary.files} files"
        say(f"{files}: {counts}")
    if summary.waiting:
        say("The running server has not stored them yet. Queries see them now, rewards do then.")
    else:
        say(f"{summary.stored} were new, {summary.duplicate} the lake had already")
    for key, known in sorted(summary.near_misses.items()):
        say(f"warning: nothing reads `{key}`; `{known}` is known")
    if summary.rejected:
        say("`penstock rejected list` shows why")
