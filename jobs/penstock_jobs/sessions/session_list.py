"""Which sessions there are: the newest first, by what people look for, a page at a time."""

from dataclasses import dataclass

import msgspec

from penstock.backends.terminal.options import since_us
from penstock.core.endpoint import Caller, decode_cursor, encode_cursor
from penstock.lake.lake import Lake
from penstock.lake.query.lake_query import OwnQuery
from penstock_jobs.rewards.due_sessions import definition_known_as
from penstock_jobs.sessions.session_page import (
    ListedSession,
    SessionPage,
    SessionsRequest,
)
from penstock_jobs.sessions.session_record import sql_of

#: Sessions whose texts are read for words, for one page.
SEARCHED_MAX = 200
_SESSIONS, _OUTCOMES = frozenset({"sessions"}), frozenset({"outcomes"})
_EVENTS = frozenset({"events"})
# The view `outcomes` sorts those of the whole lake to say what is current; here the newest counts.
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
_BEHIND = """(last_ts, session_id) < (
    make_timestamptz(try_cast(getvariable('place_us') as bigint)), getvariable('place_session'))"""
_AMONG = """session_id in (select unnest(from_json(getvariable('sessions'), '["VARCHAR"]')))"""
#: Where nothing else has to be known, summaries are merged for one page alone.
_LAST_HEARD = "(select session_id, max(last_ts) as last_ts from session_parts group by session_id)"


def list_sessions(lake: Lake, caller: Caller, asked: SessionsRequest) -> SessionPage:
    rows_max = SEARCHED_MAX if asked.words else asked.limit
    place = decode_cursor(asked.cursor, 2) if asked.cursor else None
    listed = _listed(lake, caller.tenant, _conditions(lake, asked, place, rows_max + 1))
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
        follows = encode_cursor(round(last.last_ts.timestamp() * 1_000_000), last.session_id)
    return SessionPage(listed, follows, searched)


def neighbours_query(lake: Lake, sessions: SessionsRequest, session: str) -> OwnQuery:
    """What stands beside a session in the list of this filter, a row for each side, whatever words
    it has. Raises InvalidInput."""
    asked = _conditions(lake, sessions)
    sql = sql_of("neighbours.sql").format(source=asked.source, conditions=asked.sql)
    variables = asked.variables | {"session": session}
    return OwnQuery(sql, asked.views, below=asked.below, variables=variables)


@dataclass(frozen=True)
class _Conditions:
    """A filter as SQL, what it is a condition on, and the views that it reads or reads below."""

    sql: str
    source: str
    definition: str
    variables: dict[str, str]
    views: frozenset[str]
    below: frozenset[str]


def _conditions(
    lake: Lake, sessions: SessionsRequest, place: list[str] | None = None, rows_max: int = 0
) -> _Conditions:
    variables = {"rows_max": str(rows_max)}
    conditions, source = ["true"], _LAST_HEARD
    if place is not None:
        variables["place_us"], variables["place_session"] = place
        conditions.append(_BEHIND)
    for name in ("project", "checkpoint"):
        if (value := getattr(sessions, name)) is not None:
            variables[name] = value
            conditions.append(f"{name} = getvariable('{name}')")
            source = "sessions"
    for name, condition in (("since", _SINCE), ("until", _UNTIL)):
        if text := getattr(sessions, name):
            variables[f"{name}_us"] = str(since_us(text, name))
            conditions.append(condition)
    definition = "true"
    if sessions.definition:
        variables["version"] = definition_known_as(lake.database, sessions.definition).version
        definition = "definition_version = getvariable('version')"
    ends = {name: getattr(sessions, name) for name in _ENDS if getattr(sessions, name) is not None}
    if ends:
        variables |= {name: str(value) for name, value in ends.items()}
        ended = " and ".join(_ENDS[name] for name in ends)
        conditions.append(_ENDED_SO.format(definition=definition, ended=ended))
    return _Conditions(
        " and ".join(conditions),
        source,
        definition,
        variables,
        views=_SESSIONS if source == "sessions" else frozenset(),
        below=_SESSIONS | (_OUTCOMES if ends else frozenset()),
    )


def _listed(lake: Lake, tenant: str, asked: _Conditions) -> list[ListedSession]:
    conditions, variables, among = asked.sql, asked.variables, None
    if asked.source == _LAST_HEARD:
        sql = sql_of("places.sql").format(source=asked.source, conditions=conditions)
        places = OwnQuery(sql, asked.views, below=asked.below, variables=variables)
        among = lake.query(places, tenant=tenant).table()["session_id"].to_pylist()
        variables = variables | {"sessions": msgspec.json.encode(among).decode()}
        conditions = _AMONG
    sql = sql_of("list.sql").format(conditions=conditions, definition=asked.definition)
    query = OwnQuery(sql, _SESSIONS, below=_OUTCOMES, variables=variables, sessions=among)
    rows = lake.query(query, tenant=tenant).table()
    return msgspec.convert(rows.to_pylist(), list[ListedSession])


def _found(lake: Lake, tenant: str, words: str, names: list[str]) -> dict[str, str]:
    variables = {"words": words, "sessions": msgspec.json.encode(names).decode()}
    query = OwnQuery(sql_of("words.sql"), _EVENTS, variables=variables, sessions=names)
    rows = lake.query(query, tenant=tenant).table().to_pylist()
    return {row["session_id"]: row["found"] for row in rows}
