"""`penstock bench`."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from penstock.backends.terminal import options
from penstock.backends.terminal.output import (
    progress_of,
    say,
    say_next_page,
    show_table,
    show_text,
    spinner_of,
)
from penstock.core.endpoint import Client
from penstock.core.errors import InvalidInput
from penstock.events.event import TENANT_DEFAULT
from penstock.lake.commands import Outcome, command
from penstock.lake.lake import Lake

if TYPE_CHECKING:
    from penstock_jobs.benchmarks.summary import CheckpointResults

app = typer.Typer(
    help="Run benchmarks in isolation, import results, compare checkpoints.", no_args_is_help=True
)

Text = str | None
Names = list[str] | None
Paths = list[Path] | None

SuiteFolder = Annotated[Path, typer.Argument(parser=options.path, metavar="SUITE_DIR")]
NoIsolation = Annotated[
    bool, typer.Option("--no-isolation", help="Run without isolation; results are marked so.")
]
Checkpoint = Annotated[str, typer.Option(metavar="CHECKPOINT", help="A registered checkpoint.")]
Serving = Annotated[Text, typer.Option(metavar="URL", help="Address that serves the checkpoint.")]
Visible = Annotated[
    Paths,
    typer.Option(
        parser=options.path, metavar="PATH", help="Show this path to the agent, even below /tmp."
    ),
]


WithModel = Annotated[
    bool, typer.Option("--audit-model", help="Let the model of PENSTOCK_JUDGE_URL audit, too.")
]


@app.command()
@command()
def run(
    lake: Lake,
    suite: SuiteFolder,
    *,
    checkpoint: Checkpoint,
    agent: Annotated[str, typer.Option(metavar="CMD", help="Shell command of the agent.")],
    serving: Serving = None,
    attempts: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Attempts per task.")
    ] = None,
    until_decided: Annotated[
        bool, typer.Option("--until-decided", help="Continue until the gate's verdict is decided.")
    ] = False,
    attempts_max: Annotated[
        int | None,
        typer.Option("--max-attempts", metavar="N", min=1, help="Per task, with --until-decided."),
    ] = None,
    channel: Annotated[
        str, typer.Option(metavar="NAME", help="Channel whose policy decides.")
    ] = "production",
    tasks: Annotated[str, typer.Option(metavar="A,B", help="Only these tasks.")] = "",
    pass_env: Annotated[
        Names, typer.Option(metavar="NAME", help="Pass this variable to the agent.")
    ] = None,
    hidden: Annotated[
        Paths,
        typer.Option(parser=options.path, metavar="PATH", help="Hide this path from the agent."),
    ] = None,
    visible: Visible = None,
    no_isolation: NoIsolation = False,
    harness: Annotated[
        Text, typer.Option(metavar="NAME[=VERSION]", help="The agent's harness, for the evidence.")
    ] = None,
    prompt: Annotated[
        Path | None,
        typer.Option(parser=options.path, metavar="FILE", help="Its prompt, for the evidence."),
    ] = None,
    variant: Annotated[
        Text,
        typer.Option(metavar="NAME", help="A way to use the checkpoint, such as an effort: high."),
    ] = None,
    audit_model: WithModel = False,
    tenant: options.Tenant = TENANT_DEFAULT,
) -> Iterator[object]:
    """Let an agent attempt each task of a suite with a checkpoint, and score the results.

    Each attempt has a fresh copy of its task, no network but the serving address, and does not
    see the check. Recorded attempts are not run again, so repeat the command after an interruption.
    With --until-decided the channel's policy decides when to stop, and its error rate holds.
    A variant is a suite SUITE@NAME of its own with the same tasks; the agent finds its name in
    PENSTOCK_VARIANT.

    Example: penstock bench run examples/suites/core --checkpoint ckpt-0013 --agent "my-agent"
    """
    from penstock.backends.execution import open_executor
    from penstock.registry.checkpoints.harness import harness_of
    from penstock.registry.checkpoints.journal import AttemptScope
    from penstock.registry.checkpoints.registration import find
    from penstock_jobs.benchmarks.run import (
        RunOptions,
        UntilDecided,
        passed_variables,
        register_suite,
        run_suite,
    )
    from penstock_jobs.benchmarks.suite import read_suite, variant_of
    from penstock_jobs.benchmarks.summary import results_of, version_advice

    if not until_decided and attempts_max is not None:
        raise InvalidInput(what="--max-attempts", why="it needs --until-decided")
    if until_decided and (attempts is not None or tasks):
        why = "the verdict needs all tasks, and decides how many attempts are enough"
        raise InvalidInput(what="--attempts or --tasks with --until-decided", why=why)
    how = RunOptions(
        agent=agent,
        serving=serving,
        attempts=attempts,
        isolated=not no_isolation,
        tasks=tuple(name.strip() for name in tasks.split(",") if name.strip()),
        environment=passed_variables(pass_env or []),
        hidden=tuple(str(path.absolute()) for path in hidden or []),
        visible=tuple(str(path.absolute()) for path in visible or []),
    )
    folder = variant_of(read_suite(suite), variant)
    name = find(lake.database, tenant, checkpoint).name
    made_by = harness_of(agent, name, lake.settings, named=harness, prompt=prompt)
    how = replace(how, harness=made_by, audit_model=audit_model)
    choose = None
    if until_decided:
        register_suite(lake.database, tenant, folder)
        scope = AttemptScope(tenant, folder.name, folder.version, name)
        choose = UntilDecided(lake.database, scope, channel, most=attempts_max)
    with open_executor(lake.settings) as workers, progress_of("attempts") as follow:
        report = run_suite(
            lake, workers, folder, name, how, tenant=tenant, choose=choose, follow=follow
        )
    results = results_of(lake.database, report.scope)
    advice = version_advice(lake.database, tenant, folder.name)
    facts = {"run": report.run, "made": report.made, "known": report.known} | asdict(results)
    yield facts | ({"until": choose.ended.document} if choose else {})
    say(f"{report.made} attempts made, {report.known} known before.")
    if choose is not None:
        say(choose.ended.text)
    _show_summary(results)
    if advice is not None:
        say(advice)


@app.command()
@command()
def measure(
    lake: Lake,
    shard: Annotated[str, typer.Argument(metavar="SHARD", help="A shard of text, by name or id.")],
    *,
    checkpoint: Checkpoint,
    serving: Annotated[str, typer.Option(metavar="URL", help="Its engine, with /v1 at the end.")],
    tenant: options.Tenant = TENANT_DEFAULT,
) -> Iterator[object]:
    """Measure bits per byte of a checkpoint on the held-out files of a text shard.

    The engine must tell prompt_logprobs, as vLLM does. Measured files are not measured again.

    Example: penstock bench measure text-32k --checkpoint ckpt-0013 --serving http://gpu:8000/v1
    """
    from penstock.registry.checkpoints.registration import find
    from penstock.shards.registered_shards import find_shard
    from penstock_jobs.benchmarks.held_out_text import measure_checkpoint

    known, name = find_shard(lake.database, tenant, shard), find(lake.database, tenant, checkpoint)
    with progress_of("files") as follow:
        results = measure_checkpoint(lake, known, name.name, serving, follow)
    yield results
    _show_summary(results)


SuiteVersion = Annotated[
    Text, typer.Option(metavar="V", help="Version of the suite. Default: the newest.")
]
SuiteName = Annotated[str, typer.Argument(metavar="SUITE", help="A suite's name, or its folder.")]


@app.command()
@command()
def show(
    client: Client,
    suite: SuiteName,
    *,
    checkpoint: Annotated[
        Text, typer.Option(metavar="NAME", help="Show one checkpoint with its tasks.")
    ] = None,
    suite_version: SuiteVersion = None,
    limit: options.Limit = None,
    cursor: options.Cursor = None,
) -> Iterator[object]:
    """Show the scores of checkpoints at a suite and its variants, or of one at each task.

    Checkpoints come in the order of their first attempts. On the frontier is what no other beats in
    score and all costs that agents reported.

    Example: penstock bench show core --checkpoint ckpt-0013
    """

    from penstock_jobs.benchmarks.endpoints import SHOW_RESULTS, ResultsRequest
    from penstock_jobs.benchmarks.summary import result_table, task_table

    suite = _name_of(suite)
    question = ResultsRequest(
        suite=suite, checkpoint=checkpoint, suite_version=suite_version, limit=limit, cursor=cursor
    )
    answer = client.call(SHOW_RESULTS, question)
    results, advice = answer.results, answer.advice
    say_next_page(answer.next)
    yield results
    if not results:
        say(f"No attempts at {suite}{f' by {checkpoint}' if checkpoint else ''}.")
    if advice is not None:
        say(advice)
    if answer.settled:
        say("These tasks tell checkpoints apart no more. For the next version, in suite.toml:")
        say("[left_out]")
    for each in answer.settled:
        how = f"{'passed' if each.passed else 'failed'} by the newest {each.checkpoints}"
        say(f'"{each.task}" = "{how} checkpoints in all {each.attempts} attempts"')
    if checkpoint is None:
        show_table(*result_table(results))
        return
    for result in results:
        _show_summary(result)
        say("")
        show_table(*task_table(result))


@app.command()
@command()
def compare(
    client: Client,
    before: Annotated[str, typer.Argument(metavar="A", help="A checkpoint.")],
    after: Annotated[str, typer.Argument(metavar="B", help="The checkpoint to compare with it.")],
    *,
    suite: Annotated[str, typer.Option(metavar="SUITE", help="A suite's name, or its folder.")],
) -> Iterator[object]:
    """Compare two checkpoints at a suite, task by task, and show where they differ most.

    This is not a verdict: `penstock gate check` decides by a channel's policy.

    Example: penstock bench compare ckpt-0012 ckpt-0013 --suite core
    """

    from penstock_jobs.benchmarks.endpoints import COMPARE_RESULTS, ComparisonRequest
    from penstock_jobs.benchmarks.summary import number_text

    question = ComparisonRequest(suite=_name_of(suite), before=before, after=after)
    comparison = client.call(COMPARE_RESULTS, question)
    yield comparison
    rows: list[list[object]] = [
        ["common tasks", len(comparison.tasks)],
        [f"score of {before}", number_text(comparison.before_mean, ".3f")],
        [f"score of {after}", number_text(comparison.after_mean, ".3f")],
    ]
    if comparison.before_version is not None:
        rows.insert(0, [f"the same tasks, {before} at", comparison.before_version])
    if comparison.difference is not None:
        change = f"{comparison.difference:+.3f} [{comparison.lower:+.3f}, {comparison.upper:+.3f}]"
        rows.append(["difference, 95 % interval", change])
    if comparison.left_out:
        rows.append(["tasks with one score, left out", len(comparison.left_out)])
    for name, count in zip((before, after), comparison.not_isolated, strict=True):
        if count:
            rows.append([f"attempts of {name} NOT ISOLATED", count])
    show_table(["what", "value"], rows)
    pairs = [pair for pair in comparison.tasks if pair.difference]
    pairs.sort(key=lambda pair: (-abs(pair.difference), pair.task))
    if pairs:
        say("")
        rows = [
            [pair.task, f"{pair.before:.3f}", f"{pair.after:.3f}", f"{pair.difference:+.3f}"]
            for pair in pairs[:10]
        ]
        show_table(["task", before, after, "difference"], rows)


def _name_of(suite: str) -> str:
    from penstock_jobs.benchmarks.suite import is_suite, read_suite

    if not is_suite(Path(suite)):
        return suite
    return read_suite(Path(suite)).name


def _show_summary(results: "CheckpointResults") -> None:
    from penstock.registry.checkpoints.attempts import listed
    from penstock_jobs.benchmarks.summary import summary_rows

    say(f"{results.checkpoint} at {results.suite} ({results.suite_version})")
    if count := results.not_isolated:
        of = results.summary.scored + results.summary.errors
        say(f"NOT ISOLATED: in {count} of {of} attempts agents had your rights on this machine.")
    if seen := [f"{name} ({task or 'task unknown'})" for name, task in results.seen.items()]:
        say(f"It learned from sessions that tasks were made from: {listed(seen)}.")
    runs = [run for run in results.runs if run.kind == "run"]
    if len(sources := {run.source for run in runs}) > 1:
        say(f"{len(sources)} agents made these results: {'; '.join(sorted(sources))}")
    harnesses = {str(run.harness) for run in results.runs if run.harness is not None}
    if harnesses:
        say(f"harness: {'; '.join(sorted(harnesses))}")
    marks = Counter(str(problem["problem"]) for run in runs for problem in run.problems)
    for mark, count in sorted(marks.items()):
        say(f"{count} × {mark}")
    show_table(["what", "value"], summary_rows(results.summary))
    if groups := results.summary.error_groups:
        rows = [[group.count, group.error, listed(group.tasks)] for group in groups]
        show_table(["errors", "why", "at the tasks"], rows)


@app.command()
@command()
def restore(
    lake: Lake, suite: SuiteName, *, checkpoint: Checkpoint, tenant: options.Tenant = TENANT_DEFAULT
) -> Iterator[object]:
    """Restore a checkpoint's recorded attempts and runs at all versions of a suite.

    Needed if `penstock gate check` says that rows were edited, removed or added by hand.

    Example: penstock bench restore core --checkpoint ckpt-0013
    """
    from penstock.registry.checkpoints.integrity import recorded_scopes, restore
    from penstock.registry.checkpoints.registration import find_in

    suite = _name_of(suite)
    with lake.database.write() as connection:
        name = find_in(connection, tenant, checkpoint).name
        scopes = recorded_scopes(connection, tenant, suite, name)
        altered = [text for scope in scopes for text in restore(connection, scope)]
    yield {"suite": suite, "checkpoint": name, "restored": altered}
    show_text(*altered)
    say(f"rows of {name} on {suite} restored: {len(altered)}")


@app.command()
@command()
def audit(
    lake: Lake,
    suite: SuiteName,
    *,
    checkpoint: Annotated[Text, typer.Option(metavar="NAME", help="Only this checkpoint.")] = None,
    clear: Annotated[
        Text, typer.Option(metavar="TASK:N", help="Take this attempt for honest.")
    ] = None,
    reason: Annotated[Text, typer.Option(help="Why it is honest.")] = None,
    audit_model: WithModel = False,
    tenant: options.Tenant = TENANT_DEFAULT,
) -> Iterator[object]:
    """Look for answers that were looked up, in the transcripts of attempts. Exits with 1 if any is
    suspect.

    A suspect attempt counts as an error, neither as a pass nor as a failure. A person may clear it.

    Example: penstock bench audit core --checkpoint ckpt-0013
    """
    from penstock.registry.checkpoints.attempts import (
        checkpoints_tried,
        clear_attempt,
        versions_tried,
    )
    from penstock.registry.checkpoints.journal import AttemptScope
    from penstock_jobs.benchmarks.audit.audit import AuditModel, audit_recorded

    suite, database = _name_of(suite), lake.database
    names = [checkpoint] if checkpoint else checkpoints_tried(database, tenant, suite)
    versions = {name: versions_tried(database, tenant, suite, name)[-1:] for name in names}
    scopes = [AttemptScope(tenant, suite, one[0], name) for name, one in versions.items() if one]
    if clear is not None:
        task, _, number = clear.rpartition(":")
        if len(scopes) != 1 or reason is None or not number.isdigit():
            raise InvalidInput(what="--clear", why="it needs TASK:N, --checkpoint and --reason")
        clear_attempt(database, scopes[0], (task, int(number)), options.actor(None), reason)
    model = AuditModel(lake.settings, database) if audit_model else None
    reports = [audit_recorded(lake, scope, model) for scope in scopes]
    yield Outcome(reports, failed=any(report.suspect for report in reports))
    rows = [
        [report.checkpoint, task, number, found.rule, found.step, found.text, audit.cleared or ""]
        for report in reports
        for task, number, audit in report.findings
        for found in audit.findings
    ]
    columns = ["checkpoint", "task", "attempt", "rule", "step", "found", "cleared by"]
    show_table(columns, rows)
    for report in reports:
        counts = f"{report.audited} of {report.attempts} attempts have a transcript"
        counts += f", {report.by_model} a model read" if report.by_model else ""
        counts += "".join(f", {count} {why_not}" for why_not, count in report.unread.items())
        say(f"{report.checkpoint}: {counts}, {report.suspect} are suspect")


_IMPORT_FIELDS = (
    "format", "suite", "suite_version", "checkpoint", "tasks", "attempts", "scored", "errors",
)  # fmt: skip


@app.command("import")
@command()
def import_(
    client: Client,
    path: Annotated[Path, typer.Argument(parser=options.path, help="A file or folder of results.")],
    *,
    suite: Annotated[str, typer.Option(metavar="NAME", help="Suite of the results.")],
    checkpoint: Checkpoint,
    form: Annotated[
        Literal["auto", "penstock", "inspect", "harbor", "swe-bench", "junit"],
        typer.Option("--format", help="Harness that wrote the results; auto detects it."),
    ] = "auto",
    suite_version: SuiteVersion = None,
    metric: Annotated[
        Text, typer.Option(metavar="NAME", help="Score to take, if there are several.")
    ] = None,
    only: Annotated[
        Text, typer.Option(metavar="NAME", help="Agent or model to take, if there are several.")
    ] = None,
    first_attempt: Annotated[
        int, typer.Option(metavar="N", help="First number of attempts, for a further run.", min=0)
    ] = 0,
    unfinished: Annotated[
        bool,
        typer.Option("--unfinished", help="Import an unfinished run; missing results are errors."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be imported, and import nothing.")
    ] = False,
) -> Iterator[object]:
    """Import benchmark results of another harness. Importing them again adds nothing.

    Errors and missing results count neither as passes nor as failures.

    Example: penstock bench import jobs/2026-11-21 --suite core --checkpoint ckpt-0013
    """

    from penstock_jobs.benchmarks.endpoints import IMPORT_RESULTS
    from penstock_jobs.benchmarks.importers.trials import ReadOptions
    from penstock_jobs.benchmarks.result_import import error_rows, read_results

    reading = ReadOptions(metric=metric, only=only, unfinished=unfinished)
    with spinner_of(f"Reading {path}"):
        whose = {"suite": suite, "checkpoint": checkpoint, "suite_version": suite_version}
        how = {"first_attempt": first_attempt, "dry_run": dry_run}
        question = read_results(path, None if form == "auto" else form, reading, **whose, **how)
        answer = client.call(IMPORT_RESULTS, question)
    report, advice = answer.report, answer.advice
    if advice is not None:
        say(advice)
    yield report
    score = None if report.mean_score is None else f"{report.mean_score:.4f}"
    rows = [[name.replace("_", " "), getattr(report, name)] for name in _IMPORT_FIELDS]
    rows += [["mean score", score], ["would be new" if report.dry_run else "new", report.new]]
    show_table(["what", "value"], rows)
    problems = [[each.count, each.kind, "; ".join(each.examples)] for each in report.problems]
    if problems:
        show_table(["times", "problem", "such as"], problems)
    if report.failed:
        show_table(["errors", "why", "at the tasks", "such as"], error_rows(report))
        more = "too many of them make the verdict ERROR; --json lists all"
        say(f"{report.errors} attempts say nothing about the model; {more}")
