"""Pages of queries and for operators: health, ledger, rejected lines, keys, audit."""

from typing import Any, Literal, get_args

import msgspec
from markupsafe import Markup

from penstock.access import ROLES, Role
from penstock.access.endpoints import (
    CREATE_KEY,
    LIST_ENTRIES,
    LIST_KEYS,
    REVOKE_KEY,
    VERIFY_AUDIT,
    CreateKey,
    EntriesRequest,
    KeysRequest,
    RevokeKey,
    VerifyRequest,
)
from penstock.backends.audit.entry import Action
from penstock.core.endpoint import Request
from penstock.core.errors import PenstockError, one_line
from penstock.doors.console.charts import Bar, Series, bar_chart, line_chart
from penstock.doors.console.figures import as_time
from penstock.doors.console.page import Content, Download, PageList, Redirect, Refusal, Visitor
from penstock.ingest.endpoints import (
    LIST_FUSES,
    LIST_REJECTED,
    READ_LEDGER,
    RELEASE_FUSE,
    REPLAY_REJECTED,
    SHOW_REJECTED,
    FusesRequest,
    LedgerRequest,
    RejectedLineRequest,
    RejectedRequest,
    ReleaseFuseRequest,
    ReplayRequest,
)
from penstock.lake.endpoints import SHOW_LAKE_HEALTH, LakeHealthRequest
from penstock.lake.query.row_formats import ROWS_SHOWN_MAX, Plot, ShownRows
from penstock.lake.query.view_sources import column_meanings, view_names

PAGES = PageList("penstock.doors.console:templates/")

_EXAMPLE = "select type, count(*) as events\nfrom events\ngroup by all\norder by events desc"

Format = Literal["csv", "parquet", "arrow"]
_MEDIA_TYPES: dict[Format, str] = {
    "csv": "text/csv",
    "parquet": "application/vnd.apache.parquet",
    "arrow": "application/vnd.apache.arrow.stream",
}


class StatementRequest(Request):
    """A statement to run. `as_of` is a snapshot's name, a time, or an answer's snap."""

    sql: str | None = None
    as_of: str | None = None


class StatementDownloadRequest(Request):
    sql: str
    format: Format
    as_of: str | None = None


@PAGES.page(
    "/query", "Query", "query.html.jinja", reads_rows=True,
    group="Production", place=9, shortcut="q",
)  # fmt: skip
def _show(visitor: Visitor, request: StatementRequest) -> Content | Refusal:
    content: dict[str, Any] = {
        "views": _views(),
        "sql": request.sql or _EXAMPLE,
        "answer": None,
        "problem": "",
        "rows_shown": ROWS_SHOWN_MAX,
    }
    if request.sql is None:
        return content
    try:
        content_bytes, written = visitor.written_rows(
            request.sql, as_of_text(request.as_of), "shown"
        )
    except PenstockError as error:
        problem = one_line(error)
        return Refusal(content | {"problem": problem}, error.http_status)
    shown = msgspec.json.decode(content_bytes, type=ShownRows)
    plot = plot_of(shown.plot) if shown.plot else None
    return content | {"answer": shown, "written": written, "plot": plot}


@PAGES.page("/query/rows", "Rows", reads_rows=True)
def _download(visitor: Visitor, request: StatementDownloadRequest) -> Download:
    content, written = visitor.written_rows(request.sql, as_of_text(request.as_of), request.format)
    name = f"query-{written.snap}.{request.format}"
    return Download(name, _MEDIA_TYPES[request.format], content)


def as_of_text(text: str | None) -> str | int | None:
    return int(text) if text is not None and text.isdecimal() and text.isascii() else text


def _views() -> list[tuple[str, list[tuple[str, str]]]]:
    return [
        (view, [(name, meaning) for names, meaning in column_meanings(view) for name in names])
        for view in sorted(view_names())
    ]


def plot_of(plot: Plot) -> Markup:
    """Draw lines over times, or bars over labels."""
    if plot.times is not None:
        lines = [
            Series(name, list(zip(plot.times, values, strict=True)))
            for name, values in plot.series.items()
        ]
        title = f"{', '.join(plot.series)} over {plot.over}"
        return line_chart(lines, title=title, width=720)
    [(name, values)] = plot.series.items()
    bars = [
        Bar(label, value)
        for label, value in zip(plot.labels or (), values, strict=True)
        if value is not None
    ]
    return bar_chart(bars, title=f"{name} by {plot.over}", width=560)


# Pages for operators

_ROWS_SHOWN = 100
_DAY_US = 86_400_000_000
_LEDGER_DAYS = 7
_READERS: tuple[Role, ...] = ("read", "ingest")


class LedgerPageRequest(Request):
    all_hours: bool = False
    cursor: str | None = None


class KeyForm(Request):
    role: Role
    note: str = ""
    days: int | None = None


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
def _rejected(visitor: Visitor, request: RejectedRequest) -> Content:
    return {
        "answer": visitor.call(LIST_REJECTED, request),
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
def _replay(visitor: Visitor, form: ReplayRequest) -> Redirect:
    answer = visitor.call(REPLAY_REJECTED, form)
    notice = f"Accepted now: {answer.accepted}."
    if answer.refused:
        first = next(iter(answer.refused.values()))
        notice += f" Rejected again: {len(answer.refused)}, the first because of {first}."
    return Redirect("/rejected", notice)


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
def _audit(visitor: Visitor, request: EntriesRequest) -> Content:
    answer = visitor.call(LIST_ENTRIES, request)
    rows = [(entry, as_time(entry.at_us)) for entry in answer.entries]
    chain = None
    if request.cursor is None:
        chains = visitor.call(VERIFY_AUDIT, VerifyRequest()).chains
        chain = chains[0] if chains else None
    return {"answer": answer, "rows": rows, "chain": chain, "actions": get_args(Action)}
