"""`penstock survival`."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.backends.terminal import options
from penstock.backends.terminal.output import progress_of, say, show_table, show_text, spinner_of
from penstock.core.endpoint import Client
from penstock.core.errors import StoreNeeded
from penstock.lake.client import LocalClient
from penstock.lake.commands import command

if TYPE_CHECKING:
    from penstock.lake.lake import Lake
    from penstock_jobs.rewards.history.git_repository import Repository
    from penstock_jobs.rewards.history.session_commits import RepositoryReport
    from penstock_jobs.sessions.survival.counting import LineGroup, SurvivalAnswer

    Reports = dict[Repository, RepositoryReport]


@command()
def survival(
    client: Client,
    repositories: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="REPO",
            parser=options.path,
            help="Clones that say what became of edits, beside those that sessions worked in.",
        ),
    ] = None,
    *,
    since: Annotated[
        str, typer.Option("--since", help="Only sessions with events since a time, or an age.")
    ] = "90d",
    html: Annotated[
        Path | None,
        typer.Option("--html", parser=options.path, help="Also write the page to a file."),
    ] = None,
) -> Iterator[object]:
    """Show how much of what agents wrote stands after a day, a week and a month.

    Commits of the repositories say what became of edits. What nobody can know is between the
    bounds: gone in the first, standing in the second. A service answers from its newest run.

    Example: penstock survival ~/src/shop --html survival.html
    """
    from penstock_jobs.rewards.report import show_repository
    from penstock_jobs.sessions.survival.counting import answer_of
    from penstock_jobs.sessions.survival.endpoints import (
        SHOW_SURVIVAL,
        SurvivalRequest,
        read_counts,
    )

    read: Reports = {}
    if isinstance(client, LocalClient):
        read = _compute(client.lake, repositories or [], since)
        answer = answer_of(read_counts(client.lake, client.caller.tenant, since))
    elif repositories:
        raise StoreNeeded(command="penstock survival REPO")
    else:
        answer = client.call(SHOW_SURVIVAL, SurvivalRequest(since=since))
    if html is not None:
        from penstock_jobs.sessions.survival.page import survival_file

        html.write_text(survival_file(answer), encoding="utf-8")
    yield answer
    _show(answer)
    for repository, report in read.items():
        show_repository(repository, report)
    if html is not None:
        say(f"The page is in {html}.")


def _compute(lake: "Lake", folders: Sequence[Path], since: str) -> "Reports":
    """Store new commits, and run the definition."""
    from penstock.backends.execution import open_executor
    from penstock.backends.terminal.options import since_us
    from penstock.core.clock import SystemClock
    from penstock_jobs.rewards.definition import SURVIVAL, find_definition
    from penstock_jobs.rewards.history.git_repository import Repository
    from penstock_jobs.rewards.history.session_commits import take_commits
    from penstock_jobs.rewards.runs import RunRequest, run

    definition, now_us = find_definition(SURVIVAL), SystemClock().now_us()
    named = [(Repository(folder.resolve()), None) for folder in folders]
    read: Reports = {}
    with spinner_of("reading commits"):
        for each in (None, *named):
            read |= take_commits(lake, now_us, definition.horizons_s(), each, since_us(since))
    with open_executor(lake.settings) as executor, progress_of("sessions") as follow:
        run(lake, executor, RunRequest(definition), follow=follow)
    return read


def _show(answer: "SurvivalAnswer") -> None:
    from penstock_jobs.sessions.survival.counting import HORIZONS, percent

    show_text(answer.sentence, "")
    whole = answer.all
    if not whole.lines:
        say("Import some: `penstock import --discover`.")
        return
    show_table(
        ["after", "stands", "of lines", "unknown", "too young"],
        [
            [HORIZONS[share.horizon_s], percent(share.low, share.high), share.lines, share.unknown,
             share.pending]
            for share in whole.shares
        ],
    )  # fmt: skip
    if answer.unknown:
        reasons = (f"{reason} {lines:,}" for reason, lines in answer.unknown.items())
        show_text("", f"Unknown after a week, in lines: {', '.join(reasons)}.")
    for kind, groups in answer.by.items():
        show_text("")
        _show_groups(kind, groups)
    thrown = answer.thrown_away
    if thrown.edits:
        said = f"Thrown away at once: {thrown.edits:,} edits of {thrown.lines:,} lines"
        cost = f"; models wrote {thrown.completion_tokens:,} tokens for them"
        show_text("", f"{said}{cost if thrown.completion_tokens else ''}.")
        columns = ["file", "lines", "by", "written", "read", "tool", "model", "session"]
        rows = [
            [edit.path, round(edit.lines), "the agent" if edit.by_agent else "others",
             _tokens(edit.completion_tokens), _tokens(edit.prompt_tokens), edit.tool, edit.model,
             edit.session_id]
            for edit in thrown.longest
        ]  # fmt: skip
        show_table(columns, rows)


def _show_groups(kind: str, groups: Iterable["LineGroup"]) -> None:
    from penstock_jobs.sessions.survival.counting import HORIZONS, percent

    rows = [
        [group.label or "unknown", group.edits, group.lines]
        + [percent(share.low, share.high) for share in group.shares]
        for group in groups
    ]
    show_table([kind, "edits", "lines", *HORIZONS.values()], rows)


def _tokens(number: float | None) -> str | None:
    return None if number is None else f"{number:,.0f}"
