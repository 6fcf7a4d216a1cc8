"""`penstock rewards run | backfill`: compute the rewards of the lake, and keep them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.errors import InvalidInput
from penstock.lake.directory import open_existing
from penstock.terminal import options
from penstock.terminal.output import say, show_json
from penstock.terminal.progress import progress_of
from penstock.terminal.times import since_us
from penstock_jobs.rewards.commands import options as options_of

if TYPE_CHECKING:
    from penstock_jobs.rewards.running import Report, Work


def run(
    *,
    data: options.Data = None,
    definition: options_of.Definition = None,
    since: options_of.Since = None,
    project: options_of.Project = None,
    git: Annotated[
        Path | None,
        typer.Option(
            "--git", parser=options.path, metavar="DIR",
            help="A repository whose commits are later states of the edited files.",
        ),
    ] = None,
    branch: Annotated[str, typer.Option("--branch", help="With --git: whose commits.")] = "HEAD",
    json: options.Json = False,
) -> None:  # fmt: skip
    """Compute the rewards of the sessions that changed or matured since the last run.

    A run that was cut off is taken up by the next. The work is done where PENSTOCK_EXECUTOR says.

    Example: penstock rewards run
    """
    from penstock_jobs.rewards.definitions import DEFAULT, find_definition
    from penstock_jobs.rewards.history import Repository
    from penstock_jobs.rewards.planning import Wanted
    from penstock_jobs.rewards.running import Work

    if git is not None and project is None:
        why = "it needs --project: edits of other projects would be looked for in its files too"
        raise InvalidInput(what=f"--git {git}", why=why)
    work = Work(
        find_definition(definition or DEFAULT),
        Wanted(since_us(since) if since else None, project),
        repository=Repository(git.resolve(), branch) if git is not None else None,
    )
    _show(_do(data, work), json=json)


def backfill(
    data: options.Data = None,
    definition: options_of.Definition = None,
    since: options_of.Since = None,
    project: options_of.Project = None,
    json: options.Json = False,
) -> None:
    """Compute the sessions that a definition has never computed, however old.

    They are those that `run --since` or `--project` left out.

    Example: penstock rewards backfill --definition mine.toml
    """
    from penstock_jobs.rewards.definitions import DEFAULT, find_definition
    from penstock_jobs.rewards.planning import Wanted
    from penstock_jobs.rewards.running import Work

    wanted = Wanted(since_us(since) if since else None, project)
    _show(_do(data, Work(find_definition(definition or DEFAULT), wanted, backfill=True)), json=json)


def _do(data: Path | None, work: "Work") -> "Report":
    from penstock.execution import open_executor
    from penstock_jobs.rewards import running

    with (
        open_existing(data) as lake,
        open_executor(lake.settings) as executor,
        progress_of("sessions") as follow,
    ):
        return running.run(
            lake,
            executor,
            work,
            follow=follow,
        )


def _show(report: "Report", *, json: bool) -> None:
    from penstock_jobs.rewards.reporting import report_facts, show_report

    if json:
        show_json(report_facts(report))
        return
    show_report(report)
    if not report.sessions:
        say("No session changed or matured since the last run.")
