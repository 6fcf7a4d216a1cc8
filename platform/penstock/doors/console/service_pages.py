"""Pages for operators: health, ledger, rejected lines, keys, audit."""

from typing import Any, get_args

import msgspec

from penstock.access import ROLES, Role
from penstock.access.audit_endpoints import (
    LIST_ENTRIES,
    VERIFY_AUDIT,
    EntriesRequest,
    VerifyRequest,
)
from penstock.access.endpoints import (
    CREATE_KEY,
    LIST_KEYS,
    REVOKE_KEY,
    CreateKey,
    KeysRequest,
    RevokeKey,
)
from penstock.backends.audit.entry import Action
from penstock.core.endpoint import Request
from penstock.doors.console.figures import as_time
from penstock.doors.console.page import Content, PageList, Redirect, Visitor
from penstock.ingest.endpoints import (
    LIST_FUSES,
    LIST_REJECTED,
    READ_LEDGER,
    RELEASE_FUSE,
    REPLAY_REJECTED,
    SHOW_REJECTED,
    FusesRequest,
    LedgerRequest,
    LineId,
    RejectedLineRequest,
    RejectedRequest,
    ReleaseFuseRequest,
    ReplayRequest,
)
from penstock.lake.endpoints import SHOW_LAKE_HEALTH, LakeHealthRequest

PAGES = PageList("penstock.doors.console:templates/")

_ROWS_SHOWN = 100
_DAY_US = 86_400_000_000
_LEDGER_DAYS = 7
_READERS: tuple[Role, ...] = ("read", "ingest")


class LedgerPageRequest(Request):
    all_hours: bool = False
    cursor: str | None = None


class RejectedPageRequest(Request):
    replayed: bool = False
    cursor: str | None = None


class ReplayForm(Request):
    id: LineId | None = None


class KeyForm(Request):
    role: Role
    note: str = ""
    days: int | None = None


class AuditPageRequest(Request):
    action: Action | None = None
    actor: str | None = None
    subject: str | None = None
    cursor: str | None = None


@PAGES.page(
    "/health", "Health", "health.html.jinja", roles=(), reads_rows=True,
    group="Service", place=0, shortcut="h",
)  # fmt: skip
def _health(visitor: Visitor, request: LakeHealthRequest) -> Content:
    health = visitor.call(SHOW_LAKE_HEALTH, request)
    ledger = visitor.call(READ_LEDGER, LedgerRequest(limit=1))
    chains = visitor.call(VERIFY_AUDIT, VerifyRequest()).chains
    fuses = visitor.call(LIST_FUSES, FusesRequest()).fuses
    return {
        "health": health,
        "ledger": ledger,
        "chain": chains[0] if chains else None,
        "fuses": fuses,
        "without_writer": [each for each in health.partitions if each.writer is None],
    }


@PAGES.page(
    "/ledger", "Ledger", "ledger.html.jinja", roles=_READERS, reads_rows=True,
    group="Service", place=1, shortcut="l",
)  # fmt: skip
def _ledger(visitor: Visitor, request: LedgerPageRequest) -> Content:
    since = 0 if request.all_hours else visitor.clock.now_us() - _LEDGER_DAYS * _DAY_US
    asked = LedgerRequest(since=since, cursor=request.cursor, limit=_ROWS_SHOWN)
    return {"ledger": visitor.call(READ_LEDGER, asked), "days": _LEDGER_DAYS}


@PAGES.page(
    "/rejected", "Rejected lines", "rejected.html.jinja", roles=_READERS, reads_rows=True,
    group="Service", place=2, shortcut="r",
)  # fmt: skip
def _rejected(visitor: Visitor, request: RejectedPageRequest) -> Content:
    asked = RejectedRequest(limit=_ROWS_SHOWN, replayed=request.replayed, cursor=request.cursor)
    return {
        "answer": visitor.call(LIST_REJECTED, asked),
        "fuses": visitor.call(LIST_FUSES, FusesRequest()).fuses,
        "may_replay": visitor.may_call(REPLAY_REJECTED),
    }


@PAGES.page(
    "/rejected/{id}", "Rejected line", "rejected_line.html.jinja", roles=_READERS, reads_rows=True
)
def _rejected_line(visitor: Visitor, request: RejectedLineRequest) -> Content:
    line = visitor.call(SHOW_REJECTED, request)
    text = line.content.decode(errors="backslashreplace")
    return {"line": line.entry, "text": text, "may_replay": visitor.may_call(REPLAY_REJECTED)}


@PAGES.form("/rejected/replay", "Replay")
def _replay(visitor: Visitor, form: ReplayForm) -> Redirect:
    answer = visitor.call(REPLAY_REJECTED, ReplayRequest(ids=[form.id] if form.id else []))
    told = f"Accepted now: {answer.accepted}."
    if answer.refused:
        first = next(iter(answer.refused.values()))
        told += f" Rejected again: {len(answer.refused)}, the first because of {first}."
    return Redirect("/rejected", told)


@PAGES.form("/rejected/release", "Release a source")
def _release_fuse(visitor: Visitor, form: ReleaseFuseRequest) -> Redirect:
    visitor.call(RELEASE_FUSE, form)
    return Redirect("/rejected", f"Every rejected line of {form.source} is stored from now on.")


@PAGES.page("/keys", "Keys", "keys.html.jinja", roles=(), group="Service", place=3)
def _keys(visitor: Visitor, request: KeysRequest) -> Content:
    asked = KeysRequest(limit=_ROWS_SHOWN, cursor=request.cursor)
    return _key_content(visitor, asked)


def _key_content(visitor: Visitor, asked: KeysRequest) -> dict[str, Any]:
    return {"answer": visitor.call(LIST_KEYS, asked), "role_names": ROLES, "made": None}


@PAGES.form("/keys/create", "Keys", "keys.html.jinja")
def _create_key(visitor: Visitor, form: KeyForm) -> Content:
    expires_at = visitor.clock.now_us() + form.days * _DAY_US if form.days else None
    terms = CreateKey(role=form.role, note=form.note, expires_at=expires_at)
    made = visitor.call(CREATE_KEY, terms)
    return _key_content(visitor, KeysRequest(limit=_ROWS_SHOWN)) | {"made": made}


@PAGES.form("/keys/{id}/revoke", "Revoke")
def _revoke_key(visitor: Visitor, form: RevokeKey) -> Redirect:
    visitor.call(REVOKE_KEY, form)
    return Redirect("/keys", f"The key {form.id} is refused from now on.")


@PAGES.page("/audit", "Audit", "audit.html.jinja", roles=(), group="Service", place=4, shortcut="a")
def _audit(visitor: Visitor, request: AuditPageRequest) -> Content:
    fields = msgspec.structs.asdict(request)
    answer = visitor.call(LIST_ENTRIES, EntriesRequest(**fields, limit=_ROWS_SHOWN))
    rows = [(entry, as_time(entry.at_us)) for entry in answer.entries]
    chain = None
    if request.cursor is None:
        chains = visitor.call(VERIFY_AUDIT, VerifyRequest()).chains
        chain = chains[0] if chains else None
    return {"answer": answer, "rows": rows, "chain": chain, "actions": get_args(Action)}
