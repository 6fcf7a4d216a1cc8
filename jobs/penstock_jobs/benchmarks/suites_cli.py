"""`penstock suites`."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import typer

from penstock.backends.terminal import options
from penstock.backends.terminal.output import (
    progress_of,
    say,
    show_fields,
    show_rows,
    show_table,
    show_text,
)
from penstock.core import toml_document
from penstock.core.endpoint import Client
from penstock.core.errors import InvalidInput
from penstock.events.event import TENANT_DEFAULT
from penstock.lake.commands import Outcome, command
from penstock.lake.lake import Lake
from penstock_jobs.benchmarks.cli import NoIsolation, Serving, SuiteFolder, Visible

if TYPE_CHECKING:
    from penstock_jobs.benchmarks.lint import SuiteFinding
    from penstock_jobs.benchmarks.suite import Suite

app = typer.Typer(
    help="Mine suites from repositories and sessions, review and check them.", no_args_is_help=True
)
Agent = Annotated[
    str | None, typer.Option(metavar="CMD", help="It proposes an environment where none is found.")
]
MinedSuite = Annotated[str, typer.Argument(metavar="SUITE", help="The name of a mined suite.")]


@app.command()
@command()
def mine(
    lake: Lake,
    repository: Annotated[Path, typer.Argument(parser=options.path, metavar="REPO")],
    *,
    suite: Annotated[str, typer.Option(metavar="NAME", help="The suite to propose tasks for.")],
    commits: Annotated[str, typer.Option(metavar="RANGE", help="Only these commits.")] = "HEAD",
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="At most so many.")] = 1_000_000,
    environment: Annotated[
        str, typer.Option(metavar="FILE", help="A TOML file with it; or auto; or machine.")
    ] = "auto",
    agent: Agent = None,
    serving: Serving = None,
    visible: Visible = None,
    tenant: options.Tenant = TENANT_DEFAULT,
) -> Iterator[object]:
    """Propose tasks from a repository's history, and the sessions in it that commits settled.

    Each proposal is verified: the untouched tree fails its check, the settled one passes, three
    times alike. What is left out is kept with its reason. Repeat it after an interruption.
    `auto` tries what the newest tree tells of its environment until its own tests run.

    Example: penstock suites mine ~/src/shop --suite shop --limit 50
    """
    from penstock.backends.execution import open_executor
    from penstock_jobs.benchmarks.environments.trial import Trials
    from penstock_jobs.benchmarks.mine.mining import MiningOptions, environment_named
    from penstock_jobs.benchmarks.mine.mining import mine as mine_tasks

    shown = tuple(str(path.absolute()) for path in visible or [])
    trials = Trials(lake.settings, agent, serving, shown)
    find = partial(environment_named, environment, repository, trials)
    how = MiningOptions(repository, suite, commits, limit, find, visible=shown)
    with open_executor(lake.settings) as workers, progress_of("proposals") as follow:
        report = mine_tasks(lake, workers, how, tenant=tenant, follow=follow)
    yield report
    show_table(["left out", "count"], [[rule, n] for rule, n in report.left_out.most_common()])
    left = report.left_out.total()
    say(f"{report.proposed} proposed, {left} left out, {report.known} known before.")


@app.command()
@command(by=True)
def review(
    client: Client,
    suite: MinedSuite,
    task: Annotated[str | None, typer.Argument(metavar="TASK", help="Show one proposal.")] = None,
    *,
    take: Annotated[bool, typer.Option("--take", help="Take it into the suite.")] = False,
    refuse: Annotated[str | None, typer.Option(metavar="WHY", help="Refuse it.")] = None,
    prompt: Annotated[
        Path | None, typer.Option(parser=options.path, metavar="FILE", help="Its prompt, mended.")
    ] = None,
) -> Iterator[object]:
    """List the proposals for a suite, or show, take, mend or refuse one.

    Example: penstock suites review shop shop-1f0c22ab90 --take
    """
    from penstock_jobs.benchmarks.mine import proposals

    decided = take or refuse is not None or prompt is not None
    if (take and refuse is not None) or (decided and task is None):
        raise InvalidInput(what="--take, --refuse, --prompt", why="name a TASK; take or refuse")
    if task is None:
        asked = proposals.ProposalsRequest(suite=suite)
        known = client.call(proposals.LIST_PROPOSALS, asked).proposals
        yield known
        rows = [[each.task, each.state, each.why or each.prompt[:80]] for each in known]
        show_table(["task", "state", "why, or prompt"], rows)
        return
    if decided:
        text = toml_document.read_text(prompt).strip() if prompt is not None else None
        order = proposals.JudgementRequest(
            suite=suite, task=task, take=take, refuse=refuse, prompt=text
        )
        shown = client.call(proposals.JUDGE_PROPOSAL, order)
    else:
        place = proposals.ProposalRequest(suite=suite, task=task)
        shown = client.call(proposals.SHOW_PROPOSAL, place)
    yield shown
    facts = msgspec.structs.asdict(shown.proposal) | shown.proposal.facts
    shown_apart = ("prompt", "facts", "environment")
    show_fields({name: value for name, value in facts.items() if name not in shown_apart})
    parts = {"Prompt": shown.proposal.prompt, "Solution": shown.solution}
    parts |= {"Check, untouched": shown.untouched, "Check, settled": shown.settled}
    show_text(*(f"\n# {title}\n\n{text.rstrip()}" for title, text in parts.items() if text))


@app.command()
@command()
def export(
    lake: Lake,
    suite: MinedSuite,
    folder: Annotated[Path, typer.Argument(parser=options.path, metavar="DIR")],
    to: Annotated[
        Literal["penstock", "harbor"],
        typer.Option(help="Format. For harbor, SUITE is a suite's folder."),
    ] = "penstock",
    tenant: options.Tenant = TENANT_DEFAULT,
) -> Iterator[object]:
    """Write the taken proposals as a suite, and register it: shards leave its sources out.

    Example: penstock suites export shop suites/shop
    """
    from penstock_jobs.benchmarks.harbor.export import export_tasks
    from penstock_jobs.benchmarks.mine.mining import export_suite
    from penstock_jobs.benchmarks.suite import read_suite

    if to == "harbor":
        left_out = export_tasks(read_suite(Path(suite)), folder)
        yield {"left_out": left_out}
        show_table(["left out", "why"], [*left_out.items()])
        return
    written = export_suite(lake, tenant, suite, folder)
    yield {"suite": written.name, "version": written.version, "tasks": len(written.tasks)}
    say(f"{written.name} ({written.version}): {len(written.tasks)} tasks in {folder}")


@app.command()
@command()
def lint(
    suite: SuiteFolder, no_isolation: NoIsolation = False, data: options.Data = None
) -> Iterator[object]:
    """Test whether a suite measures anything. Exits with 1 if it has problems.

    Each check must fail on the untouched tree and pass on the solution. For a task in which nothing
    is to be edited, it must pass on the untouched tree.

    Example: penstock suites lint examples/suites/core
    """
    folder, findings = _lint(suite, data, isolated=not no_isolation)
    document = {"suite": folder.name, "version": folder.version, "findings": findings}
    yield Outcome(document, failed=bool(findings))
    show_rows(findings, "task", "problem")
    counts = f"{len(folder.tasks)} tasks, {len(findings)} problems"
    counts += f", {len(folder.left_out)} left out" if folder.left_out else ""
    say(f"{folder.name} ({folder.version}): {counts}")


def _lint(suite: Path, data: Path | None, *, isolated: bool) -> "tuple[Suite, list[SuiteFinding]]":
    from penstock.backends.execution import open_executor
    from penstock.core.settings import load_settings
    from penstock_jobs.benchmarks.lint import lint_suite
    from penstock_jobs.benchmarks.suite import read_suite

    folder, settings = read_suite(suite), load_settings(data)
    with open_executor(settings) as executor, progress_of("tasks") as follow:
        return folder, lint_suite(executor, folder, settings, isolated=isolated, follow=follow)


@app.command()
@command()
def prepare(
    suite: SuiteFolder, *, agent: Agent = None, serving: Serving = None, data: options.Data = None
) -> Iterator[object]:
    """Make each task's environment and lint the task. suite.toml gets those that fail as left out.

    A task without an environment gets the first one that its tree tells in which more of the tree's
    tests pass than fail. task.toml gets it.

    Example: penstock suites prepare terminal-bench-2
    """
    from penstock.core.settings import load_settings
    from penstock_jobs.benchmarks.environments import trial
    from penstock_jobs.benchmarks.suite import leave_out, read_suite

    trials = trial.Trials(load_settings(data), agent, serving)
    reasons = {task: why for task, why in trial.prepare(trials, read_suite(suite)) if why}
    folder, findings = _lint(suite, data, isolated=True)
    tasks = {task.name for task in folder.tasks}
    reasons = {each.task: each.problem for each in findings if each.task in tasks} | reasons
    leave_out(folder, reasons)
    yield {"suite": folder.name, "left_out": {**folder.left_out, **reasons}}
    show_table(["left out", "why"], [*folder.left_out.items(), *reasons.items()])
    say(f"{folder.name}: {len(tasks) - len(reasons)} of {len(tasks)} tasks are verified")


@app.command()
@command()
def register(
    lake: Lake, suite: SuiteFolder, tenant: options.Tenant = TENANT_DEFAULT
) -> Iterator[object]:
    """Register a suite without running it. Shards then exclude the content of its tasks.

    Example: penstock suites register examples/suites/core
    """
    from penstock_jobs.benchmarks.run import register_suite
    from penstock_jobs.benchmarks.suite import read_suite
    from penstock_jobs.benchmarks.summary import version_advice

    folder = read_suite(suite)
    new = register_suite(lake.database, tenant, folder)
    if (advice := version_advice(lake.database, tenant, folder.name)) is not None:
        say(advice)
    yield {"suite": folder.name, "version": folder.version, "new": new}
    say(f"{folder.name} ({folder.version}): {'registered' if new else 'registered before'}")
