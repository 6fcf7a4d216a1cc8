"""Which sessions there are: the newest first, by what people look for, a page at a time."""

from dataclasses import dataclass
from datetime import datetime

import msgspec

from penstock.lake.lake import Lake
from penstock.lake.pages import decode_cursor, encode_cursor
from penstock.lake.query import OwnQuery
from penstock_jobs.rewards.due_sessions import definition_known_as
from penstock_jobs.rewards.outcomes import Kind
from penstock_jobs.sessions.session_record import sql_of

LISTED_MAX = 1_000
#: Sessions whose texts are read for words, for one page: older ones are on pages that follow.
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
#: Where nothing else has to be known, summaries are put together for a page alone.
_LAST_HEARD = "(select session_id, max(last_ts) as last_ts from session_parts group by session_id)"


class ListedSession(msgspec.Struct):
    """`outcome` to `definition_version` are of the run that computed it last."""

    session_id: str
    first_ts: datetime
    last_ts: datetime
    user: str | None
    project: str | None
    checkpoint: str | None
    consent: str
    events: int
    user_messages: int
    model_calls: int
    tool_calls: int
    edits: int
    parent_session: str | None
    link: str | None
    end_reason: str | None
    outcome: str | None
    reason: str | None
    value: float | None
    definition: str | None
    definition_version: str | None
    #: The text around the words that were looked for.
    found: str | None = None


class SessionPage(msgspec.Struct):
    """`next` is the cursor of the page that follows; null when there is none. Where words are
    looked for, `searched` says in how many sessions they were on this page."""

    sessions: list[ListedSession]
    next: str | None
    searched: int | None = None


@dataclass(frozen=True)
class ListFilter:
    """Only sessions of this project and checkpoint, that ended so by this definition, worth so
    much, that were last heard of in this time, in microseconds, with these words in them."""

    project: str | None = None
    checkpoint: str | None = None
    outcome: Kind | None = None
    since_us: int | None = None
    until_us: int | None = None
    worth_min: float | None = None
    worth_max: float | None = None
    words: str | None = None
    #: Its name or version; else whichever computed a session last.
    definition: str | None = None


def list_sessions(
    lake: Lake,
    tenant: str,
    sessions: ListFilter,
    *,
    cursor: str | None = None,
    limit: int = 50,
) -> SessionPage:
    """Raises InvalidInput,
    what queries raise."""
    rows_max = SEARCHED_MAX if sessions.words else limit
    place = decode_cursor(cursor, 2) if cursor else None
    order = ListPlace(tenant, place, rows_max + 1)
    listed = _listed(lake, sessions, order)
    more = len(listed) > rows_max
    listed = listed[:rows_max]
    last = listed[-1] if more else None
    searched = None
    if sessions.words:
        searched = len(listed)
        found = _found(lake, order, sessions.words, [one.session_id for one in listed])
        listed = [one for one in listed if one.session_id in found]
        for one in listed:
            one.found = found[one.session_id]
        if len(listed) > limit:
            listed = listed[:limit]
            last = listed[-1]
    follows = encode_cursor(_microseconds(last.last_ts), last.session_id) if last else None
    return SessionPage(listed, follows, searched)


def neighbours_query(lake: Lake, sessions: ListFilter, session: str) -> OwnQuery:
    """What stands beside a session in the list of this filter, whatever words it has: a row for
    each side. Raises InvalidInput."""
    asked = _conditions(lake, sessions)
    sql = sql_of("neighbours.sql").format(source=asked.source, conditions=asked.sql)
    variables = asked.variables | {"session": session}
    return OwnQuery(sql, asked.views, below=asked.below, variables=variables)


@dataclass(frozen=True)
class ListPlace:
    """Whose sessions, from which place on, how many."""

    tenant: str
    place: list[str] | None
    rows_max: int


@dataclass(frozen=True)
class _Conditions:
    """A filter as SQL, what it is a condition on, and the views that it reads or reads below."""

    sql: str
    source: str
    #: Of the rows of `outcomes` that count.
    definition: str
    variables: dict[str, str]
    views: frozenset[str]
    below: frozenset[str]

    def on_page(self, order: ListPlace) -> tuple[str, dict[str, str]]:
        """With the place from which a page goes on, and its rows."""
        variables = self.variables | {"rows_max": str(order.rows_max)}
        if order.place is None:
            return self.sql, variables
        variables["place_us"], variables["place_session"] = order.place
        return f"{self.sql} and {_BEHIND}", variables


def _conditions(lake: Lake, sessions: ListFilter) -> _Conditions:
    variables: dict[str, str] = {}
    conditions, source = ["true"], _LAST_HEARD
    for name in ("project", "checkpoint"):
        if (value := getattr(sessions, name)) is not None:
            variables[name] = value
            conditions.append(f"{name} = getvariable('{name}')")
            source = "sessions"
    for name, condition in (("since_us", _SINCE), ("until_us", _UNTIL)):
        if (value := getattr(sessions, name)) is not None:
            variables[name] = str(value)
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


def _listed(lake: Lake, sessions: ListFilter, order: ListPlace) -> list[ListedSession]:
    asked = _conditions(lake, sessions)
    conditions, variables = asked.on_page(order)
    among = None
    if asked.source == _LAST_HEARD:
        among = _newest(lake, order, asked)
        variables["sessions"] = msgspec.json.encode(among).decode()
        conditions = _AMONG
    sql = sql_of("list.sql").format(conditions=conditions, definition=asked.definition)
    query = OwnQuery(sql, _SESSIONS, below=_OUTCOMES, variables=variables, sessions=among)
    rows = lake.query(query, tenant=order.tenant).table()
    return msgspec.convert(rows.to_pylist(), list[ListedSession])


def _newest(lake: Lake, order: ListPlace, asked: _Conditions) -> list[str]:
    """The sessions of a page."""
    conditions, variables = asked.on_page(order)
    sql = sql_of("places.sql").format(source=asked.source, conditions=conditions)
    query = OwnQuery(sql, asked.views, below=asked.below, variables=variables)
    rows = lake.query(query, tenant=order.tenant).table()
    names: list[str] = rows["session_id"].to_pylist()
    return names


def _found(lake: Lake, order: ListPlace, words: str, names: list[str]) -> dict[str, str]:
    """By session the text around the words, where they stand in it first."""
    variables = {"words": words, "sessions": msgspec.json.encode(names).decode()}
    query = OwnQuery(sql_of("words.sql"), _EVENTS, variables=variables, sessions=names)
    rows = lake.query(query, tenant=order.tenant).table().to_pylist()
    return {row["session_id"]: row["found"] for row in rows}


def _microseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000_000)
