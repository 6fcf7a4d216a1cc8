"""`penstock import`: files of events, and sessions that agents keep."""

from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.backends.terminal import options
from penstock.backends.terminal.interruption import ended_as_by_ctrl_c
from penstock.backends.terminal.options import since_us
from penstock.backends.terminal.output import say, show_json, show_text
from penstock.core.errors import InvalidInput
from penstock.events.event import TENANT_DEFAULT
from penstock.lake.client import open_client

if TYPE_CHECKING:
    from penstock_jobs.importers.import_run import ImportOutcome


def import_(
    paths: Annotated[
        list[Path] | None, typer.Argument(parser=options.path, help="Files, or folders of files.")
    ] = None,
    data: options.AnyData = None,
    url: options.Url = None,
    *,
    form: Annotated[
        str, typer.Option("--format", help="Format of the files, such as events or claude-code.")
    ] = "auto",
    discover: Annotated[
        bool, typer.Option("--discover", help="Search the folders of known agents, and ask.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --discover: do not ask.")] = False,
    since: Annotated[
        str | None, typer.Option(help="Only files changed since this time or age, such as 7d.")
    ] = None,
    project: Annotated[str | None, typer.Option(help="Only sessions of this project.")] = None,
    git: Annotated[
        bool,
        typer.Option(
            "--git/--no-git",
            help="Import commits of the sessions' repositories, which show what became of edits.",
        ),
    ] = True,
    watch: Annotated[
        bool, typer.Option("--watch", help="Keep importing what changes, until Ctrl-C.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be imported, and import nothing.")
    ] = False,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """Import sessions that agents keep, or events from files. Importing the same files again reads
    only what changed, and adds nothing twice.

    Only regular files are read. Links that lead out of a folder are not followed.

    Example: penstock import ~/.claude/projects
    """
    from penstock_jobs.importers.import_run import ImportRun
    from penstock_jobs.importers.progress import KeptReadings
    from penstock_jobs.importers.session_import import SourceSelection

    named = _named_paths(paths or [], discover=discover)
    selection = SourceSelection(since_us=since_us(since) if since else None, project=project)
    run = ImportRun(named, form, selection, git, KeptReadings() if watch else None)
    plan = run.plan(data, url, tenant)
    if dry_run:
        _show(run.count(plan), json=json)
        return
    if discover and not yes:
        show_text(*run.count(plan).report.lines())
        if not typer.confirm("Import these?", err=True):
            raise typer.Exit(1)
    with open_client(data, url, tenant, make=True) as client:
        outcome = run.take(client, plan)
        _show(outcome, json=json)
        if (sent := outcome.summary) and sent.rejected and not sent.accepted:
            raise typer.Exit(2)
        if watch:
            with suppress(KeyboardInterrupt), ended_as_by_ctrl_c():
                run.watch(client)


def _named_paths(paths: list[Path], *, discover: bool) -> list[Path]:
    if not discover:
        if not paths:
            raise InvalidInput(what="The command", why="name files or folders, or use --discover")
        return paths
    from penstock_jobs.importers.importer import homes, unread_stores

    for path, why in unread_stores():
        say(f"seen, but not read: {path}: {why}")
    there = list(dict.fromkeys(path for _importer, path in homes()))
    if not there:
        raise InvalidInput(what="--discover", why="no known agent has a folder of sessions here")
    return [*paths, *there]


def _show(outcome: "ImportOutcome", *, json: bool) -> None:
    report, summary = outcome.report, outcome.summary
    for path, why in outcome.left_out:
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
        say("The running server stores them soon. Queries see them now, rewards see them then.")
    else:
        say(f"{summary.stored} new, {summary.duplicate} already in the lake")
    for key, known in sorted(summary.near_misses.items()):
        say(f"warning: `{key}` is not read; did you mean `{known}`?")
    if summary.rejected:
        say("`penstock rejected list` shows why")
