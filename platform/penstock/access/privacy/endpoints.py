"""The endpoints of redaction: its modes by tenant, and counts of its matches."""

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
from penstock.events.redaction import Mode
from penstock.lake.lake import Lake

if TYPE_CHECKING:
    from penstock.lake.tenant_redaction import TenantRedaction

GivenMode = Literal["off", "mask", "drop", "quarantine", "default"]


class RedactionAnswer(msgspec.Struct):
    """`secrets` and `personal` are the present modes; `own` names those set by the tenant."""

    tenant: str
    secrets: Mode
    personal: Mode
    own: list[str]


class RedactionsAnswer(msgspec.Struct):
    """The tenant's modes; on the lake's machine, of all tenants with modes of their own."""

    tenants: list[RedactionAnswer]


class RedactionRequest(Request):
    pass


class SetRedaction(Request):
    """Modes to set: `off`, `mask`, `quarantine`, `drop`; missing ones stay. A key may only make
    them stricter."""

    secrets: (
        Annotated[
            GivenMode, Meta(description="The mode for secrets; `default` follows the settings.")
        ]
        | None
    ) = None
    personal: Annotated[GivenMode, Meta(description="The mode for personal data.")] | None = None


class CountAnswer(msgspec.Struct):
    """Matches of a rule in a source's lines that arrived within an hour."""

    tenant: str
    source: str
    hour: str
    rule: str
    matches: int


class CountsAnswer(Page):
    """A page of counts, the oldest first."""

    counts: list[CountAnswer]


_SINCE = Meta(
    ge=0,
    le=TS_MAX_US,
    description="The first hour, in microseconds since 1970.",
    extra={
        "flag": "--since",
        "metavar": "SINCE",
        "parser": since_us,
        "help": "The first hour: a time, or an age such as 24h.",
    },
)


class CountsRequest(ListRequest):
    since_us: Annotated[int, _SINCE] = 0


def _list(lake: Lake, caller: Caller, request: RedactionRequest) -> RedactionsAnswer:
    from penstock.lake.tenant_redaction import TenantRedaction, list_redactions

    rows = list_redactions(lake.database, caller.own_tenant)
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

    counts = read_redaction_counts(lake.database, caller.own_tenant, request.since_us)
    page, after = page_of(
        counts, request, lambda each: encode_cursor(each.hour, each.tenant, each.source, each.rule)
    )
    rows = [msgspec.convert(facts(each), CountAnswer) for each in page]
    return CountsAnswer(rows, next=after)


def _answer(lake: Lake, row: "TenantRedaction") -> RedactionAnswer:
    from penstock.events.redaction import RedactionSettings

    modes = row.over(lake.settings.room(RedactionSettings).modes)
    own = [name for name in ("secrets", "personal") if getattr(row, name) is not None]
    return RedactionAnswer(row.tenant, *modes, own)


LIST_REDACTIONS = Endpoint(
    "GET /v1/redaction", _list, ("read", "ingest"), "The redaction modes of the tenant"
)
SET_REDACTION = Endpoint(
    "POST /v1/redaction",
    _set,
    (),
    "Make redaction of the tenant stricter",
    refused={403: "it would be less strict"},
)

COUNT_REDACTIONS = Endpoint(
    "GET /v1/redaction/counts",
    _count,
    ("read", "ingest"),
    "Matches of each redaction rule, by source and hour",
)

ENDPOINTS: Endpoints = [LIST_REDACTIONS, SET_REDACTION, COUNT_REDACTIONS]
