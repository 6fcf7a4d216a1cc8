"""What became of the edits of a part of a session, however long the session is: only events near
the part are read, for no horizon looks further."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from penstock.clock import SECOND_US
from penstock.console.visitor import Visitor
from penstock.events.event import TENANT_DEFAULT
from penstock.lake.desk import Call, Caller
from penstock.lake.lake import Lake
from penstock_jobs.rewards.bucket import EditParameters, as_bucket
from penstock_jobs.rewards.lives import ChainMember, Relations
from penstock_jobs.sessions.calls import SHOW_SESSION, SessionQuestion
from penstock_jobs.sessions.edit_fates import EditFate, edit_fates
from penstock_jobs.sessions.session_record import (
    EventRecord,
    SessionRecord,
    session_of,
    session_query,
    sql_of,
)
from penstock_jobs.sessions.whole_session import CHAIN_SESSIONS_MAX, event_rows

#: Before the part: whose text it was that its edits changed.
_BEFORE_S = 3600
#: Before the part, and from its beginning on.
_ROWS_MAX = 4_000
_BYTES_MAX = 8 * 1024 * 1024
_EVENTS = frozenset({"events"})
#: What edits live through; rewards look at more.
_TABLES = ("edits", "observations", "turns", "events")
_OF_PAGE = {
    "start_us": "select min(epoch_us(ts)) from page where type = 'edit'",
    "last_us": "select max(epoch_us(ts)) from page where type = 'edit'",
}
Row = Mapping[str, Any]


@dataclass(frozen=True)
class SessionHistory:
    """The first page of a session, and what `fates_of` needs of its edits."""

    record: SessionRecord
    #: Of the session alone: of a chain the other sessions are asked for then.
    rows: Sequence[Row]


def _read_history(lake: Lake, caller: Caller, asked: SessionQuestion) -> SessionHistory:
    query = session_query(lake, asked.session_id, asked.definition, asked.limit)
    query = replace(
        query,
        others=(*query.others, sql_of("edit_history.sql")),
        assigned={**query.assigned, **_OF_PAGE},
        variables={**query.variables, **_near([asked.session_id])},
    )
    *answers, history = lake.query(query, tenant=caller.tenant).tables()
    record = session_of(lake, asked.session_id, caller.tenant, answers)
    return SessionHistory(record, history.to_pylist())


#: As SHOW_SESSION of a first page, by one query with what tells about its edits. It has no route.
SHOW_HISTORY = Call(
    path=SHOW_SESSION.path,
    question=SessionQuestion,
    answer=SessionHistory,
    work=_read_history,
    roles=SHOW_SESSION.roles,
    summary=SHOW_SESSION.summary,
    reads_rows=True,
)


def fates_of(
    visitor: Visitor,
    record: SessionRecord,
    part: Sequence[EventRecord],
    horizon_s: int | None = None,
    history: Sequence[Row] | None = None,
) -> dict[str, EditFate]:
    """Of the edits in a part of this session by the names that rewards give them. Where so much
    happened that a later horizon is not reached, the fates at an earlier one. Raises what pages
    raise."""
    edits = [event for event in part if event.type == "edit"]
    if record.session is None or not edits:
        return {}
    session = record.session["session_id"]
    chain = record.explanation.chain if record.explanation else []
    others = [member.session_id for member in chain if member.session_id != session]
    rows = history
    if rows is None or others:
        sessions = [session, *others[:CHAIN_SESSIONS_MAX]]
        ends = zip(("start_us", "last_us"), (edits[0], edits[-1]), strict=True)
        moments = {name: str(round(edit.ts.timestamp() * SECOND_US)) for name, edit in ends}
        variables = _near(sessions) | moments
        rows = visitor.own_rows(sql_of("edit_history.sql"), _EVENTS, variables, sessions)
    if not rows:
        return {}
    as_of_us = visitor.clock.now_us()
    if not rows[-1]["is_whole"]:
        as_of_us = min(as_of_us, round(rows[-1]["ts"].timestamp() * SECOND_US))
    events = _by_session(rows)
    places = {name: ChainMember(session) for name in events} if others else {}
    bucket = as_bucket(
        event_rows(events), TENANT_DEFAULT, as_of_us, relations=Relations(places), tables=_TABLES
    )
    return edit_fates(bucket, session, horizon_s)


def _near(sessions: Sequence[str]) -> dict[str, str]:
    behind_us = max(end for _, end in EditParameters().terms().windows_us)
    variables = {
        "sessions": msgspec.json.encode(sessions).decode(),
        "before_us": _BEFORE_S * SECOND_US,
        "behind_us": behind_us,
        "history_rows_max": _ROWS_MAX,
        "history_bytes_max": _BYTES_MAX,
    }
    return {name: str(value) for name, value in variables.items()}


def _by_session(rows: Sequence[Row]) -> dict[str, list[EventRecord]]:
    events: defaultdict[str, list[EventRecord]] = defaultdict(list)
    for row in rows:
        fields: dict[str, Any] = {name: row.get(name) for name in EventRecord.__struct_fields__}
        fields["payload"] = msgspec.Raw(row["payload"].encode())
        events[row["session_id"]].append(EventRecord(**fields))
    return events
