"""`penstock bench run | lint | register | import`; results_cli has show and compare."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console

from penstock.errors import InvalidInput
from penstock.events.event import TENANT_DEFAULT
from penstock.lake.lake import open_existing
from penstock.terminal import options
from penstock.terminal.long_commands import progress_of
from penstock.terminal.output import say, show_json, show_table
from penstock_jobs.benchmarks.results_cli import compare, show, show_summary

if TYPE_CHECKING:
    from penstock_jobs.benchmarks.run import RunOptions

app = typer.Typer(
    help="Benchmarks: run suites in isolation, bring results, compare checkpoints.",
    no_args_is_help=True,
)

SuiteFolder = Annotated[
    Path, typer.Argument(parser=options.path, metavar="SUITE_DIR", help="The suite's folder.")
]
NoIsolation = Annotated[
    bool, typer.Option("--no-isolation", help="Run programs without isolation; the record says so.")
]
Checkpoint = Annotated[str, typer.Option(metavar="NAME", help="A registered checkpoint.")]
Agent = Annotated[str, typer.Option(metavar="CMD", help="The agent, as a shell runs it.")]
Serving = Annotated[str | None, typer.Option(metavar="URL", help="Where the checkpoint is served.")]
Attempts = Annotated[int | None, typer.Option(metavar="N", min=1, help="At each task.")]
Until = Annotated[
    bool, typer.Option("--until-decided", help="Attempts until the gate's verdict stands.")
]
AttemptsMax = Annotated[
    int | None, typer.Option("--max-attempts", metavar="N", min=1, help="At a task, until decided.")
]
Channel = Annotated[str, typer.Option(metavar="NAME", help="Whose policy decides.")]
Tasks = Annotated[str, typer.Option(metavar="A,B", help="Only these tasks.")]
PassEnv = Annotated[
    list[str] | None, typer.Option(metavar="NAME", help="A variable that the agent gets too.")
]
Hidden = Annotated[
    list[Path] | None, typer.Option(parser=options.path, metavar="PATH", help="Not to be seen.")
]
Visible = Annotated[
    list[Path] | None,
    typer.Option(parser=options.path, metavar="PATH", help="To be read, also below /tmp."),
]


@app.command()
def run(
    suite: SuiteFolder,
    *,
    checkpoint: Checkpoint,
    agent: Agent,
    serving: Serving = None,
    attempts: Attempts = None,
    until_decided: Until = False,
    attempts_max: AttemptsMax = None,
    channel: Channel = "production",
    tasks: Tasks = "",
    pass_env: PassEnv = None,
    hidden: Hidden = None,
    visible: Visible = None,
    no_isolation: NoIsolation = False,
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """Let an agent attempt each task of a suite with a checkpoint, and score what it leaves.

    Each attempt has a fresh copy of its task, no network but the serving address, and does not
    see the check. Recorded attempts are not run again: after an interruption, run it once more.
    With --until-decided the channel's policy says when it is enough; its error rate holds.

    Example: penstock bench run examples/suites/core --checkpoint ckpt-0013 --agent "my-agent"
    """
    from penstock_jobs.benchmarks.run import RunOptions

    if not until_decided and attempts_max is not None:
        raise InvalidInput(what="--max-attempts", why="it goes with --until-decided")
    if until_decided and (attempts is not None or tasks):
        why = "the verdict is about all tasks, and says itself how many attempts are enough"
        raise InvalidInput(what="--attempts or --tasks with --until-decided", why=why)
    for name in pass_env or []:
        if name not in os.environ:
            raise InvalidInput(what=f"--pass-env {name}", why="there is no such variable here")
    run_options = RunOptions(
        agent=agent,
        serving=serving,
        attempts=attempts,
        tasks=tuple(name.strip() for name in tasks.split(",") if name.strip()),
        environment={name: os.environ[name] for name in pass_env or []},
        isolated=not no_isolation,
        hidden=tuple(str(path.absolute()) for path in hidden or []),
        visible=tuple(str(path.absolute()) for path in visible or []),
    )
    until = (channel, attempts_max) if until_decided else None
    _run(suite, checkpoint, run_options, until, data, tenant=tenant, json=json)


def _run(
    suite_folder: Path,
    checkpoint: str,
    run_options: "RunOptions",
    until: tuple[str, int | None] | None,
    data: Path | None,
    *,
    tenant: str,
    json: bool,
) -> None:
    """`until`: whose policy decides, and how many attempts at a task it may take at most."""
    from penstock.checkpoints.attempts import AttemptScope
    from penstock.checkpoints.registration import find
    from penstock.execution import open_executor
    from penstock_jobs.benchmarks.run import UntilDecided, register_suite, run_suite
    from penstock_jobs.benchmarks.suite import read_suite
    from penstock_jobs.benchmarks.summary import results_of

    suite = read_suite(suite_folder)
    with open_existing(data) as lake:
        checkpoint = find(lake.database, tenant, checkpoint).name
        choose = None
        if until is not None:
            register_suite(lake.database, tenant, suite)
            scope = AttemptScope(tenant, suite.name, suite.version, checkpoint)
            choose = UntilDecided(lake.database, scope, until[0], most=until[1])
        with open_executor(lake.settings) as executor, progress_of("attempts") as follow:
            report = run_suite(
                lake, executor, suite, checkpoint, run_options, tenant=tenant, choose=choose,
                follow=follow,
            )  # fmt: skip
        results = results_of(lake.database, report.scope)
    if json:
        facts = {"run": report.run, "made": report.made, "known": report.known} | asdict(results)
        show_json(facts | ({"until": choose.ended.document} if choose else {}))
        return
    say(f"{report.made} attempts were made, {report.known} were known already.")
    if choose is not None:
        say(choose.ended.text)
    show_summary(results)


app.command()(show)
app.command()(compare)


@app.command()
def lint(
    suite: SuiteFolder,
    no_isolation: NoIsolation = False,
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """Whether a suite measures anything. Exit 1 when something is wrong with it.

    Each check is run on the untouched tree, which has to fail, and on the solution, which has to
    pass; where nothing is to be edited the untouched tree has to pass.

    Example: penstock bench lint examples/suites/core
    """
    from penstock.execution import open_executor
    from penstock.settings import load_settings
    from penstock_jobs.benchmarks.lint import lint_suite
    from penstock_jobs.benchmarks.suite import read_suite

    folder = read_suite(suite)
    settings = load_settings(data)
    with open_executor(settings) as executor, progress_of("tasks") as follow:
        findings = lint_suite(executor, folder, settings, isolated=not no_isolation, follow=follow)
    if json:
        show_json({"suite": folder.name, "version": folder.version, "findings": findings})
    else:
        show_table(["task", "problem"], [[finding.task, finding.problem] for finding in findings])
        counts = f"{len(folder.tasks)} tasks, {len(findings)} problems"
        say(f"{folder.name} ({folder.version}): {counts}")
    if findings:
        raise typer.Exit(1)


@app.command()
def register(
    suite: SuiteFolder,
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """Make a suite known without running it: shards leave out what its tasks hold.

    Example: penstock bench register examples/suites/core
    """
    from penstock_jobs.benchmarks.run import register_suite
    from penstock_jobs.benchmarks.suite import read_suite

    folder = read_suite(suite)
    with open_existing(data) as lake:
        new = register_suite(lake.database, tenant, folder)
    if json:
        show_json({"suite": folder.name, "version": folder.version, "new": new})
    else:
        say(f"{folder.name} ({folder.version}): {'registered' if new else 'known already'}")


PathOption = Annotated[
    Path, typer.Argument(parser=options.path, help="A file of results, or a folder of them.")
]
Suite = Annotated[str, typer.Option(metavar="NAME", help="Of which suite.")]
Form = Annotated[
    Literal["auto", "penstock", "inspect", "harbor", "terminal-bench", "swe-bench", "junit"],
    typer.Option("--format", help="What wrote them; auto looks at what is in them."),
]
SuiteVersion = Annotated[
    str | None,
    typer.Option(metavar="V", help="Of which version of the suite; else of the newest known."),
]
Metric = Annotated[
    str | None, typer.Option(metavar="NAME", help="Which score counts, where there are several.")
]
Only = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Whose results, where there are those of several."),
]
FirstAttempt = Annotated[
    int, typer.Option(metavar="N", help="Number attempts from here on: a further run.", min=0)
]
Unfinished = Annotated[
    bool, typer.Option("--unfinished", help="Also where it has not ended; what is missing: errors.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show what would be taken; change nothing.")
]


@app.command("import")
def import_(
    path: PathOption,
    *,
    suite: Suite,
    checkpoint: Checkpoint,
    form: Form = "auto",
    suite_version: SuiteVersion = None,
    metric: Metric = None,
    only: Only = None,
    first_attempt: FirstAttempt = 0,
    unfinished: Unfinished = False,
    dry_run: DryRun = False,
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """Take benchmark results that another harness wrote. A second time adds nothing.

    Errors and missing results stay what they are: neither passes nor failures.

    Example: penstock bench import jobs/2026-11-21 --suite core --checkpoint ckpt-0013
    """
    from penstock_jobs.benchmarks.importers.trials import ReadOptions
    from penstock_jobs.benchmarks.result_import import import_results

    spinner = Console(stderr=True).status(f"Reading {path}")  # shown on a terminal only
    with open_existing(data) as lake, spinner:
        report = import_results(
            lake.database, path, tenant=tenant, suite=suite, checkpoint=checkpoint,
            suite_version=suite_version, form=None if form == "auto" else form,
            options=ReadOptions(metric=metric, only=only, unfinished=unfinished),
            first_attempt=first_attempt, dry_run=dry_run,
        )  # fmt: skip
    if json:
        show_json(report)
        return
    rows = {
        "format": report.format,
        "suite": f"{report.suite} {report.suite_version}",
        "checkpoint": report.checkpoint,
        "tasks": report.tasks,
        "attempts": report.attempts,
        "scored": report.scored,
        "errors": report.errors,
        "mean score": None if report.mean_score is None else f"{report.mean_score:.4f}",
        "would be new" if report.dry_run else "new": report.new,
    }
    show_table(["what", "value"], list(rows.items()))
    if report.problems:
        problems = [
            [problem.count, problem.kind, "; ".join(problem.examples)]
            for problem in report.problems
        ]
        show_table(["times", "reported", "such as"], problems)
    if report.errors:
        why = "say nothing about the model; too many make the verdict ERROR"
        say(f"{report.errors} attempts {why}")
