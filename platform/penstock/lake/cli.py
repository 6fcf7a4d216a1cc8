"""`penstock lake`."""

from dataclasses import replace
from typing import Annotated

import typer

from penstock.execution.opening import open_executor
from penstock.lake.collection import collect
from penstock.lake.deep_verification import verify_deep
from penstock.lake.directory import open_existing
from penstock.lake.statistics import read_statistics
from penstock.lake.upkeep import alone_now, upkeep_jobs
from penstock.lake.verification import verify
from penstock.metrics import Metrics
from penstock.terminal import options
from penstock.terminal.output import facts, say, show_json, show_table

app = typer.Typer(help="The files of the lake.", no_args_is_help=True)


@app.command("stats")
def stats(data: options.Data = None, json: options.Json = False) -> None:
    """How much the lake holds.

    Example: penstock lake stats
    """
    with open_existing(data) as lake:
        found = read_statistics(lake)
    if json:
        show_json(facts(found))
    else:
        show_table(["what", "value"], list(facts(found).items()))


@app.command("compact")
def compact(data: options.Data = None, json: options.Json = False) -> None:
    """Merge small segments now; `serve` does it by itself.

    Example: penstock lake compact
    """
    with open_existing(data) as lake, alone_now(lake):
        did = upkeep_jobs()["compaction"](lake, Metrics())
    show_json({"did": did}) if json else say(did or "nothing is worth a merge")


@app.command("verify")
def verify_(
    data: options.Data = None,
    deep: Annotated[
        bool,
        typer.Option("--deep", help="Look at every event too: there once, and where it belongs."),
    ] = False,
    json: options.Json = False,
) -> None:
    """Check every file against the database. Exit 1 when anything does not match.

    The work is done where PENSTOCK_EXECUTOR says.

    Example: penstock lake verify
    """
    with open_existing(data) as lake, open_executor(lake.settings) as executor:
        found = verify(lake, executor)
        if deep:
            found = replace(found, findings=found.findings + verify_deep(lake, executor))
    if json:
        others = {f"{name}s": count for name, count in found.others.items()}
        counts = {"segments": found.segments, "rows": found.rows, **others}
        show_json(counts | {"findings": found.findings})
    else:
        for finding in found.findings:
            say(f"{finding.name}: {finding.problem}")
        held = {"segment": found.segments, "event": found.rows, **found.others}
        texts = [f"{count} {name.replace('_', ' ')}s" for name, count in held.items()]
        say(f"{', '.join(texts)}: {len(found.findings)} problems")
    if found.findings:
        raise typer.Exit(1)


@app.command("gc")
def gc(
    data: options.Data = None,
    grace: Annotated[
        float | None,
        typer.Option(help="Seconds that a replaced file is kept; the setting by default.", min=0),
    ] = None,
    json: options.Json = False,
) -> None:
    """Delete files that nobody needs: replaced ones, and what a crash left.

    Example: penstock lake gc
    """
    with open_existing(data) as lake, alone_now(lake):
        done = collect(lake, grace)
    if json:
        others = {folder: n for folder, n in done.replaced.items() if folder != "events"}
        counts = {"uncommitted": done.uncommitted, "leases": done.leases}
        show_json({"segments": done.segments, **others, **counts})
    else:
        replaced = ", ".join(f"{n} replaced files of {name}" for name, n in done.replaced.items())
        say(f"{replaced} and {done.uncommitted} uncommitted files deleted")
