"""The endpoints of ingest: the ledger, and rejected lines. Over HTTP only the key's tenant is
shown."""

from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.backends.terminal.output import facts
from penstock.core.endpoint import (
    Caller,
    Endpoint,
    ListRequest,
    Page,
    Request,
    decode_number,
    encode_cursor,
    page_of,
)
from penstock.core.errors import InvalidInput
from penstock.core.room import Endpoints
from penstock.lake.lake import Lake

#: The largest integer of the database.
ID_MAX = 2**63 - 1
_LINES_MAX = 10_000

LineId = Annotated[int, Meta(ge=1, le=ID_MAX)]


class LedgerTotals(msgspec.Struct, kw_only=True):
    accepted: int
    stored: int
    duplicate: int
    rejected: int
    waiting: int
    erased: int = 0
    #: Dropped by recorders without room; not among the accepted.
    dropped: int = 0


class LedgerLine(LedgerTotals, kw_only=True):
    tenant: str
    source: str
    hour: str


class GapAnswer(msgspec.Struct):
    """Offsets of the log that were lost before the lake stored them."""

    id: int
    partition: int
    log_id: str
    from_offset: int
    to_offset: int
    reason: str
    found_at: str
    accepted_at: str | None
    accepted_why: str | None


class WaitingAnswer(msgspec.Struct):
    """Events that are only in the event log, since when, and why."""

    events: int
    since_at: str
    why: str


class LedgerAnswer(Page):
    """`discrepancies` are sentences, one for each thing that does not add up. They and `totals`
    cover all pages."""

    rows: list[LedgerLine]
    totals: LedgerTotals
    gaps: list[GapAnswer]
    discrepancies: list[str]
    waiting: WaitingAnswer | None = None


class RejectedLineAnswer(msgspec.Struct, kw_only=True):
    """`raw` is the line as text, `damaged` whether it is no longer what was stored; `lines` counts
    the lines of its kind that it represents."""

    tenant: str
    source: str
    received_at: str
    line: int
    reason: str
    raw: str
    truncated: bool
    damaged: bool
    acknowledged: bool
    id: int
    replayed_at: str | None
    lines: int


class RejectedAnswer(Page):
    """A page of rejected lines, the newest first."""

    lines: list[RejectedLineAnswer]


class RejectedBytes(msgspec.Struct):
    """A line with its bytes in base64."""

    entry: RejectedLineAnswer
    content: bytes


class ReplayAnswer(msgspec.Struct):
    """`refused` gives by id the reason that a line was rejected again."""

    accepted: int
    refused: dict[int, str]


class FuseAnswer(msgspec.Struct):
    """A source whose lines were mostly rejected when its fuse tripped."""

    tenant: str
    source: str
    tripped_at: str
    rejected: int
    seen: int
    reason: str


class FusesAnswer(Page):
    fuses: list[FuseAnswer]


class FuseReleased(msgspec.Struct):
    tenant: str
    source: str


class LedgerRequest(ListRequest):
    """`since` is in microseconds since 1970, and counts from its hour on."""

    since: Annotated[int, Meta(ge=0, le=ID_MAX)] = 0


_LIMIT = Meta(ge=1, le=_LINES_MAX, description="The number of lines, the newest first.")
_ALL = Meta(description="Include lines that were replayed.", extra={"flag": "--all"})


class RejectedRequest(ListRequest):
    limit: Annotated[int, _LIMIT] | None = 100
    replayed: Annotated[bool, _ALL] = False


class RejectedLineRequest(Request):
    id: LineId


class ReplayRequest(Request):
    """Lines to replay; by default all."""

    ids: list[LineId] = []  # noqa: RUF012  # msgspec copies it


class FusesRequest(ListRequest):
    pass


class ReleaseFuseRequest(Request):
    tenant: str
    source: str


def _ledger(lake: Lake, caller: Caller, request: LedgerRequest) -> LedgerAnswer:
    from penstock.ingest.ledger import read_ledger

    report = read_ledger(lake, request.since, tenant=caller.own_tenant)
    names = LedgerTotals.__struct_fields__
    totals = {name: sum(getattr(row, name) for row in report.rows) for name in names}
    place = lambda row: encode_cursor(row.hour, row.tenant, row.source)  # noqa: E731
    page, after = page_of(report.rows, request, place)
    document = {"rows": [facts(row) for row in page], "totals": totals, "next": after}
    document |= {"gaps": [facts(gap) for gap in report.gaps]}
    held_up = facts(report.waiting) if report.waiting else None
    more = {"discrepancies": report.discrepancies, "waiting": held_up}
    return msgspec.convert(document | more, LedgerAnswer)


def _list(lake: Lake, caller: Caller, request: RejectedRequest) -> RejectedAnswer:
    from penstock.ingest.rejected_lines import list_rejected

    before = decode_number(request.cursor) if request.cursor is not None else None
    limit = request.limit or _LINES_MAX
    entries = list_rejected(
        lake, limit + 1, replayed=request.replayed, tenant=caller.own_tenant, before=before
    )
    after = str(entries[limit - 1].id) if len(entries) > limit else None
    lines = [facts(entry) for entry in entries[:limit]]
    return msgspec.convert({"lines": lines, "next": after}, RejectedAnswer)


def _show(lake: Lake, caller: Caller, request: RejectedLineRequest) -> RejectedBytes:
    from penstock.ingest.rejected_lines import read_rejected

    entry = read_rejected(lake, request.id, tenant=caller.own_tenant)
    return RejectedBytes(msgspec.convert(facts(entry), RejectedLineAnswer), entry.raw)


def _replay(lake: Lake, caller: Caller, request: ReplayRequest) -> ReplayAnswer:
    from penstock.core.clock import SystemClock
    from penstock.ingest.rejected_lines import replay_rejected

    ids, tenant = request.ids or None, caller.own_tenant
    outcome = replay_rejected(lake, SystemClock(), ids, tenant=tenant)
    return ReplayAnswer(outcome.accepted, outcome.refused)


def _list_fuses(lake: Lake, caller: Caller, request: FusesRequest) -> FusesAnswer:
    from penstock.ingest.rejected_lines import list_fuses

    tripped = list_fuses(lake.database)
    mine = [fuse for fuse in tripped if caller.own_tenant in (None, fuse.tenant)]
    page, after = page_of(mine, request, lambda fuse: encode_cursor(fuse.tenant, fuse.source))
    return FusesAnswer([msgspec.convert(facts(fuse), FuseAnswer) for fuse in page], next=after)


def _release(lake: Lake, caller: Caller, request: ReleaseFuseRequest) -> FuseReleased:
    from penstock.ingest.rejected_lines import release_fuse

    if caller.own_tenant not in (None, request.tenant):
        raise InvalidInput(
            what=f"The tenant {request.tenant!r}", why="the key belongs to another one"
        )
    release_fuse(lake.database, request.tenant, request.source)
    return FuseReleased(request.tenant, request.source)


READ_LEDGER = Endpoint(
    "GET /v1/ledger",
    _ledger,
    ("read", "ingest"),
    "What arrived per source and hour, and what became of it",
    reads_rows=True,
)
LIST_REJECTED = Endpoint(
    "GET /v1/rejected",
    _list,
    ("read", "ingest"),
    "Rejected lines with their reasons",
    reads_rows=True,
)
SHOW_REJECTED = Endpoint(
    "GET /v1/rejected/{id}", _show, ("read", "ingest"), "A whole rejected line", reads_rows=True
)
REPLAY_REJECTED = Endpoint(
    "POST /v1/rejected/replay",
    _replay,
    (),
    "Check rejected lines again, and accept those that are valid now",
    audited_as="replay",
    reads_rows=True,
)
LIST_FUSES = Endpoint(
    "GET /v1/rejected/fuses", _list_fuses, ("read", "ingest"), "Sources with mostly rejected lines"
)
RELEASE_FUSE = Endpoint(
    "POST /v1/rejected/release",
    _release,
    (),
    "Store each rejected line of a source again",
    audited_as="replay",
)

ENDPOINTS: Endpoints = [
    READ_LEDGER,
    LIST_REJECTED,
    SHOW_REJECTED,
    REPLAY_REJECTED,
    LIST_FUSES,
    RELEASE_FUSE,
]
