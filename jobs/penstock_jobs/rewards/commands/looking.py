"""`penstock rewards list | show | judge`: what there is, and what a session is worth."""

from dataclasses import replace
from typing import Annotated
from uuid import uuid4

import typer

from penstock.clock import SystemClock
from penstock.events.event import TENANT_DEFAULT
from penstock.lake.directory import open_existing
from penstock.terminal import options
from penstock.terminal.output import show_json, show_table
from penstock_jobs.rewards.commands import options as options_of


def list_(
    name: Annotated[
        str, typer.Argument(help="Print this reward's page, or the text of this definition.")
    ] = "",
    json: options.Json = False,
) -> None:
    """The rewards that there are; with a name, what it measures and how it can be gamed.

    The definitions that come with Penstock have names too: default, comparing.

    Example: penstock rewards list edit_persistence
    """
    from penstock_jobs.rewards.registry import all_rewards

    known = all_rewards()
    if name:
        page = _page_of(name)
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


def show(
    session: Annotated[str, typer.Argument(help="The session's id.")],
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    definition: options_of.Definition = None,
    json: options.Json = False,
) -> None:
    """A session's edits with what became of them, then its turns and the whole.

    It is computed now, from what the segments hold.

    Example: penstock rewards show s-81f3
    """
    from penstock.lake.buckets import SessionId
    from penstock_jobs.rewards.definitions import find_definition
    from penstock_jobs.rewards.followups.opening import check_judge, open_judge
    from penstock_jobs.rewards.gathering import gather_chain
    from penstock_jobs.rewards.showing import compute, show_session

    by = find_definition(definition) if definition else None
    with open_existing(data) as lake:
        wanted = SessionId(tenant, session)
        bucket, places = gather_chain(lake, wanted, SystemClock().now_us())
        if by is not None:
            check_judge(by, lake.settings)
            llm_judge = open_judge(lake.settings, lake.database, f"show-{uuid4()}")
            bucket = replace(bucket, llm_judge=llm_judge)
        found = compute(bucket, by, places)
    rows = [row for row in found.to_pylist() if row["session_id"] == session]
    if json:
        show_json(rows)
    else:
        show_session(session, bucket, rows)


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


def _page_of(name: str) -> str:
    from penstock.errors import InvalidInput
    from penstock_jobs.rewards.definitions import find_definition, shipped
    from penstock_jobs.rewards.registry import all_rewards

    known = all_rewards()
    if name in known:
        return known[name].page()
    if name in shipped():
        return find_definition(name).text
    names = ", ".join([*known, *shipped()])
    raise InvalidInput(what=f"The reward {name!r}", why=f"known are {names}")


def _first_line(page: str) -> str:
    return page.partition("\n")[0].partition(": ")[2].removesuffix(".")
