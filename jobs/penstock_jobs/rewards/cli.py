"""`penstock rewards`."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.backends.terminal import options
from penstock.backends.terminal.options import since_us
from penstock.backends.terminal.output import progress_of, say, show_table, show_text, spinner_of
from penstock.core.arrow_start import take_memory_from_system
from penstock.core.clock import SystemClock
from penstock.core.errors import InvalidInput
from penstock.events.event import TENANT_DEFAULT
from penstock.lake.commands import Outcome, command
from penstock.lake.lake import Lake
from penstock_jobs.rewards.followups.cli import judge, label

if TYPE_CHECKING:
    from penstock_jobs.rewards.history.git_repository import Repository
    from penstock_jobs.rewards.history.session_commits import RepositoryReport

app = typer.Typer(help="What sessions were worth, by what users did next.", no_args_is_help=True)

Definition = Annotated[
    str | None,
    typer.Option(
        "--definition",
        metavar="FILE|NAME",
        help="A definition in TOML, or a shipped one: default, comparing.",
    ),
]
Version = Annotated[
    str, typer.Argument(help="A definition that has run, by name or prefix of its version.")
]
Since = Annotated[
    str | None,
    typer.Option("--since", help="Only sessions with events since a time, or an age such as 24h."),
]
Git = Annotated[
    str,
    typer.Option(
        "--git",
        metavar="auto|DIR|none",
        help="Whose commits show what became of edits: auto takes a session's own repository"
        " where it lies on this machine.",
    ),
]
Project = Annotated[str | None, typer.Option("--project", help="Only sessions of this project.")]


@app.command("list")
@command()
def list_(
    name: Annotated[str, typer.Argument(help="A reward or a definition to print.")] = "",
) -> Iterator[object]:
    """List rewards; with a name, show what it measures and how it can be gamed.

    Names of shipped definitions work too: default, comparing.

    Example: penstock rewards list edit_persistence
    """
    from penstock_jobs.rewards.definition import all_rewards, find_definition, shipped

    rewards = all_rewards()
    if not name:
        rows: list[dict[str, object]] = []
        for reward in rewards.values():
            measures = reward.page().partition("\n")[0].partition(": ")[2].removesuffix(".")
            rows.append({"name": reward.name, "version": reward.version, "measures": measures})
        yield rows
        show_table(["reward", "version", "measures"], [list(row.values()) for row in rows])
        return
    if name not in rewards and name not in shipped():
        names = ", ".join([*rewards, *shipped()])
        raise InvalidInput(what=f"The reward {name!r}", why=f"known names: {names}")
    page = rewards[name].page() if name in rewards else find_definition(name).text
    yield {"name": name, "page": page}
    show_text(page)


@app.command()
@command()
def run(
    lake: Lake,
    *,
    definition: Definition = None,
    since: Since = None,
    project: Project = None,
    git: Git = "auto",
    branch: Annotated[str, typer.Option("--branch", help="With --git: the branch.")] = "HEAD",
    first_parent: Annotated[
        bool,
        typer.Option(
            "--first-parent",
            help="With --git: treat a merge as one change, without the commits of merged branches.",
        ),
    ] = False,
) -> Iterator[object]:
    """Compute the rewards of the sessions that changed or matured since the last run.

    A session that is going on waits until it has ended or rested for 5 minutes. The next run
    continues one that was cut off. PENSTOCK_EXECUTOR says where the work is done.

    Example: penstock rewards run
    """
    from penstock_jobs.rewards.history.git_repository import Repository

    named = None
    if git not in ("auto", "none"):
        if project is None:
            why = "it needs --project, or edits of other projects would be compared with its files"
            raise InvalidInput(what=f"--git {git}", why=why)
        named = Repository(Path(git).resolve(), branch, first_parent), project
    yield from _run(lake, definition, since, project, git=git, named=named)


@app.command()
@command()
def backfill(
    lake: Lake, definition: Definition = None, since: Since = None, project: Project = None
) -> Iterator[object]:
    """Compute all sessions that a definition has never computed.

    `run --since` and `--project` leave out such sessions.

    Example: penstock rewards backfill --definition mine.toml
    """
    yield from _run(lake, definition, since, project, backfill=True)


def _run(
    lake: Lake,
    definition: str | None,
    since: str | None,
    project: str | None,
    *,
    git: str = "none",
    named: "tuple[Repository, str] | None" = None,
    backfill: bool = False,
) -> Iterator[object]:
    take_memory_from_system()  # for the texts of the next bucket
    from penstock.backends.execution import open_executor
    from penstock_jobs.rewards import runs
    from penstock_jobs.rewards.definition import DEFAULT, find_definition
    from penstock_jobs.rewards.due_sessions import SessionFilter
    from penstock_jobs.rewards.history.session_commits import take_commits
    from penstock_jobs.rewards.report import (
        report_document,
        repository_document,
        show_report,
        show_repository,
    )

    sessions = SessionFilter(since_us(since) if since else None, project)
    chosen = find_definition(definition or DEFAULT)
    request = runs.RunRequest(chosen, sessions, backfill)
    taken: Mapping[Repository, RepositoryReport] = {}
    if git != "none":
        with spinner_of("reading commits"):
            taken = take_commits(lake, SystemClock().now_us(), chosen.horizons_s(), named)
    with open_executor(lake.settings) as executor, progress_of("sessions") as follow:
        report = runs.run(lake, executor, request, follow=follow)
    repositories = [repository_document(*each) for each in taken.items()]
    yield report_document(report) | {"repositories": repositories}
    show_report(report)
    for each in taken.items():
        show_repository(*each)
    if not report.sessions and not report.live:
        say("No session changed or matured since the last run.")


@app.command()
@command()
def compare(
    lake: Lake, before: Version, after: Version, tenant: options.Tenant = TENANT_DEFAULT
) -> Iterator[object]:
    """Compare two definitions on the sessions that both have computed, reward by reward.

    Example: penstock rewards compare default mine
    """
    from penstock_jobs.rewards.due_sessions import definition_known_as
    from penstock_jobs.rewards.rates import compare_definitions
    from penstock_jobs.rewards.report import short

    with spinner_of("comparing"):
        old, new = (definition_known_as(lake.database, text) for text in (before, after))
        rows = compare_definitions(lake, old.version, new.version, tenant)
    yield {"before": old.version, "after": new.version, "rewards": rows}
    say(f"before: {old.name} ({old.version}), after: {new.name} ({new.version})")
    if not rows:
        say("No session was computed by both: run `penstock rewards backfill`.")
        return
    show_table(list(rows[0]), [[short(value) for value in row.values()] for row in rows])


@app.command()
@command()
def rates(
    lake: Lake,
    before: Annotated[str, typer.Argument(help="A checkpoint to compare with.")] = "",
    after: Annotated[str, typer.Argument(help="The checkpoint to compare.")] = "",
    *,
    definition: Annotated[
        str, typer.Option("--definition", help="The definition that decides outcomes.")
    ] = "default",
    since: Since = None,
    tenant: options.Tenant = TENANT_DEFAULT,
) -> Iterator[object]:
    """Show how the sessions of each checkpoint ended, and compare two. Exit 1 if a rate moved.

    Without names, what serves is compared with what served before.

    Example: penstock rewards rates
    """
    from penstock_jobs.rewards.due_sessions import definition_known_as
    from penstock_jobs.rewards.rates import checkpoint_pair, rate_changes, read_rates, served_pair
    from penstock_jobs.rewards.report import rates_document, show_rates

    with spinner_of("counting"):
        known = definition_known_as(lake.database, definition)
        checkpoints = read_rates(lake, known.version, tenant, since_us(since) if since else None)
    pair = checkpoint_pair(checkpoints, before, after, served_pair(lake.database, tenant))
    changes = rate_changes(*pair) if pair else []
    documents = [rates_document(checkpoint) for checkpoint in checkpoints]
    moved = any(change.verdict == "moved" for change in changes)
    yield Outcome({"checkpoints": documents, "changes": changes}, failed=moved)
    show_rates(checkpoints)
    if pair:
        say(f"from {pair[0].checkpoint} to {pair[1].checkpoint}:")
    for change in changes:
        say(("ALARM " if change.verdict == "moved" else "  ") + change.sentence())


app.command("label")(label)
app.command("judge")(judge)
