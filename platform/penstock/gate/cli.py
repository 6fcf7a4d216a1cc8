"""`penstock gate`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.events.event import TENANT_DEFAULT
from penstock.gate.verdict_tables import show_text, show_verdict
from penstock.lake.lake import open_existing
from penstock.terminal import options
from penstock.terminal.output import say, show_json, show_table

if TYPE_CHECKING:
    from penstock.database.engine import Database
    from penstock.gate.drawing import Picture
    from penstock.gate.plans import Plan
    from penstock.gate.verdicts import Verdict

app = typer.Typer(
    help="What a checkpoint has to show before a channel may point at it. Changes nothing.",
    no_args_is_help=True,
)


@app.command("check")
def check(
    checkpoint: Annotated[str, typer.Argument(help="Its name or digest.")],
    *,
    channel: Annotated[str, typer.Option(help="Whose policy and incumbent.")] = "production",
    canary: Annotated[
        bool, typer.Option("--canary", help="For a part of the traffic: live metrics come later.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", parser=options.path, metavar="FILE", help="Keep the document here, as JSON."
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot",
            parser=options.path,
            metavar="FILE.html",
            help="Draw quality against cost here; needs penstock[plots].",
        ),
    ] = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """What the gate says of a checkpoint, with its evidence. Exit 0 on PASS alone, else 1.

    Example: penstock gate check ckpt-0013 --channel production
    """
    from penstock.gate.drawing import draw_html, draw_text
    from penstock.gate.judging import judge

    with open_existing(data) as lake:
        verdict = judge(lake.database, tenant, channel, checkpoint, full=not canary)
        pictures = _pictures(lake.database, tenant, verdict)
    if out is not None:
        _write(out, verdict.text + "\n")
    if plot is not None:
        title = f"{verdict.checkpoint} for {channel}: {verdict.outcome}"
        _write(plot, draw_html(pictures, title))
    if json:
        show_json({"outcome": verdict.outcome, "id": verdict.id, "verdict": verdict.document})
    else:
        show_verdict(verdict)
        for picture in pictures:
            show_text(["", draw_text(picture)])
    if verdict.outcome != "PASS":
        raise typer.Exit(1)


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
    from penstock.gate.plans import plan_of
    from penstock.gate.policy import parse
    from penstock.toml_document import read_text

    read = parse(read_text(policy), str(policy))
    with open_existing(data) as lake:
        found = plan_of(
            lake.database, tenant, suite, read, checkpoints=checkpoint or [],
            attempts=attempts or [], tasks=tasks or [], difference=difference,
        )  # fmt: skip
    if json:
        show_json(found)
        return
    for one in found:
        _show_plan(one)


def _show_plan(one: "Plan") -> None:
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


def _pictures(database: "Database", tenant: str, verdict: "Verdict") -> "list[Picture]":
    from penstock.gate.drawing import picture_of

    document = verdict.document
    marks = {verdict.checkpoint: "candidate"}
    if incumbent := document.get("incumbent"):
        marks[incumbent["name"]] = "incumbent"
    suites: dict[str, Any] = document.get("suites") or {}
    found = [
        picture_of(database, tenant, name, suite["version"], marks)
        for name, suite in suites.items()
        if suite["version"] is not None
    ]
    return [one for one in found if one is not None]


def _write(path: Path, content: str) -> None:
    from penstock.errors import InvalidInput

    try:
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(what=str(path), why=error.strerror or str(error)) from error
    say(f"wrote {path}")
