"""`penstock gate plan`. `penstock gate check` needs a channel: see `channels/promotion_cli.py`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.events.event import TENANT_DEFAULT
from penstock.gate.report import show_text
from penstock.lake.lake import open_existing
from penstock.terminal import options
from penstock.terminal.output import show_json, show_table

if TYPE_CHECKING:
    from penstock.gate.power import PowerPlan

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

    The variance comes from recorded attempts of the checkpoints that are named, else of those that
    have most on the suite; without any it is assumed, and said so.

    Example: penstock gate plan core --policy policy.toml --attempts 4
    """
    from penstock.gate.policy import parse
    from penstock.gate.power import plan_power
    from penstock.toml_document import read_text

    read = parse(read_text(policy), str(policy))
    with open_existing(data) as lake:
        found = plan_power(
            lake.database, tenant, suite, read, checkpoints=checkpoint or [],
            attempts=attempts or [], tasks=tasks or [], difference=difference,
        )  # fmt: skip
    if json:
        show_json(found)
        return
    for one in found:
        _show_plan(one)


def _show_plan(one: "PowerPlan") -> None:
    show_text(
        [
            f"{one.suite}: a margin of {one.margin:g} at alpha {one.alpha:g}, a candidate that is"
            f" {'equal' if one.difference == 0 else f'{one.difference:+g} better'}",
            f"  variance from {one.source}",
            f"  at a task, one attempt of each: {one.spread.within:.4g}; between tasks:"
            f" {one.spread.between:.4g}",
            "",
        ]
    )
    margins = sorted({cell.margin for cell in one.cells})
    rows: dict[tuple[int, int], list[str]] = {}
    for cell in one.cells:
        rows.setdefault((cell.tasks, cell.attempts), []).append(f"{cell.power:.0%}")
    columns = ["tasks", "attempts", *(f"passes at {margin:g}" for margin in margins)]
    show_table(columns, [[*at, *shown] for at, shown in rows.items()])
    show_text([""])
    for need in one.needs:
        many = "no number of tasks" if need.tasks is None else f"{need.tasks} tasks"
        show_text([f"  for 80 % at {need.attempts} attempts: {many}"])
    show_text([""])
