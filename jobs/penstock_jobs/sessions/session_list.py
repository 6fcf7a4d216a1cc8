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
_VIEWS = frozenset({"sessions", "outcomes"})
_ENDED_SO = """session_id in (
        select session_id from (
            select session_id, outcome from outcomes
            where superseded_at is null and {definition}
            qualify row_number() over (partition by session_id order by computed_at desc) = 1
        ) where outcome = getvariable('outcome'))"""


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


class SessionPage(msgspec.Struct):
    """`next` is the cursor of the page that follows; null when there is none."""

    sessions: list[ListedSession]
    next: str | None


@dataclass(frozen=True)
class ListFilter:
    """Only sessions of this project and checkpoint, that ended so by this definition, and that were
    heard of since then, in microseconds."""

    project: str | None = None
    checkpoint: str | None = None
    outcome: Kind | None = None
    since_us: int | None = None
    #: Its name or version; else whichever computed a session last.
    definition: str | None = None


def list_sessions(
    lake: Lake,
    tenant: str,
    sessions: ListFilter,
    *,
    of_project: str | None = None,
    cursor: str | None = None,
    limit: int = 50,
) -> SessionPage:
    """`of_project` is the only one whose sessions the caller may see. Raises InvalidInput,
    what queries raise."""
    variables = {"rows_max": str(limit + 1)}
    conditions = ["true"]
    for name in ("project", "checkpoint"):
        if (value := getattr(sessions, name)) is not None:
            variables[name] = value
            conditions.append(f"{name} = getvariable('{name}')")
    if sessions.since_us is not None:
        variables["since_us"] = str(sessions.since_us)
        conditions.append("last_ts >= make_timestamptz(cast(getvariable('since_us') as bigint))")
    if cursor:
        variables["before_us"], variables["before_session"] = decode_cursor(cursor, 2)
        conditions.append(
            "(last_ts, session_id) < (make_timestamptz(try_cast(getvariable('before_us')"
            " as bigint)), getvariable('before_session'))"
        )
    definition = "true"
    if sessions.definition:
        variables["version"] = definition_known_as(lake.database, sessions.definition).version
        definition = "definition_version = getvariable('version')"
    if sessions.outcome is not None:
        variables["outcome"] = sessions.outcome
        conditions.append(_ENDED_SO.format(definition=definition))
    sql = sql_of("list.sql").format(conditions=" and ".join(conditions), definition=definition)
    query = OwnQuery(sql, _VIEWS, variables=variables)
    rows = lake.query(query, tenant=tenant, project=of_project).table()
    listed = msgspec.convert(rows.to_pylist(), list[ListedSession])
    follows = None
    if len(listed) > limit:
        listed = listed[:limit]
        last = listed[-1]
        follows = encode_cursor(_microseconds(last.last_ts), last.session_id)
    return SessionPage(listed, follows)


def _microseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000_000)
