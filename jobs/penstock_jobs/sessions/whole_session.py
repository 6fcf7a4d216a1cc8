"""A whole session from a desk: all pages as one record, and what rewards see of its edits."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Protocol, TypeVar

import pyarrow as pa

from penstock.clock import SystemClock
from penstock.events.event import KEY_BYTES, SCHEMA_VERSION, TENANT_DEFAULT
from penstock.lake.desk import Call, Question
from penstock.lake.rows import EVENT_ROWS
from penstock_jobs.rewards.bucket import Bucket, as_bucket
from penstock_jobs.rewards.errors import SessionUnknown
from penstock_jobs.rewards.lives import ChainMember, Relations
from penstock_jobs.sessions.calls import SHOW_SESSION, SessionQuestion
from penstock_jobs.sessions.session_record import EVENTS_MAX, EventRecord, SessionRecord

Q = TypeVar("Q", bound=Question)
A = TypeVar("A")
#: Of a longer chain the first say what became of edits.
CHAIN_SESSIONS_MAX = 32


class Asked(Protocol):
    """A desk, or whoever looks at a page."""

    def ask(self, call: Call[Q, A], question: Q, /) -> A: ...


def read_whole_session(desk: Asked, session: str, definition: str | None = None) -> SessionRecord:
    """Raises SessionUnknown, what the desk raises."""
    question = SessionQuestion(session_id=session, definition=definition, limit=EVENTS_MAX)
    record = desk.ask(SHOW_SESSION, question)
    while record.next:
        question = SessionQuestion(session_id=session, cursor=record.next, limit=EVENTS_MAX)
        page = desk.ask(SHOW_SESSION, question)
        record.events += page.events
        record.next = page.next
    return record


def bucket_of(desk: Asked, record: SessionRecord) -> Bucket:
    """The session with the others of its chain, so that rewards can look at what became of it."""
    session = record.session["session_id"] if record.session else ""
    chain = record.explanation.chain if record.explanation else []
    others = [member.session_id for member in chain if member.session_id != session]
    events = {session: record.events}
    for other in others[:CHAIN_SESSIONS_MAX]:
        with suppress(SessionUnknown):  # erased meanwhile
            events[other] = read_whole_session(desk, other).events
    places = {name: ChainMember(session) for name in events} if others else {}
    rows, now_us = event_rows(events), SystemClock().now_us()
    return as_bucket(rows, TENANT_DEFAULT, now_us, relations=Relations(places))


def event_rows(record_events: Mapping[str, Iterable[EventRecord]]) -> pa.Table:
    """The events of these sessions as rows of segments."""
    rows = []
    for session, events in sorted(record_events.items()):
        for number, event in enumerate(events):
            row = {name: getattr(event, name, None) for name in EVENT_ROWS.names}
            row |= {"tenant": TENANT_DEFAULT, "session_id": session, "consent": "unknown"}
            row |= {"payload": bytes(event.payload).decode(), "extra": None}
            row |= {"schema_version": SCHEMA_VERSION, "received_at": event.ts}
            rows.append(row | {"key": number.to_bytes(KEY_BYTES, "big")})
    return pa.Table.from_pylist(rows, EVENT_ROWS)
