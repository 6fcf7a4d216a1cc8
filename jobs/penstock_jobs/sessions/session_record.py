"""A session as a document: what is known of it, its events, and why it is worth what it is."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from importlib.resources import files
from typing import Annotated, Any

import msgspec
import pyarrow as pa
from msgspec import Meta

from penstock.core.endpoint import Caller, Endpoint, Request, decode_cursor, encode_cursor
from penstock.core.room import Endpoints
from penstock.lake.lake import Lake
from penstock.lake.query.lake_query import OwnQuery
from penstock.lake.query.view_sources import view_sql
from penstock_jobs.rewards.explanation import Explanation, stored_query, stored_rewards
from penstock_jobs.rewards.history.chains import SessionUnknown

EVENTS_MAX = 1_000
#: Of payloads on one page, unless a single event is larger.
_PAGE_BYTES_MAX = 4 * 1024 * 1024
_SESSIONS = frozenset({"sessions"})
_EVENTS = frozenset({"events"})


class EventRecord(msgspec.Struct):
    ts: datetime
    type: str
    payload: msgspec.Raw
    seq: int | None = None
    event_id: str | None = None
    source: str | None = None
    source_key: str | None = None
    checkpoint: str | None = None
    extra: msgspec.Raw | None = None


class SessionRecord(msgspec.Struct):
    """`session` is its row of the view `sessions`, `rewards` are its rows of the view `rewards` by
    the definition that `explanation` names. A page after the first has events alone. `next` is the
    cursor of the page that follows."""

    session: dict[str, Any] | None
    explanation: Explanation | None
    rewards: list[dict[str, Any]]
    rewards_cut_off: bool
    events: list[EventRecord]
    next: str | None
    end: str | None = None


class SessionRequest(Request):
    """`limit` is of events."""

    session_id: str
    definition: str | None = None
    cursor: str = ""
    limit: Annotated[int, Meta(ge=1, le=EVENTS_MAX)] = 200


def read_session(lake: Lake, caller: Caller, asked: SessionRequest) -> SessionRecord:
    if asked.cursor:
        events = _events_query(asked.session_id, asked.cursor, asked.limit)
        page = lake.query(events, tenant=caller.tenant).table()
        return SessionRecord(None, None, [], False, *_page_of(page, asked.cursor))
    query = session_query(lake, asked.session_id, asked.definition, asked.limit)
    answers = lake.query(query, tenant=caller.tenant).tables()
    return session_of(lake, asked.session_id, caller.tenant, answers)


def session_query(lake: Lake, session: str, definition: str | None, limit: int) -> OwnQuery:
    """What `session_of` makes the first page of. Other statements find it in the table `page`."""
    page, rewards = _events_query(session, "", limit), stored_query(lake, session, definition)
    view = view_sql("sessions")  # to create it would be to plan it once more
    summary = f"select * from (\n{view}\n) where session_id = getvariable('session')"
    return replace(
        page,
        sql="from page",
        others=(summary, rewards.sql, *rewards.others),
        below=_SESSIONS | rewards.below,
        made={"page": page.sql, **rewards.made},
        assigned=rewards.assigned,
        variables={**page.variables, **rewards.variables},
    )


def session_of(lake: Lake, session: str, tenant: str, answers: Sequence[pa.Table]) -> SessionRecord:
    page, summary, *rewards = answers
    if not summary:
        raise SessionUnknown(session=session, tenant=tenant)
    [row], shown = summary.to_pylist(), _page_of(page, "")
    stored = stored_rewards(lake, session, *rewards)
    if stored is None:
        return SessionRecord(row, None, [], False, *shown)
    return SessionRecord(row, stored.explanation, stored.rows, stored.cut_off, *shown)


def _events_query(session: str, cursor: str, limit: int) -> OwnQuery:
    place = decode_cursor(cursor, 3) if cursor else ["", "", ""]
    names = ("session", "after_ts", "after_place", "after_tie", "rows_max", "bytes_max")
    values = (session, *place, str(limit), str(_PAGE_BYTES_MAX))
    variables = dict(zip(names, values, strict=True))
    return OwnQuery(sql_of("events.sql"), _EVENTS, variables=variables, sessions=[session])


def _page_of(table: pa.Table, cursor: str) -> tuple[list[EventRecord], str | None, str | None]:
    rows = table.to_pylist()
    events = [_event_of(row) for row in rows]
    if not rows:
        return events, None, cursor or None
    end = encode_cursor(rows[-1]["ts_us"], rows[-1]["place"], rows[-1]["tie"])
    return events, end if rows[0]["remaining"] > len(rows) else None, end


def _event_of(row: Mapping[str, Any]) -> EventRecord:
    fields = {name: row[name] for name in EventRecord.__struct_fields__}
    for name in ("payload", "extra"):
        fields[name] = msgspec.Raw(row[name].encode()) if row[name] is not None else None
    return EventRecord(**fields)


def sql_of(file: str) -> str:
    return files("penstock_jobs.sessions").joinpath("sql", file).read_text(encoding="utf-8")


OVER_LIMIT = "The answer is over its limit, or took too long."
SHOW_SESSION = Endpoint(
    "GET /v1/sessions/{session_id:path}",
    read_session,
    ("read",),
    "A session with its events and rewards",
    description="A page of its events; the first page also says what is known of the session, what "
    "it is worth, and why.",
    refused={404: "There is no such session.", 422: OVER_LIMIT},
    reads_rows=True,
)
ENDPOINTS: Endpoints = [SHOW_SESSION]
