"""`penstock loop run | status | history`."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from threading import Event
from typing import Annotated

import typer

from penstock.backends.terminal import options
from penstock.backends.terminal.interruption import ended_as_by_ctrl_c
from penstock.backends.terminal.output import say, show_table
from penstock.events.event import TENANT_DEFAULT
from penstock.lake.commands import Outcome, asks, command
from penstock.lake.lake import Lake
from penstock_jobs.loop.endpoints import (
    SHOW_CYCLES,
    SHOW_LOOPS,
    CycleAnswer,
    CyclesAnswer,
    cycle_answer,
)

app = typer.Typer(
    help="From sessions to a checkpoint that serves, again and again, by a loop file.",
    no_args_is_help=True,
)


@app.command()
@command()
def run(
    lake: Lake,
    loop: Annotated[
        Path, typer.Argument(parser=options.path, metavar="LOOP.toml", help="The loop file.")
    ],
    once: Annotated[
        bool, typer.Option("--once", help="The cycle that is open, or a new one, to its end.")
    ] = False,
    tenant: options.Tenant = TENANT_DEFAULT,
) -> Iterator[object]:
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
    with ended_as_by_ctrl_c():
        runner = Runner(lake=lake, loop=loop_file, tenant=tenant, wait=never.wait, tell=say)
        if not once:
            runner.run()
            return
        cycle = runner.run_once()
    answer = cycle_answer(cycle)
    yield Outcome(answer, failed=cycle.outcome not in ("promoted", None))
    _show_cycle(answer)


@app.command()
@asks(SHOW_LOOPS)
def status(page: CyclesAnswer) -> None:
    """What each loop is doing, what it waits for, and how much of its budget is used.

    Example: penstock loop status
    """
    if not page.cycles:
        say("No loop has run yet: `penstock loop run LOOP.toml`")
    for cycle in page.cycles:
        _show_cycle(cycle)


@app.command()
@asks(SHOW_CYCLES)
def history(page: CyclesAnswer) -> None:
    """How the cycles ended and why, and how long each stage took.

    Example: penstock loop history --loop core
    """
    cycles = page.cycles
    names = list(dict.fromkeys(stage.stage for cycle in cycles for stage in cycle.stages))
    rows: list[list[object]] = []
    for cycle in cycles:
        took_s = cycle.took_s
        stages = {stage.stage: _duration(stage.took_s) for stage in cycle.stages}
        state = cycle.outcome or ("running" if cycle.began_at is not None else "waiting")
        at = datetime.fromisoformat(cycle.began_at) if cycle.began_at else None
        began = f"{at:%Y-%m-%d %H:%M:%S}" if at else ""
        share = "" if took_s is None else f"{took_s / max(cycle.budget_s, 1):.0%}"
        row = [cycle.loop, cycle.cycle, state, cycle.checkpoint, cycle.parent, began]
        rows.append([*row, _duration(took_s), share, *(stages.get(name, "") for name in names)])
    columns = ["loop", "cycle", "outcome", "checkpoint", "after", "began", "took", "budget"]
    show_table([*columns, *names], rows)
    for cycle in cycles:
        if cycle.why:
            say(f"{cycle.loop} {cycle.cycle}: {cycle.why}")


def _show_cycle(cycle: CycleAnswer) -> None:
    head = f"{cycle.loop}, cycle {cycle.cycle} for {cycle.channel}"
    if cycle.ended_at is not None:
        head += f": {cycle.outcome}{cycle.why and f', {cycle.why}'}"
    elif cycle.began_at is None:
        head += " has not begun"
    if cycle.took_s is not None:
        over = ", OVER ITS BUDGET" if cycle.over_budget else ""
        head += f"; {_duration(cycle.took_s)} of {_duration(cycle.budget_s)}{over}"
    say(head)
    rows = []
    for stage in cycle.stages:
        why = stage.why
        if stage.state == "running":
            silent = ", which is silent: the next runner takes over" * stage.silent
            why = f"by {stage.owner}{silent}"
        elif stage.again_at is not None:
            why += f" (again at {datetime.fromisoformat(stage.again_at):%H:%M:%S} UTC)"
        took = _duration(stage.took_s)
        rows.append([stage.stage, stage.state, took, stage.claims, stage.failures, why])
    show_table(["stage", "state", "took", "claims", "failures", "what"], rows)


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"
