"""`penstock gate plan`, and the display of verdicts and plans on standard output.

`penstock gate check` needs a channel: see `channels/promotion_cli.py`."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.backends.terminal import options
from penstock.backends.terminal.output import show_table, show_text, spinner_of, time_of
from penstock.core.endpoint import Client
from penstock.lake.commands import command

if TYPE_CHECKING:
    from penstock.registry.gate.power import PowerPlan

_COLUMNS = ["outcome", "candidate", "incumbent"]


app = typer.Typer(
    help="Decide whether a channel may point at a checkpoint. Changes nothing.",
    no_args_is_help=True,
)


@app.command()
@command()
def plan(
    client: Client,
    suite: Annotated[str, typer.Argument(help="The suite's name.")],
    *,
    policy: Annotated[
        Path,
        typer.Option("--policy", parser=options.path, metavar="FILE", help="Plan for this policy."),
    ],
    checkpoint: Annotated[
        list[str] | None,
        typer.Option(help="Take the variance from attempts of this checkpoint; up to twice."),
    ] = None,
    attempts: Annotated[
        list[int] | None, typer.Option(min=1, max=64, help="Attempts per task; repeatable.")
    ] = None,
    tasks: Annotated[
        list[int] | None, typer.Option(min=10, max=2_000, help="Number of tasks; repeatable.")
    ] = None,
    difference: Annotated[
        float, typer.Option(help="The assumed advantage of the candidate; 0: both are equal.")
    ] = 0.0,
    errors: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="The share of attempts with errors, on each side."),
    ] = None,
    unscored: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="The share of tasks without a score on one side."),
    ] = None,
) -> Iterator[object]:
    """Show how likely a candidate is to pass a policy, and how many tasks give a power of 80 %.

    The variance comes from recorded attempts of the named checkpoints, or of those with the most
    attempts on the suite. Without attempts it is assumed, and the plan says so. Errors and tasks
    without a score are as frequent as recorded, and count at their worst.

    Example: penstock gate plan core --policy policy.toml --attempts 4
    """
    from penstock.core.toml_document import read_text
    from penstock.registry.gate.policy import parse
    from penstock.registry.gate.power import PLAN_POWER, PlanRequest

    text = read_text(policy)
    parse(text, str(policy))
    question = PlanRequest(
        suite=suite,
        policy=text,
        checkpoints=checkpoint or [],
        attempts=attempts or [],
        tasks=tasks or [],
        difference=difference,
        errors=errors,
        unscored=unscored,
    )
    with spinner_of("simulating"):
        plans = client.call(PLAN_POWER, question).plans
    yield plans
    for each in plans:
        _show_plan(each)


def _show_plan(plan: "PowerPlan") -> None:
    better = "equal" if plan.difference == 0 else f"{plan.difference:+g} better"
    show_text(
        f"{plan.suite}: a margin of {plan.margin:g} at alpha {plan.alpha:g}, a candidate that"
        f" is {better}",
        f"  variance from {plan.source}",
        f"  variance within a task, for one attempt of each: {plan.spread.within:.4g};"
        f" between tasks: {plan.spread.between:.4g}",
        f"  missing: {plan.missing.errors:.1%} of attempts are errors, {plan.missing.unscored:.1%}"
        " of tasks have no score on one side; both count at their worst",
        "",
    )
    margins = sorted({cell.margin for cell in plan.cells})
    rows: dict[tuple[int, int], list[str]] = {}
    for cell in plan.cells:
        rows.setdefault((cell.tasks, cell.attempts), []).append(f"{cell.power:.0%}")
    columns = ["tasks", "attempts", *(f"passes at {margin:g}" for margin in margins)]
    show_table(columns, [[*sizes, *powers] for sizes, powers in rows.items()])
    show_text("")
    for need in plan.needs:
        count = "no number of tasks" if need.tasks is None else f"{need.tasks} tasks"
        show_text(f"  for 80 % at {need.attempts} attempts: {count}")
    show_text("")


def show_verdict(outcome: str, verdict_id: str, document: Mapping[str, Any]) -> None:
    """Show the outcome, then the reasons, then the numbers."""
    incumbent = document.get("incumbent")
    against = f", after {incumbent['name']}" if incumbent else ", as its first checkpoint"
    candidate, channel = document["candidate"]["name"], document["channel"]
    show_text(f"{outcome}: {candidate} for {channel}{against}")
    show_text(*(f"  {line}" for line in (*document.get("why", []), *document.get("notes", []))))
    if required := document.get("requirements"):
        show_text("")
        columns = ["difference", "between", "asked", "p", "tasks × attempts"]
        show_table(["require", *_COLUMNS, *columns], map(_requirement_row, required))
    if guarded := document.get("guards"):
        show_text("")
        columns = ["change", "between", "limit"]
        show_table(["guard", *_COLUMNS, *columns], map(_guard_row, guarded))
    for name in ("live", "approval", "data"):
        if part := document.get(name):
            show_text("", f"{name}  {part['outcome']}: {part['why']}")
    show_text("", f"verdict  {verdict_id}", f"policy   {document.get('policy') or '(none)'}")
    for name, suite in (document.get("suites") or {}).items():
        left_out = len(suite.get("left_out", ()))
        note = f", {_counted(left_out, 'task')} left out" if left_out else ""
        version = suite["version"] or "is unknown: no such suite or version"
        show_text(f"suite    {name} {version}{note}")
        for side in (suite[role] for role in ("candidate", "incumbent") if suite.get(role)):
            attempts = f"{side['scored']} attempts of {side['checkpoint']}"
            attempts += f", {side['errors']} errors" if side["errors"] else ""
            attempts += f", {side['stale']} too old" if side["stale"] else ""
            unscored = len(side.get("unscored", ()))
            attempts += f", no score at {_counted(unscored, 'task')}" if unscored else ""
            show_text(f"           {attempts}, {side['evidence']}")
    if at := document.get("at"):
        show_text(f"at       {time_of(at):%Y-%m-%d %H:%M:%S} UTC, penstock {document['code']}")


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _requirement_row(part: Mapping[str, Any]) -> list[str]:
    own, tasks = part.get("own") or {}, part.get("tasks")
    if part.get("missing"):
        tasks = f"{part['tasks_scored']} of {tasks}"
    ranges = (part.get("attempts_found") or {}).values()
    counts = [f"{least}" if least == most else f"{least}–{most}" for least, most in ranges]
    attempts = " / ".join(counts[:1] if len(set(counts)) == 1 else counts)
    lower_is_better = part.get("direction") == "min"
    limit = part.get("maximum" if lower_is_better else "minimum")
    demands = []
    if part.get("margin") is not None:
        demands.append(f"margin {part['margin']:g}")
    if limit is not None:
        bound = own.get("upper" if lower_is_better else "lower")
        shown = "" if bound is None else f" (shown: {bound:.4g})"
        demands.append(f"{'at most' if lower_is_better else 'at least'} {limit:g}{shown}")
    if part["alpha"] != part["alpha_asked"]:
        demands.append(f"alpha {part['alpha']:.3g}, corrected from {part['alpha_asked']:g}")
    elif part["alpha"] != 0.05:
        demands.append(f"alpha {part['alpha']:g}")
    return [
        *_means(part),
        *_change(part, "difference", "+.4f"),
        ", ".join(demands),
        _number(part.get("p", own.get("p")), ".3g"),
        "" if tasks is None else f"{tasks} × {attempts}",
    ]


def _guard_row(part: Mapping[str, Any]) -> list[str]:
    relative = part["kind"] in {"max_increase", "max_decrease"}
    slack = f" + {part['slack']:g}" if part.get("slack") else ""
    limit = f"{part['limit']:.0%}" if relative else f"{part['limit']:g}"
    change = _change(part, "value", "+.1%" if relative else ".4g")
    return [*_means(part), *change, f"{part['kind']} {limit}{slack}"]


def _means(part: Mapping[str, Any]) -> list[str]:
    means = [_number(part.get(f"{role}_mean"), ".4g") for role in ("candidate", "incumbent")]
    outcome = "no incumbent" if part.get("idle") else part["outcome"]
    return [f"{part['suite']} {part['metric']}", outcome, *means]


def _change(part: Mapping[str, Any], name: str, form: str) -> list[str]:
    """Format a value and its interval."""
    lower, upper = _number(part.get("lower"), form), _number(part.get("upper"), form)
    return [_number(part.get(name), form), f"{lower} … {upper}" if lower and upper else ""]


def _number(value: float | None, form: str) -> str:
    if value is None:
        return ""
    return f"{value:+.4g}" if form == "+.4f" and abs(value) >= 10 else f"{value:{form}}"
