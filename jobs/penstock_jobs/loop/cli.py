"""`penstock loop run | status | history`."""

from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.clock import SECOND_US
from penstock.events.event import TENANT_DEFAULT
from penstock.lake.lake import open_existing
from penstock.terminal import options
from penstock.terminal.long_commands import ended_as_by_ctrl_c
from penstock.terminal.output import facts, say, show_json, show_table, time_of

if TYPE_CHECKING:
    from penstock_jobs.loop.cycles import Cycle, CycleStage

app = typer.Typer(
    help="From sessions to a checkpoint that serves, again and again, by a loop file.",
    no_args_is_help=True,
)
LoopName = Annotated[str | None, typer.Option("--loop", metavar="NAME", help="Only this loop.")]


@app.command()
def run(
    loop: Annotated[
        Path, typer.Argument(parser=options.path, metavar="LOOP.toml", help="The loop file.")
    ],
    once: Annotated[
        bool, typer.Option("--once", help="The cycle that is open, or a new one, to its end.")
    ] = False,
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """Run cycles: rewards, shard, trainer, benchmark, gate, promotion, canary and watch.

    It may be killed at any point, and run by several at once, on any machine: stages are rows in
    the database, and who holds one does it. With --once, exit 1 where the cycle ended without
    promoting its checkpoint; where there is nothing to begin with yet it says what it waits for.

    Example: penstock loop run examples/loops/core.toml --once
    """
    from penstock_jobs.loop.loop_file import load_loop
    from penstock_jobs.loop.runner import Runner

    loop_file = load_loop(loop)
    never = Event()
    with ended_as_by_ctrl_c(), open_existing(data) as lake:
        runner = Runner(lake=lake, loop=loop_file, tenant=tenant, wait=never.wait, tell=say)
        if not once:
            runner.run()
            return
        cycle = runner.run_once()
    show_json(_cycle_document(cycle)) if json else _show_cycle(cycle)
    if cycle.outcome not in ("promoted", None):
        raise typer.Exit(1)


@app.command()
def status(
    loop: LoopName = None,
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """What each loop is doing, what it waits for, and how much of its budget is used.

    Example: penstock loop status
    """
    from penstock_jobs.loop.cycles import cycles_of, database_now

    with open_existing(data) as lake:
        cycles = cycles_of(lake.database, tenant, loop)
        now_us = database_now(lake.database)
    newest: dict[str, Cycle] = {}
    for cycle in cycles:
        newest.setdefault(cycle.loop, cycle)
    if json:
        show_json([_cycle_document(cycle, now_us) for cycle in newest.values()])
        return
    if not newest:
        say("No loop has run yet: `penstock loop run LOOP.toml`")
    for cycle in newest.values():
        _show_cycle(cycle, now_us)


@app.command()
def history(
    loop: LoopName = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="So many, the newest.")] = 20,
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """How the cycles ended and why, and how long each stage took.

    Example: penstock loop history --loop core
    """
    from penstock_jobs.loop.cycles import cycles_of, database_now

    with open_existing(data) as lake:
        cycles = cycles_of(lake.database, tenant, loop, limit=limit)[::-1]
        now_us = database_now(lake.database)
    if json:
        show_json([_cycle_document(cycle, now_us) for cycle in cycles])
        return
    names = list(dict.fromkeys(stage.stage for cycle in cycles for stage in cycle.stages))
    rows: list[list[object]] = []
    for cycle in cycles:
        took_s = _cycle_s(cycle, now_us)
        stages = {stage.stage: _duration(_stage_s(cycle, stage, now_us)) for stage in cycle.stages}
        state = cycle.outcome or ("running" if cycle.began_at is not None else "waiting")
        began = f"{time_of(cycle.began_at):%Y-%m-%d %H:%M:%S}" if cycle.began_at else ""
        share = "" if took_s is None else f"{took_s / max(cycle.budget_s, 1):.0%}"
        row = [cycle.loop, cycle.number, state, cycle.checkpoint, cycle.parent, began]
        rows.append([*row, _duration(took_s), share, *(stages.get(name, "") for name in names)])
    columns = ["loop", "cycle", "outcome", "checkpoint", "after", "began", "took", "budget"]
    show_table([*columns, *names], rows)
    for cycle in cycles:
        if cycle.why:
            say(f"{cycle.loop} {cycle.number}: {cycle.why}")


def _show_cycle(cycle: "Cycle", now_us: int | None = None) -> None:
    head = f"{cycle.loop}, cycle {cycle.number} for {cycle.channel}"
    if cycle.ended_at is not None:
        head += f": {cycle.outcome}{cycle.why and f', {cycle.why}'}"
    elif cycle.began_at is None:
        head += " has not begun"
    if (took_s := _cycle_s(cycle, now_us)) is not None:
        over = ", OVER ITS BUDGET" if took_s > cycle.budget_s else ""
        head += f"; {_duration(took_s)} of {_duration(cycle.budget_s)}{over}"
    say(head)
    rows = []
    for stage in cycle.stages:
        why = stage.why
        if stage.state == "running":
            silent = now_us is not None and stage.lease_until < now_us
            why = f"by {stage.owner}" + (", which is silent: the next runner takes over" * silent)
        elif stage.state == "waiting" and now_us is not None and stage.not_before > now_us:
            why += f" (again at {time_of(stage.not_before):%H:%M:%S} UTC)"
        took = _duration(_stage_s(cycle, stage, now_us))
        rows.append([stage.stage, stage.state, took, stage.epoch, stage.failures, why])
    show_table(["stage", "state", "took", "claims", "failures", "what"], rows)


def _cycle_document(cycle: "Cycle", now_us: int | None = None) -> dict[str, Any]:
    took_s = _cycle_s(cycle, now_us)
    document = {"loop": cycle.loop, "cycle": cycle.number} | facts(cycle)
    document |= {"took_s": took_s, "over_budget": took_s is not None and took_s > cycle.budget_s}
    stages = []
    for stage in cycle.stages:
        of_stage = facts(stage) | {"claims": stage.epoch}
        if stage.state != "running":
            of_stage["owner"] = None
        of_stage["not_before"] = time_of(stage.not_before).isoformat() if stage.not_before else None
        of_stage["took_s"] = _stage_s(cycle, stage, now_us)
        del of_stage["epoch"], of_stage["lease_until"]
        stages.append(of_stage)
    del document["number"], document["stages"]
    return document | {"stages": stages}


def _cycle_s(cycle: "Cycle", now_us: int | None) -> float | None:
    """Since it began, until it ended or until now."""
    begun, ended = cycle.began_at, cycle.ended_at or now_us
    return None if begun is None or ended is None else (ended - begun) / SECOND_US


def _stage_s(cycle: "Cycle", stage: "CycleStage", now_us: int | None) -> float | None:
    """How long it took, pauses included. The time before the cycle began does not count."""
    begun, ended = stage.started_at, stage.ended_at or now_us
    if begun is None or ended is None or cycle.began_at is None:
        return None
    return max(ended - max(begun, cycle.began_at), 0) / SECOND_US


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"
