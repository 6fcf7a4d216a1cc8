"""`penstock gate plan`. `penstock gate check` needs a channel: see `channels/promotion_cli.py`."""

from pathlib import Path
from typing import Annotated

import typer

from penstock.events.event import TENANT_DEFAULT
from penstock.gate.report import show_plan
from penstock.lake.lake import open_existing
from penstock.terminal import options
from penstock.terminal.output import show_json

app = typer.Typer(
    help="What a checkpoint has to show before a channel may point at it. Changes nothing.",
    no_args_is_help=True,
)


@app.command("plan")
def plan(
    suite: Annotated[str, typer.Argument(help="The suite's name.")],
    *,
    policy: Annotated[
        Path,
        typer.Option("--policy", parser=options.path, metavar="FILE", help="The policy to plan."),
    ],
    checkpoint: Annotated[
        list[str] | None,
        typer.Option(
            "--checkpoint", help="Whose recorded attempts to learn from; one or two may be named."
        ),
    ] = None,
    attempts: Annotated[
        list[int] | None,
        typer.Option("--attempts", min=1, max=64, help="At each task; repeatable."),
    ] = None,
    tasks: Annotated[
        list[int] | None,
        typer.Option("--tasks", min=10, max=2_000, help="How many tasks; repeatable."),
    ] = None,
    difference: Annotated[
        float, typer.Option(help="How much better the candidate is in truth; 0 is an equal one.")
    ] = 0.0,
    tenant: options.Tenant = TENANT_DEFAULT,
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """How likely a candidate passes, before anyone spends on it, and what 80 % would take.

    The variance comes from recorded attempts of the named checkpoints, else of those with the most
    attempts on the suite. Without any attempts it is assumed, and the plan says so.

    Example: penstock gate plan core --policy policy.toml --attempts 4
    """
    from penstock.gate.policy import parse
    from penstock.gate.power import plan_power
    from penstock.toml_document import read_text

    parsed = parse(read_text(policy), str(policy))
    with open_existing(data) as lake:
        plans = plan_power(
            lake.database, tenant, suite, parsed, checkpoints=checkpoint or [],
            attempts=attempts or [], tasks=tasks or [], difference=difference,
        )  # fmt: skip
    if json:
        show_json(plans)
        return
    for each in plans:
        show_plan(each)
