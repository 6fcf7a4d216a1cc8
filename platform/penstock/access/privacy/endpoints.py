"""What can be asked of redaction: what becomes of a tenant's events with secrets or personal data,
and to have it otherwise."""

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Meta

from penstock.backends.terminal.options import since_us
from penstock.backends.terminal.output import facts
from penstock.core.endpoint import (
    Caller,
    Endpoint,
    ListRequest,
    Page,
    Request,
    encode_cursor,
    page_of,
)
from penstock.core.room import Endpoints
from penstock.events.event import TS_MAX_US
from penstock.events.redaction.rules import Mode
from penstock.lake.lake import Lake

if TYPE_CHECKING:
    from penstock.lake.tenant_redaction import TenantRedaction

GivenMode = Literal["off", "mask", "drop", "quarantine", "default"]


class RedactionAnswer(msgspec.Struct):
    """`secrets` and `personal` are what holds; `own` names those that are not the settings'."""

    tenant: str
    secrets: Mode
    personal: Mode
    own: list[str]


class RedactionsAnswer(msgspec.Struct):
    """Of the own tenant; on the machine of the lake, of all that have something of their own."""

    tenants: list[RedactionAnswer]


class RedactionRequest(Request):
    """What holds."""


class SetRedaction(Request):
    """What is left out stays. A key may only make it stricter: `off`, `mask`, `quarantine`,
    `drop`."""

    secrets: Annotated[GivenMode, Meta(description="`default`: by the settings.")] | None = None
    personal: Annotated[GivenMode, Meta(description="The same for personal data.")] | None = None


class CountAnswer(msgspec.Struct):
    """Matches of a rule in lines of a source that came in within an hour."""

    tenant: str
    source: str
    hour: str
    rule: str
    matches: int


class CountsAnswer(Page):
    """The oldest first."""

    counts: list[CountAnswer]


_SINCE = Meta(
    ge=0,
    le=TS_MAX_US,
    description="From this hour on, in microseconds since 1970.",
    extra={
        "flag": "--since",
        "metavar": "SINCE",
        "parser": since_us,
        "help": "From this hour on: a time, or an age such as 24h.",
    },
)


class CountsRequest(ListRequest):
    since_us: Annotated[int, _SINCE] = 0


def _list(lake: Lake, caller: Caller, request: RedactionRequest) -> RedactionsAnswer:
    from penstock.lake.tenant_redaction import TenantRedaction, list_redactions

    rows = list_redactions(lake.database, None if caller.is_local else caller.tenant)
    if caller.tenant not in {row.tenant for row in rows}:
        rows.insert(0, TenantRedaction(caller.tenant, None, None, "", 0))
    return RedactionsAnswer([_answer(lake, row) for row in rows])


def _set(lake: Lake, caller: Caller, question: SetRedaction) -> RedactionAnswer:
    from penstock.lake.tenant_redaction import set_redaction

    row = set_redaction(
        lake.database,
        lake.settings,
        caller.tenant,
        secrets=question.secrets,
        personal=question.personal,
        by=caller.actor,
        may_loosen=caller.is_local,
    )
    return _answer(lake, row)


def _count(lake: Lake, caller: Caller, request: CountsRequest) -> CountsAnswer:
    from penstock.lake.tenant_redaction import read_redaction_counts

    tenant = None if caller.is_local else caller.tenant
    counts = read_redaction_counts(lake.database, tenant, request.since_us)
    page, after = page_of(
        counts, request, lambda each: encode_cursor(each.hour, each.tenant, each.source, each.rule)
    )
    rows = [msgspec.convert(facts(each), CountAnswer) for each in page]
    return CountsAnswer(rows, next=after)


def _answer(lake: Lake, row: "TenantRedaction") -> RedactionAnswer:
    from penstock.events.redaction.rules import RedactionSettings

    modes = row.over(lake.settings.room(RedactionSettings).modes)
    own = [name for name in ("secrets", "personal") if getattr(row, name) is not None]
    return RedactionAnswer(row.tenant, *modes, own)


LIST_REDACTIONS = Endpoint(
    "GET /v1/redaction",
    _list,
    ("read", "ingest"),
    "What becomes of events with secrets or personal data",
)
SET_REDACTION = Endpoint(
    "POST /v1/redaction",
    _set,
    (),
    "Make redaction of the own tenant stricter",
    refused={403: "it would become milder"},
)

COUNT_REDACTIONS = Endpoint(
    "GET /v1/redaction/counts",
    _count,
    ("read", "ingest"),
    "How often each redaction rule had a match, by source and hour",
)

ENDPOINTS: Endpoints = [LIST_REDACTIONS, SET_REDACTION, COUNT_REDACTIONS]
