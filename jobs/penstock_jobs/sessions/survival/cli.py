"""`penstock survival`, and its page on a terminal."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.backends.terminal import options
from penstock.backends.terminal.output import say, show_table, show_text
from penstock.core.endpoint import Client
from penstock.core.errors import StoreNeeded
from penstock.lake.client import LocalClient
from penstock.lake.commands import command
from penstock_jobs.sessions.survival.counting import (
    HORIZONS,
    LineGroup,
    SurvivalAnswer,
    answer_of,
    percent,
)

if TYPE_CHECKING:
    from penstock_jobs.sessions.survival.runs import Reports


@command(make="repositories")
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
    """Show what stands of what agents wrote after a day, a week and a month.

    Commits of the repositories say what became of edits. What nobody can know is between the
    bounds: gone in the first, standing in the second. A service answers from its newest run.

    Example: penstock survival ~/src/shop --html survival.html
    """
    from penstock_jobs.rewards.report import show_repository
    from penstock_jobs.sessions.survival.page import SHOW_SURVIVAL, SurvivalRequest
    from penstock_jobs.sessions.survival.runs import run_survival

    read: Reports = {}
    if isinstance(client, LocalClient):
        lake, tenant = client.lake, client.caller.tenant
        counts, read = run_survival(lake, tenant, repositories or [], since)
        answer = answer_of(counts)
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


def _show(answer: SurvivalAnswer) -> None:
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
    for own in answer.agreements:
        alone = (
            f"{own.only_records:,} are in its records only, {own.only_sessions:,} in sessions only"
        )
        show_text("", f"Sessions and {own.source} agree on {own.both:,} lines; {alone}.")
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


def _show_groups(kind: str, groups: Iterable[LineGroup]) -> None:
    rows = [
        [group.label or "unknown", group.edits, group.lines]
        + [percent(share.low, share.high) for share in group.shares]
        for group in groups
    ]
    show_table([kind, "edits", "lines", *HORIZONS.values()], rows)


def _tokens(number: float | None) -> str | None:
    return None if number is None else f"{number:,.0f}"
