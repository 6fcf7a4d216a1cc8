"""Reads sessions from the lake: one as a document with its rewards, and the list, page by page."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from importlib.resources import files
from typing import Annotated, Any

import msgspec
import pyarrow as pa
from msgspec import Meta

from penstock.backends.terminal.options import since_us
from penstock.core.endpoint import Caller, Endpoint, Request, decode_cursor, encode_cursor
from penstock.core.room import Endpoints
from penstock.lake.lake import Lake
from penstock.lake.query.lake_query import OwnQuery
from penstock.lake.query.view_sources import view_sql
from penstock_jobs.rewards.due_sessions import definition_known_as
from penstock_jobs.rewards.explanation import Explanation, stored_query, stored_rewards
from penstock_jobs.rewards.history.session_chains import SessionUnknown
from penstock_jobs.sessions.session_page import ListedSession, SessionPage, SessionsRequest, Sorting

EVENTS_MAX = 1_000
#: Payloads of one page, unless a single event is larger.
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
    """A session: its row of the view `sessions`, its rows of the view `rewards` by the definition
    that `explanation` names, and a page of events.

    Later pages have only events. `next` is the cursor of the next page."""

    session: dict[str, Any] | None
    explanation: Explanation | None
    rewards: list[dict[str, Any]]
    rewards_cut_off: bool
    events: list[EventRecord]
    next: str | None
    end: str | None = None


class SessionRequest(Request):
    """A session to read. `limit` bounds its events."""

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
    """Make the query for a first page, which `session_of` reads. Its statements may use `page`."""
    page, rewards = _events_query(session, "", limit), stored_query(lake, session, definition)
    view = view_sql("sessions")  # inlined, since a created view is planned twice
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
    description="A page of its events. The first page also has the session's facts and rewards, "
    "with the reasons.",
    refused={404: "There is no such session.", 422: OVER_LIMIT},
    reads_rows=True,
)
ENDPOINTS: Endpoints = [SHOW_SESSION]


#: Sessions whose texts are read for words, for one page.
SEARCHED_MAX = 200
_OUTCOMES = frozenset({"outcomes"})
# The newest outcome counts. The view `outcomes` would sort all outcomes of the lake for that.
_ENDED_SO = """session_id in (
        select session_id from stored_outcomes
        where tenant = getvariable('tenant') and {definition}
        group by session_id
        having {ended})"""
_WORTH = "arg_max_null(value, computed_at)"
_ENDS = {
    "outcome": "arg_max(outcome, computed_at) = getvariable('outcome')",
    "worth_min": f"{_WORTH} >= cast(getvariable('worth_min') as double)",
    "worth_max": f"{_WORTH} <= cast(getvariable('worth_max') as double)",
}
_SINCE = "last_ts >= make_timestamptz(cast(getvariable('since_us') as bigint))"
_UNTIL = "last_ts < make_timestamptz(cast(getvariable('until_us') as bigint))"
_BEHIND = """(rank, last_ts, session_id) < (try_cast(getvariable('place_rank') as double),
    make_timestamptz(try_cast(getvariable('place_us') as bigint)), getvariable('place_session'))"""
#: What each order of the list ranks sessions by, the greatest first; without a rank it is left out.
_RANKS: dict[Sorting, str] = {
    "newest": "0",
    "worst": "-value",
    "best": "value",
    "failures": "nullif(failed_tool_calls, 0)",
    "tokens": "prompt_tokens + completion_tokens",
}
_WITH_WORTH = """(select sessions.*, value from sessions join (
    select session_id, arg_max_null(value, computed_at) as value from stored_outcomes
    where tenant = getvariable('tenant') and {definition} group by session_id
) using (session_id))"""
#: As the view `sessions` has it.
_LATEST = "arg_max({0}, epoch_us({0}_ts)::hugeint * 4294967296 + hash({0}) % 4294967296) as {0}"
#: If nothing else is needed, summaries are merged only for the page.
_FEW = ("project", "checkpoint")
_LAST_HEARD = f"""(
    select session_id, max(last_ts) as last_ts, {", ".join(map(_LATEST.format, _FEW))}
    from session_parts group by session_id)"""


def list_sessions(lake: Lake, caller: Caller, asked: SessionsRequest) -> SessionPage:
    rows_max = SEARCHED_MAX if asked.words else asked.limit
    place = decode_cursor(asked.cursor, 3) if asked.cursor else None
    listed, ranks = _listed(lake, caller.tenant, asked, place, rows_max + 1)
    more = len(listed) > rows_max
    listed = listed[:rows_max]
    last = listed[-1] if more else None
    searched = None
    if asked.words:
        searched = len(listed)
        found = _found(lake, caller.tenant, asked.words, [one.session_id for one in listed])
        listed = [one for one in listed if one.session_id in found]
        for one in listed:
            one.found = found[one.session_id]
        if len(listed) > asked.limit:
            listed = listed[: asked.limit]
            last = listed[-1]
    follows = None
    if last is not None:
        moment_us = round(last.last_ts.timestamp() * 1_000_000)
        follows = encode_cursor(str(ranks[last.session_id]), moment_us, last.session_id)
    return SessionPage(listed, follows, searched)


def neighbours_query(lake: Lake, sessions: SessionsRequest, session: str) -> OwnQuery:
    """Make the query for the neighbours of a session in a list, one row per side.

    The filter's words are ignored. Raises InvalidInput."""
    asked = _conditions(lake, sessions)
    sql = sql_of("neighbours.sql").format(source=asked.source, conditions=asked.sql)
    variables = asked.variables | {"session": session}
    return OwnQuery(sql, asked.views, below=asked.below, variables=variables)


class _Conditions(msgspec.Struct, frozen=True):
    """A filter as SQL, with its source and the views that it reads, directly or below."""

    sql: str
    source: str
    definition: str
    variables: dict[str, str]
    views: frozenset[str]
    below: frozenset[str]


def _conditions(lake: Lake, sessions: SessionsRequest) -> _Conditions:
    variables: dict[str, str] = {}
    conditions, source = ["true"], _LAST_HEARD if sessions.sort == "newest" else "sessions"
    for name in ("project", "checkpoint", "client", "model"):
        if (value := getattr(sessions, name)) is not None:
            variables[name] = value
            conditions.append(f"{name} = getvariable('{name}')")
            source = source if name in _FEW else "sessions"
    for name, condition in (("since", _SINCE), ("until", _UNTIL)):
        if text := getattr(sessions, name):
            variables[f"{name}_us"] = str(since_us(text, name))
            conditions.append(condition)
    definition = "listed"
    if sessions.definition:
        variables["version"] = definition_known_as(lake.database, sessions.definition).version
        definition = "definition_version = getvariable('version')"
    ends = {name: getattr(sessions, name) for name in _ENDS if getattr(sessions, name) is not None}
    if ends:
        variables |= {name: str(value) for name, value in ends.items()}
        ended = " and ".join(_ENDS[name] for name in ends)
        conditions.append(_ENDED_SO.format(definition=definition, ended=ended))
    views = _SESSIONS if source == "sessions" else frozenset()
    by_worth = sessions.sort in ("worst", "best")
    if by_worth:
        source = _WITH_WORTH.format(definition=definition)
    below = _SESSIONS | (_OUTCOMES if ends or by_worth else frozenset())
    return _Conditions(" and ".join(conditions), source, definition, variables, views, below)


def _listed(
    lake: Lake, tenant: str, sessions: SessionsRequest, place: list[str] | None, rows_max: int
) -> tuple[list[ListedSession], dict[str, float]]:
    """The sessions of a page in their order, and the rank of each."""
    asked = _conditions(lake, sessions)
    variables = asked.variables | {"rows_max": str(rows_max)}
    if place is not None:
        variables |= zip(("place_rank", "place_us", "place_session"), place, strict=True)
    sql = sql_of("places.sql").format(
        source=asked.source,
        conditions=asked.sql,
        rank=_RANKS[sessions.sort],
        behind=_BEHIND if place else "true",
    )
    places = OwnQuery(sql, asked.views, below=asked.below, variables=variables)
    found = lake.query(places, tenant=tenant).table().to_pylist()
    ranks: dict[str, float] = {row["session_id"]: row["rank"] for row in found}
    if not ranks:
        return [], {}
    variables |= {"sessions": msgspec.json.encode(list(ranks)).decode()}
    query = OwnQuery(
        sql_of("list.sql").format(definition=asked.definition),
        _SESSIONS | _EVENTS,
        others=(sql_of("openings.sql"),),
        below=_OUTCOMES,
        variables=variables,
        sessions=list(ranks),
    )
    rows, openings = (table.to_pylist() for table in lake.query(query, tenant=tenant).tables())
    opening = {row["session_id"]: row["opening"] for row in openings}
    facts = {row["session_id"]: row | {"opening": opening.get(row["session_id"])} for row in rows}
    order = [facts[session] for session in ranks if session in facts]
    return msgspec.convert(order, list[ListedSession]), ranks


def _found(lake: Lake, tenant: str, words: str, names: list[str]) -> dict[str, str]:
    variables = {"words": words, "sessions": msgspec.json.encode(names).decode()}
    query = OwnQuery(sql_of("words.sql"), _EVENTS, variables=variables, sessions=names)
    rows = lake.query(query, tenant=tenant).table().to_pylist()
    return {row["session_id"]: row["found"] for row in rows}
