"""`penstock loop status | history`, and how cycles are shown."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.events.tenants import TENANT_DEFAULT
from penstock.lake.lake import open_existing
from penstock.terminal import options
from penstock.terminal.output import say, show_json, show_table, time_of

if TYPE_CHECKING:
    from penstock_jobs.loop.keeping import Cycle, Stage

Loop = Annotated[str | None, typer.Option("--loop", metavar="NAME", help="Only this loop.")]
_SECOND_US = 1_000_000
_STAGE_COLUMNS = ["stage", "state", "took", "claims", "failures", "what"]


def status(
    loop: Loop = None,
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """What each loop is doing, what it waits for, and how much of its budget is used.

    Example: penstock loop status
    """
    from penstock_jobs.loop.keeping import cycles_of, database_now

    with open_existing(data) as lake:
        found = cycles_of(lake.database, tenant, loop)
        now_us = database_now(lake.database)
    newest: dict[str, Cycle] = {}
    for one in found:
        if one.loop not in newest or one.number > newest[one.loop].number:
            newest[one.loop] = one
    if json:
        show_json([cycle_document(one, now_us) for one in newest.values()])
        return
    if not newest:
        say("No loop has run yet: `penstock loop run LOOP.toml`")
    for one in newest.values():
        show_cycle(one, now_us)


def history(
    loop: Loop = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="So many, the newest.")] = 20,
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """How the cycles ended and why, and how long each stage took.

    Example: penstock loop history --loop core
    """
    from penstock_jobs.loop.keeping import cycles_of, database_now

    with open_existing(data) as lake:
        found = cycles_of(lake.database, tenant, loop, limit=limit)[::-1]
        now_us = database_now(lake.database)
    if json:
        show_json([cycle_document(one, now_us) for one in found])
        return
    names = list(dict.fromkeys(stage.stage for one in found for stage in one.stages))
    columns = ["loop", "cycle", "outcome", "checkpoint", "after", "began", "took", "budget"]
    show_table([*columns, *names], [_row(one, names, now_us) for one in found])
    for one in found:
        if one.why:
            say(f"{one.loop} {one.number}: {one.why}")


def show_cycle(cycle: "Cycle", now_us: int | None = None) -> None:
    """A cycle with its stages."""
    head = f"{cycle.loop}, cycle {cycle.number} for {cycle.channel}"
    if cycle.ended_at is not None:
        head += f": {cycle.outcome}{cycle.why and f', {cycle.why}'}"
    elif cycle.began_at is None:
        head += " has not begun"
    if cycle.began_at is not None and (now_us is not None or cycle.ended_at is not None):
        end_us = cycle.ended_at or now_us or 0
        head += (
            f"; {_duration(end_us - cycle.began_at)} of {_duration(cycle.budget_s * _SECOND_US)}"
        )
        if over_budget(cycle, end_us):
            head += ", OVER ITS BUDGET"
    say(head)
    show_table(
        _STAGE_COLUMNS,
        [
            [
                one.stage,
                one.state,
                _took(cycle, one, now_us),
                one.epoch,
                one.failures,
                _what(one, now_us),
            ]
            for one in cycle.stages
        ],
    )


def _what(stage: "Stage", now_us: int | None) -> str:
    if stage.state == "running":
        told = f"by {stage.owner}"
        lapsed = now_us is not None and stage.lease_until < now_us
        return f"{told}, which is silent: the next runner takes it up" if lapsed else told
    if stage.state == "waiting" and now_us is not None and stage.not_before > now_us:
        return f"{stage.why} (again at {time_of(stage.not_before):%H:%M:%S} UTC)"
    return stage.why


def over_budget(cycle: "Cycle", now_us: int) -> bool:
    if cycle.began_at is None:
        return False
    return (cycle.ended_at or now_us) - cycle.began_at > cycle.budget_s * _SECOND_US


def stage_us(cycle: "Cycle", stage: "Stage", now_us: int | None = None) -> int | None:
    """How long it took, pauses included. What the cycle waited for before it began counts for
    none."""
    begun, ended = stage.started_at, stage.ended_at or now_us
    if begun is None or ended is None or cycle.began_at is None:
        return None
    return max(ended - max(begun, cycle.began_at), 0)


def cycle_document(cycle: "Cycle", now_us: int | None = None) -> dict[str, Any]:
    """For JSON."""
    end_us = cycle.ended_at or now_us
    took = None if cycle.began_at is None or end_us is None else end_us - cycle.began_at
    return {
        "loop": cycle.loop,
        "cycle": cycle.number,
        "channel": cycle.channel,
        "outcome": cycle.outcome,
        "why": cycle.why,
        "parent": cycle.parent,
        "checkpoint": cycle.checkpoint,
        "opened_at": _time(cycle.opened_at),
        "began_at": _time(cycle.began_at),
        "ended_at": _time(cycle.ended_at),
        "took_s": None if took is None else took / _SECOND_US,
        "budget_s": cycle.budget_s,
        "over_budget": end_us is not None and over_budget(cycle, end_us),
        "stages": [_stage_document(cycle, one, now_us) for one in cycle.stages],
    }


def _stage_document(cycle: "Cycle", stage: "Stage", now_us: int | None) -> dict[str, Any]:
    took = stage_us(cycle, stage, now_us)
    return {
        "stage": stage.stage,
        "state": stage.state,
        "why": stage.why,
        "owner": stage.owner if stage.state == "running" else None,
        "claims": stage.epoch,
        "failures": stage.failures,
        "not_before": _time(stage.not_before or None),
        "inputs_digest": stage.inputs_digest,
        "inputs": stage.inputs,
        "result": stage.result,
        "started_at": _time(stage.started_at),
        "ended_at": _time(stage.ended_at),
        "took_s": None if took is None else took / _SECOND_US,
    }


def _row(cycle: "Cycle", names: list[str], now_us: int) -> list[object]:
    took, share = "", ""
    if cycle.began_at is not None:
        us = (cycle.ended_at or now_us) - cycle.began_at
        took, share = _duration(us), f"{us / (max(cycle.budget_s, 1) * _SECOND_US):.0%}"
    by_name = {one.stage: one for one in cycle.stages}
    stages = [_took(cycle, by_name[name], now_us) if name in by_name else "" for name in names]
    state = cycle.outcome or ("running" if cycle.began_at is not None else "waiting")
    began = time_of(cycle.began_at).strftime("%Y-%m-%d %H:%M:%S") if cycle.began_at else ""
    return [
        cycle.loop, cycle.number, state, cycle.checkpoint, cycle.parent, began, took, share,
        *stages,
    ]  # fmt: skip


def _took(cycle: "Cycle", stage: "Stage", now_us: int | None) -> str:
    us = stage_us(cycle, stage, now_us)
    return "" if us is None else _duration(us)


def _duration(us: int) -> str:
    seconds = us / _SECOND_US
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def _time(us: int | None) -> str | None:
    return None if us is None else time_of(us).isoformat()
