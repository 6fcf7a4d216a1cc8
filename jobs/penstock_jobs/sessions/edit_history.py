"""What became of the edits of a part of a session, however long the session is: only events near
the part are read, for no horizon looks further."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.clock import SECOND_US
from penstock.console.visitor import Visitor
from penstock.events.event import TENANT_DEFAULT
from penstock_jobs.rewards.bucket import EditParameters, as_bucket
from penstock_jobs.rewards.copies import Relations
from penstock_jobs.rewards.lives import ChainMember
from penstock_jobs.sessions.edit_fates import EditFate, edit_fates
from penstock_jobs.sessions.session_record import EventRecord, SessionRecord, sql_of
from penstock_jobs.sessions.whole_session import CHAIN_SESSIONS_MAX, event_rows

#: Before the part: whose text it was that its edits changed.
_BEFORE_S = 3600
#: Before the part, and from its beginning on.
_ROWS_MAX = 4_000
_BYTES_MAX = 8 * 1024 * 1024
_EVENTS = frozenset({"events"})


def fates_of(
    visitor: Visitor,
    record: SessionRecord,
    part: Sequence[EventRecord],
    horizon_s: int | None = None,
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
    sessions = [session, *others[:CHAIN_SESSIONS_MAX]]
    start_us, last_us = (round(edit.ts.timestamp() * SECOND_US) for edit in (edits[0], edits[-1]))
    until_us = last_us + max(end for _, end in EditParameters().terms().windows_us)
    variables = {
        "sessions": msgspec.json.encode(sessions).decode(),
        "start_us": start_us,
        "from_us": start_us - _BEFORE_S * SECOND_US,
        "until_us": until_us,
        "rows_max": _ROWS_MAX,
        "bytes_max": _BYTES_MAX,
    }
    texts = {name: str(value) for name, value in variables.items()}
    rows = visitor.own_rows(sql_of("edit_history.sql"), _EVENTS, texts, sessions)
    if not rows:
        return {}
    as_of_us = visitor.clock.now_us()
    if not rows[-1]["is_whole"]:
        as_of_us = min(as_of_us, round(rows[-1]["ts"].timestamp() * SECOND_US))
    places = {name: ChainMember(session) for name in sessions} if others else {}
    events = event_rows(_by_session(rows))
    bucket = as_bucket(events, TENANT_DEFAULT, as_of_us, relations=Relations(places))
    return edit_fates(bucket, session, horizon_s)


def _by_session(rows: Sequence[dict[str, Any]]) -> dict[str, list[EventRecord]]:
    events: defaultdict[str, list[EventRecord]] = defaultdict(list)
    for row in rows:
        fields: dict[str, Any] = {name: row.get(name) for name in EventRecord.__struct_fields__}
        fields["payload"] = msgspec.Raw(row["payload"].encode())
        events[row["session_id"]].append(EventRecord(**fields))
    return events
