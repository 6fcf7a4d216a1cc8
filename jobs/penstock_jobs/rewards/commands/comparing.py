"""`penstock rewards compare | rates`: definitions side by side, and checkpoints."""

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.events.event import TENANT_DEFAULT
from penstock.lake.directory import open_existing
from penstock.terminal import options
from penstock.terminal.output import say, show_json, show_table
from penstock.terminal.times import since_us
from penstock_jobs.rewards.commands import options as options_of

if TYPE_CHECKING:
    from penstock_jobs.rewards.rates import CheckpointRates


def compare(
    before: options_of.Version,
    after: options_of.Version,
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """Two definitions over the sessions that both have computed, reward by reward.

    Example: penstock rewards compare default mine
    """
    from penstock_jobs.rewards.asking import compare_definitions
    from penstock_jobs.rewards.keeping import definition_known_as

    with open_existing(data) as lake:
        one, other = (definition_known_as(lake.database, text) for text in (before, after))
        rows = compare_definitions(lake, one.version, other.version, tenant)
    if json:
        show_json({"before": one.version, "after": other.version, "rewards": rows})
        return
    say(f"before: {one.name} ({one.version}), after: {other.name} ({other.version})")
    if not rows:
        say("No session was computed by both: `penstock rewards backfill` does what one left out.")
        return
    show_table(list(rows[0]), [[_short(one) for one in row.values()] for row in rows])


def rates(
    before: Annotated[str, typer.Argument(help="A checkpoint to compare with.")] = "",
    after: Annotated[str, typer.Argument(help="The checkpoint to compare.")] = "",
    *,
    definition: Annotated[
        str, typer.Option("--definition", help="By which definition sessions have outcomes.")
    ] = "default",
    since: options_of.Since = None,
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """How the sessions of each checkpoint ended. Exit 1 when a rate moved between two.

    Without names the newest checkpoint is compared with the one before.

    Example: penstock rewards rates
    """
    from penstock_jobs.rewards.asking import read_rates
    from penstock_jobs.rewards.keeping import definition_known_as
    from penstock_jobs.rewards.rates import changes

    with open_existing(data) as lake:
        known = definition_known_as(lake.database, definition)
        found = read_rates(lake, known.version, tenant, since_us(since) if since else None)
    pair = _pair(found, before, after)
    moves = changes(*pair) if pair else []
    if json:
        show_json({"checkpoints": [_facts(one) for one in found], "changes": moves})
    else:
        _show_rates(found)
        if pair:
            say(f"from {pair[0].checkpoint} to {pair[1].checkpoint}:")
        for one in moves:
            say(("ALARM " if one.verdict == "moved" else "  ") + one.sentence())
    if any(one.verdict == "moved" for one in moves):
        raise typer.Exit(1)


def _pair(
    found: "list[CheckpointRates]", before: str, after: str
) -> "tuple[CheckpointRates, CheckpointRates] | None":
    from penstock.errors import InvalidInput

    named = {one.checkpoint: one for one in found if one.checkpoint is not None}
    for name in (before, after):
        if name and name not in named:
            why = f"it has no sessions here; known: {', '.join(named) or 'none'}"
            raise InvalidInput(what=f"The checkpoint {name!r}", why=why)
    order = list(named)
    after = after or next((name for name in reversed(order) if name != before), "")
    sooner = order[: order.index(after)] if after else []
    before = before or (sooner[-1] if sooner else "")
    return (named[before], named[after]) if before and after else None


def _show_rates(found: "list[CheckpointRates]") -> None:
    columns = ["checkpoint", "sessions"]
    if found:
        columns += found[0].rates
    rows = [
        [one.checkpoint or "(several, or none)", one.sessions]
        + [_short(rate.value) for rate in one.rates.values()]
        for one in found
    ]
    show_table(columns, rows)
    say("")
    reasons = [
        [one.checkpoint or "(several, or none)", kind, reason or "", count]
        for one in found
        for (kind, reason), count in sorted(one.outcomes.items(), key=lambda item: -item[1])
    ]
    show_table(["checkpoint", "outcome", "why", "sessions"], reasons)


def _facts(one: "CheckpointRates") -> dict[str, object]:
    return {
        "checkpoint": one.checkpoint,
        "sessions": one.sessions,
        "outcomes": [
            {"outcome": kind, "reason": reason, "sessions": count}
            for (kind, reason), count in one.outcomes.items()
        ],
        "rates": {
            name: {"value": rate.value, "hits": rate.hits, "of": rate.of}
            for name, rate in one.rates.items()
        },
    }


def _short(value: object) -> object:
    return f"{value:.3f}" if isinstance(value, float) else value
