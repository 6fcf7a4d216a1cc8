"""Endpoints of loops."""

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from penstock.backends.terminal.output import facts, time_of
from penstock.core.clock import SECOND_US
from penstock.core.endpoint import (
    Caller,
    Endpoint,
    ListRequest,
    Page,
    Request,
    decode_cursor,
    decode_number,
    encode_cursor,
    page_of,
)
from penstock.core.room import Endpoints
from penstock.lake.lake import Lake

if TYPE_CHECKING:
    import sqlalchemy as sa

    from penstock_jobs.loop.cycles import Cycle, CycleStage

_CYCLES_MAX = 10_000


class StageAnswer(msgspec.Struct, kw_only=True):
    """A stage. `silent`: its owner's lease ran out, so the next runner takes over.

    `again_at` is when a waiting stage is tried again."""

    stage: str
    state: str
    owner: str | None
    failures: int
    not_before: str | None
    why: str
    inputs: dict[str, Any] | None
    inputs_digest: str | None
    result: dict[str, Any] | None
    started_at: str | None
    ended_at: str | None
    claims: int
    took_s: float | None
    silent: bool
    again_at: str | None


class CycleAnswer(msgspec.Struct, kw_only=True):
    loop: str
    cycle: int
    channel: str
    budget_s: int
    parent: str | None
    checkpoint: str | None
    outcome: str | None
    why: str
    opened_at: str
    began_at: str | None
    ended_at: str | None
    took_s: float | None
    over_budget: bool
    stages: list[StageAnswer]


class CyclesAnswer(Page):
    cycles: list[CycleAnswer]


LoopName = Annotated[str, Meta(description="Only this loop.", extra={"metavar": "NAME"})]
_LIMIT = Meta(ge=1, le=_CYCLES_MAX, description="At most this many, the newest.")
_BEFORE = Meta(description="Continue at the cursor that a list printed.")


class LoopsRequest(ListRequest):
    loop: LoopName | None = None


class CyclesRequest(Request):
    loop: LoopName | None = None
    limit: Annotated[int, _LIMIT] = 20
    cursor: Annotated[str, _BEFORE] | None = None


def cycle_answer(cycle: "Cycle", now_us: int | None = None) -> CycleAnswer:
    """Describe a cycle. Without `now_us`, open stages have no duration."""
    begun, ended = cycle.began_at, cycle.ended_at or now_us
    took_s = None if begun is None or ended is None else (ended - begun) / SECOND_US
    document = facts(cycle) | {"cycle": cycle.number, "took_s": took_s}
    document["over_budget"] = took_s is not None and took_s > cycle.budget_s
    document["stages"] = [_stage_document(cycle, stage, now_us) for stage in cycle.stages]
    return msgspec.convert(document, CycleAnswer)


def _stage_document(cycle: "Cycle", stage: "CycleStage", now_us: int | None) -> dict[str, Any]:
    begun, ended, took_s = stage.started_at, stage.ended_at or now_us, None
    if begun is not None and ended is not None and cycle.began_at is not None:
        # Pauses count, the time before the cycle began does not.
        took_s = max(ended - max(begun, cycle.began_at), 0) / SECOND_US
    not_before = time_of(stage.not_before).isoformat() if stage.not_before else None
    later = now_us is not None and stage.not_before > now_us
    running = stage.state == "running"
    return facts(stage) | {
        "claims": stage.epoch,
        "owner": stage.owner if running else None,
        "not_before": not_before,
        "took_s": took_s,
        "silent": running and now_us is not None and stage.lease_until < now_us,
        "again_at": not_before if later and stage.state == "waiting" else None,
    }


def _status(lake: Lake, caller: Caller, request: LoopsRequest) -> CyclesAnswer:
    from penstock_jobs.loop.cycles import cycles_of, database_now

    now_us = database_now(lake.database)
    newest: dict[str, Cycle] = {}
    for cycle in cycles_of(lake.database, caller.tenant, request.loop):
        newest.setdefault(cycle.loop, cycle)
    page, after = page_of(list(newest.values()), request, lambda cycle: cycle.loop)
    return CyclesAnswer([cycle_answer(cycle, now_us) for cycle in page], next=after)


def _history(lake: Lake, caller: Caller, request: CyclesRequest) -> CyclesAnswer:
    from penstock_jobs.loop.cycles import cycles_of, database_now

    now_us = database_now(lake.database)
    older = [] if request.cursor is None else [_older_than(request.cursor, request.loop)]
    place, limit = (lake.database, caller.tenant, request.loop), request.limit
    cycles = cycles_of(*place, *older, limit=limit + 1)
    page = cycles[:limit]
    oldest = page[-1] if len(cycles) > limit else None
    after = encode_cursor(oldest.opened_at, oldest.number, oldest.loop) if oldest else None
    return CyclesAnswer([cycle_answer(cycle, now_us) for cycle in page[::-1]], next=after)


def _older_than(cursor: str, of_loop: str | None) -> "sa.ColumnElement[bool]":
    import sqlalchemy as sa

    from penstock_jobs.loop.tables import loop_cycle

    opened_at, number, loop = decode_cursor(cursor, 3)
    columns = loop_cycle.c
    if of_loop is not None:
        return columns.number < decode_number(number)
    place = decode_number(opened_at), decode_number(number), loop
    return sa.tuple_(columns.opened_at, columns.number, columns.loop) < place


SHOW_LOOPS = Endpoint(
    "GET /v1/loops", _status, ("read",), "The newest cycle of each loop, and what it waits for"
)
SHOW_CYCLES = Endpoint(
    "GET /v1/loops/cycles", _history, ("read",), "How cycles ended and why, the newest last"
)

ENDPOINTS: Endpoints = [SHOW_LOOPS, SHOW_CYCLES]
