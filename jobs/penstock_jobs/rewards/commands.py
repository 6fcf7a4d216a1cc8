"""`penstock rewards`."""

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli import options
from penstock.cli.opening import open_existing
from penstock.cli.output import show_json, show_table
from penstock.clock import SystemClock
from penstock.events.tenants import TENANT_DEFAULT

app = typer.Typer(help="What sessions were worth, by what users did next.", no_args_is_help=True)
_Definition = Annotated[
    Path | None,
    typer.Option(
        "--definition", parser=options.path, metavar="FILE",
        help="A definition in TOML; else every reward with its defaults.",
    ),
]  # fmt: skip


@app.command("list")
def list_(
    name: Annotated[str, typer.Argument(help="Print this reward's page.")] = "",
    json: options.Json = False,
) -> None:
    """The rewards that there are; with a name, what it measures and how it can be gamed.

    Example: penstock rewards list edit_persistence
    """
    from penstock.errors import InvalidInput
    from penstock_jobs.rewards.registry import all_rewards

    known = all_rewards()
    if name and name not in known:
        raise InvalidInput(what=f"The reward {name!r}", why=f"known are {', '.join(known)}")
    if name:
        page = known[name].page()
        show_json({"name": name, "page": page}) if json else typer.echo(page)
        return
    rows = [
        {"name": one.name, "version": one.version, "measures": _first_line(one.page())}
        for one in known.values()
    ]
    if json:
        show_json(rows)
    else:
        show_table(["reward", "version", "measures"], [list(row.values()) for row in rows])


@app.command("show")
def show(
    session: Annotated[str, typer.Argument(help="The session's id.")],
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    definition: _Definition = None,
    json: options.Json = False,
) -> None:
    """A session's edits with what became of them, then its turns and the whole.

    It is computed now, from what the segments hold.

    Example: penstock rewards show s-81f3
    """
    from penstock.lake.buckets import SessionId
    from penstock_jobs.rewards.gathering import gather_session
    from penstock_jobs.rewards.showing import compute, show_session

    with open_existing(data) as lake:
        bucket = gather_session(lake, SessionId(tenant, session), SystemClock().now_us())
    rows = compute(bucket, definition).to_pylist()
    if json:
        show_json(rows)
    else:
        show_session(bucket, rows)


@app.command("judge")
def judge(json: options.Json = False) -> None:
    """How good the local judge of follow-ups is, on labels that it never learned from.

    Half of them were written together with those it learned from, the fresh ones afterwards:
    trust the second figures.

    Example: penstock rewards judge
    """
    from penstock_jobs.rewards.followups.evaluation import evaluate
    from penstock_jobs.rewards.followups.examples import fresh_examples, held_out_examples
    from penstock_jobs.rewards.followups.local import LocalJudge
    from penstock_jobs.rewards.showing import show_evaluation

    kept_back = [one for one in held_out_examples() if not one.fresh]
    found = {
        "held out": evaluate(LocalJudge(), kept_back),
        "fresh": evaluate(LocalJudge(), fresh_examples()),
    }
    if json:
        show_json(found)
        return
    for name, one in found.items():
        show_evaluation(name, one)


def _first_line(page: str) -> str:
    return page.partition("\n")[0].partition(": ")[2].removesuffix(".")
