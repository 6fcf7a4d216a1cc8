"""`penstock loop run`."""

from pathlib import Path
from threading import Event
from typing import Annotated

import typer

from penstock.events.tenants import TENANT_DEFAULT
from penstock.lake.lake import open_existing
from penstock.terminal import options
from penstock.terminal.interruption import ended_as_by_ctrl_c
from penstock.terminal.output import say, show_json


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
    from penstock_jobs.loop.commands.showing import cycle_document, show_cycle
    from penstock_jobs.loop.loopfile import load_loop
    from penstock_jobs.loop.running import Runner

    wanted = load_loop(loop)
    never = Event()
    with ended_as_by_ctrl_c(), open_existing(data) as lake:
        runner = Runner(lake=lake, loop=wanted, tenant=tenant, wait=never.wait, tell=say)
        if not once:
            runner.run()
            return
        cycle = runner.run_once()
    show_json(cycle_document(cycle)) if json else show_cycle(cycle)
    if cycle.outcome not in ("promoted", None):
        raise typer.Exit(1)
