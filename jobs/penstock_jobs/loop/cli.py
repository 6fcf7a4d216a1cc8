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
        bool,
        typer.Option("--once", help="The cycle that is open, or a new one, to its end."),
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
        if cycle.loop not in newest or cycle.number > newest[cycle.loop].number:
            newest[cycle.loop] = cycle
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
        took_us = _cycle_us(cycle, now_us)
        budget_us = max(cycle.budget_s, 1) * SECOND_US
        stages = {stage.stage: _duration(_stage_us(cycle, stage, now_us)) for stage in cycle.stages}
        state = cycle.outcome or ("running" if cycle.began_at is not None else "waiting")
        began = f"{time_of(cycle.began_at):%Y-%m-%d %H:%M:%S}" if cycle.began_at else ""
        share = "" if took_us is None else f"{took_us / budget_us:.0%}"
        row = [cycle.loop, cycle.number, state, cycle.checkpoint, cycle.parent, began]
        rows.append([*row, _duration(took_us), share, *(stages.get(name, "") for name in names)])
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
    took_us = _cycle_us(cycle, now_us)
    if took_us is not None:
        head += f"; {_duration(took_us)} of {_duration(cycle.budget_s * SECOND_US)}"
        if took_us > cycle.budget_s * SECOND_US:
            head += ", OVER ITS BUDGET"
    say(head)
    rows = []
    for stage in cycle.stages:
        why = stage.why
        if stage.state == "running":
            silent = now_us is not None and stage.lease_until < now_us
            why = f"by {stage.owner}" + (", which is silent: the next runner takes over" * silent)
        elif stage.state == "waiting" and now_us is not None and stage.not_before > now_us:
            why += f" (again at {time_of(stage.not_before):%H:%M:%S} UTC)"
        took = _duration(_stage_us(cycle, stage, now_us))
        rows.append([stage.stage, stage.state, took, stage.epoch, stage.failures, why])
    show_table(["stage", "state", "took", "claims", "failures", "what"], rows)


def _cycle_document(cycle: "Cycle", now_us: int | None = None) -> dict[str, Any]:
    took_us = _cycle_us(cycle, now_us)
    fields = facts(cycle)
    for name in ("number", "file_digest", "stages"):
        del fields[name]
    stages = []
    for stage in cycle.stages:
        of_stage = facts(stage)
        for name in ("position", "epoch", "lease_until", "tried_at"):
            del of_stage[name]
        not_before = time_of(stage.not_before).isoformat() if stage.not_before else None
        stages.append(
            of_stage
            | {
                "owner": stage.owner if stage.state == "running" else None,
                "claims": stage.epoch,
                "not_before": not_before,
                "took_s": _seconds(_stage_us(cycle, stage, now_us)),
            }
        )
    over = took_us is not None and took_us > cycle.budget_s * SECOND_US
    took = {"took_s": _seconds(took_us), "over_budget": over}
    return {"loop": cycle.loop, "cycle": cycle.number} | fields | took | {"stages": stages}


def _cycle_us(cycle: "Cycle", now_us: int | None) -> int | None:
    """Since it began, until it ended or until now."""
    end_us = cycle.ended_at or now_us
    return None if cycle.began_at is None or end_us is None else end_us - cycle.began_at


def _stage_us(cycle: "Cycle", stage: "CycleStage", now_us: int | None) -> int | None:
    """How long it took, pauses included. The time before the cycle began does not count."""
    begun, ended = stage.started_at, stage.ended_at or now_us
    if begun is None or ended is None or cycle.began_at is None:
        return None
    return max(ended - max(begun, cycle.began_at), 0)


def _duration(us: int | None) -> str:
    if us is None:
        return ""
    seconds = us / SECOND_US
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def _seconds(us: int | None) -> float | None:
    return None if us is None else us / SECOND_US
