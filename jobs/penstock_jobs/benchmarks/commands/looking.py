"""`penstock bench show | compare`."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.events.tenants import TENANT_DEFAULT
from penstock.lake.directory import open_existing
from penstock.terminal import options
from penstock.terminal.output import say, show_json, show_table

if TYPE_CHECKING:
    from penstock.checkpoints.attempt import AttemptScope
    from penstock.checkpoints.scores import BenchmarkRun
    from penstock.database.engine import Database
    from penstock_jobs.benchmarks.summarising import Summary

SuiteName = Annotated[str, typer.Argument(metavar="SUITE", help="A suite's name, or its folder.")]


#: What is shown of a version.
_VERSION_CHARS = 19


@dataclass(frozen=True)
class Known:
    """What is known of a checkpoint at a suite."""

    suite: str
    suite_version: str
    checkpoint: str
    summary: "Summary"
    #: Those that results came from.
    runs: "list[BenchmarkRun]"


def known_of(database: "Database", place: "AttemptScope") -> Known:
    from penstock.checkpoints.scores import attempts_of, runs_of
    from penstock.checkpoints.suites import suite_versions
    from penstock_jobs.benchmarks.summarising import summarise

    versions = suite_versions(database, place.tenant, place.suite)
    tasks = [task for one in versions if one.version == place.suite_version for task in one.tasks]
    found = attempts_of(database, place)
    used = {kept.run for kept in found}
    runs = [one for one in runs_of(database, place) if one.id in used]
    summary = summarise(tasks, [kept.result for kept in found])
    return Known(place.suite, place.suite_version, place.checkpoint, summary, runs)


def show_summary(known: Known) -> None:
    from penstock_jobs.benchmarks import showing

    say(f"{known.checkpoint} at {known.suite} ({known.suite_version})")
    for line in showing.run_lines(known.runs):
        say(line)
    show_table(["what", "value"], showing.summary_rows(known.summary))


def show(
    suite: SuiteName,
    *,
    checkpoint: Annotated[
        str | None,
        typer.Option("--checkpoint", metavar="NAME", help="Only this one, with its tasks."),
    ] = None,
    suite_version: Annotated[
        str | None,
        typer.Option("--suite-version", metavar="V", help="Else the newest of each checkpoint."),
    ] = None,
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """What checkpoints scored at a suite; of one checkpoint, what it scored at each task.

    Example: penstock bench show core --checkpoint ckpt-0013
    """
    from penstock.checkpoints.attempt import AttemptScope
    from penstock.checkpoints.scores import checkpoints_tried, versions_tried
    from penstock_jobs.benchmarks import showing

    name = _name_of(suite)
    with open_existing(data) as lake:
        database = lake.database
        names = [checkpoint] if checkpoint else checkpoints_tried(database, tenant, name)
        places = [
            AttemptScope(tenant, name, version, one)
            for one in names
            for version in versions_tried(database, tenant, name, one)[-1:]
            if suite_version is None
        ]
        if suite_version is not None:
            places = [AttemptScope(tenant, name, suite_version, one) for one in names]
        found = [known_of(database, place) for place in places]
    found = [one for one in found if one.summary.scored or one.summary.errors]
    if json:
        show_json(found)
        return
    if not found:
        say(f"No attempts at {name} are known{f' of {checkpoint}' if checkpoint else ''}.")
    if checkpoint is None:
        show_table(
            ["checkpoint", "version", "score", "scored", "errors", ""],
            [
                [
                    one.checkpoint,
                    one.suite_version[:_VERSION_CHARS],
                    showing.mean_text(one.summary.score),
                    one.summary.scored,
                    one.summary.errors,
                    "" if showing.isolated(one.runs) else "NOT ISOLATED",
                ]
                for one in found
            ],
        )
        return
    for one in found:
        show_summary(one)
        say("")
        columns = ["task", "score", "scored", "errors", "tokens", "latency, s", "tags"]
        show_table(columns, showing.task_rows(one.summary))


def compare(
    before: Annotated[str, typer.Argument(metavar="A", help="A checkpoint.")],
    after: Annotated[str, typer.Argument(metavar="B", help="The one to compare with it.")],
    *,
    suite: Annotated[
        str, typer.Option("--suite", metavar="SUITE", help="A suite's name, or its folder.")
    ],
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """Two checkpoints at one suite, paired by task, and where they differ most.

    It is no verdict: `penstock gate check` decides by a channel's policy.

    Example: penstock bench compare ckpt-0012 ckpt-0013 --suite core
    """
    from penstock_jobs.benchmarks import showing
    from penstock_jobs.benchmarks.comparing import compare_checkpoints

    with open_existing(data) as lake:
        found = compare_checkpoints(lake.database, tenant, _name_of(suite), before, after)
    if json:
        show_json(asdict(found))
        return
    show_table(["what", "value"], showing.compare_rows(found))
    if rows := showing.difference_rows(found):
        say("")
        show_table(["task", before, after, "difference"], rows)


def _name_of(suite: str) -> str:
    if not (Path(suite) / "suite.toml").is_file():
        return suite
    from penstock_jobs.benchmarks.suite import read_suite

    return read_suite(Path(suite)).name
