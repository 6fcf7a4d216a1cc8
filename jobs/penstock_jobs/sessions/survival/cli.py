"""`penstock survival`."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.backends.terminal import options
from penstock.backends.terminal.output import say
from penstock.core.endpoint import Client
from penstock.core.errors import StoreNeeded
from penstock.lake.client import LocalClient
from penstock.lake.commands import command

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
    from penstock_jobs.sessions.survival.counting import answer_of
    from penstock_jobs.sessions.survival.endpoints import SHOW_SURVIVAL, SurvivalRequest
    from penstock_jobs.sessions.survival.report import show_survival
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
    show_survival(answer)
    for repository, report in read.items():
        show_repository(repository, report)
    if html is not None:
        say(f"The page is in {html}.")
