"""The fates of the lines that edits wrote, from later observations of the files.

Only events near the shown part of a session are read; no horizon needs more."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Literal, Protocol

import msgspec
import pyarrow as pa

from penstock.core.clock import SECOND_US, SystemClock
from penstock.core.endpoint import A, Caller, Endpoint, R
from penstock.doors.console.page import Visitor
from penstock.events.event import KEY_BYTES, SCHEMA_VERSION, TENANT_DEFAULT
from penstock.lake.lake import Lake
from penstock.lake.rows import EVENT_ROWS
from penstock_jobs.rewards.bucket import Bucket, ChainMember, EditParameters, Relations, as_bucket
from penstock_jobs.rewards.history.session_chains import SessionUnknown
from penstock_jobs.rewards.texts.changes import CompareCost, TooExpensive
from penstock_jobs.rewards.texts.survival import LineFate, line_fates, written_lines
from penstock_jobs.rewards.texts.trail import HorizonState, TrackedEdit
from penstock_jobs.sessions.reading import (
    EVENTS_MAX,
    SHOW_SESSION,
    EventRecord,
    SessionRecord,
    SessionRequest,
    session_of,
    session_query,
    sql_of,
)

Fate = LineFate | Literal["unknown"]


@dataclass
class EditFate:
    """The fates of an edit's lines at a horizon, by their texts and in order.

    `unseen` is the reason if they are unknown."""

    turn: int
    horizon_s: int | None = None
    unseen: str | None = None
    lines: Mapping[str, list[LineFate]] = field(default_factory=dict)

    def of_lines(self, texts: Sequence[str]) -> list[Fate]:
        left = {text: list(fates) for text, fates in self.lines.items()}
        return [left[text].pop(0) if left.get(text) else "unknown" for text in texts]

    def counts(self) -> Counter[LineFate]:
        return Counter(fate for fates in self.lines.values() for fate in fates)


def edit_fates(bucket: Bucket, session: str, horizon_s: int | None = None) -> dict[str, EditFate]:
    """The fates of a session's edits, by the edits' names in rewards: at this horizon, else at the
    latest with an observation."""
    parameters = EditParameters()
    fates: dict[str, EditFate] = {}
    for edit in bucket.trails(parameters).get(session, ()):
        fates[edit.target_id] = fate = EditFate(edit.turn, unseen=edit.problem)
        looks = zip(parameters.horizons_s, edit.horizon_states, strict=True)
        asked = [(at, look) for at, look in looks if at and horizon_s in (None, at)]
        seen = [(at, look) for at, look in asked if look.state == "scored"]
        if seen:
            fate.horizon_s, look = seen[-1]
            fate.lines = _lines(edit, look, parameters.cells_max)
        elif fate.unseen is None and asked:
            last = asked[-1][1]
            fate.unseen = last.reason or last.state
    return fates


def _lines(edit: TrackedEdit, look: HorizonState, cells_max: int) -> dict[str, list[LineFate]]:
    written = written_lines(edit)
    lines: defaultdict[str, list[LineFate]] = defaultdict(list)
    try:
        if look.holders == (edit.made,):
            fates: list[LineFate] = ["surviving"] * len(written)
        else:
            fates = list(line_fates(edit, written, look, CompareCost(cells_max)))
    except TooExpensive:
        return {}
    for line, fate in sorted(zip(written, fates, strict=True), key=lambda pair: pair[0].at):
        lines[line.text].append(fate)
    return dict(lines)


#: Later sessions of a longer chain are not read.
CHAIN_SESSIONS_MAX = 32


class Reader(Protocol):
    def call(self, endpoint: Endpoint[R, A], request: R, /) -> A: ...


def read_whole_session(
    client: Reader, session: str, definition: str | None = None, bytes_max: float = inf
) -> SessionRecord:
    """Read all pages of a session, until their payloads have `bytes_max`."""
    question = SessionRequest(session_id=session, definition=definition, limit=EVENTS_MAX)
    record = client.call(SHOW_SESSION, question)
    while record.next and sum(len(bytes(event.payload)) for event in record.events) < bytes_max:
        question = SessionRequest(session_id=session, cursor=record.next, limit=EVENTS_MAX)
        page = client.call(SHOW_SESSION, question)
        record.events += page.events
        record.next = page.next
    return record


def bucket_of(client: Reader, record: SessionRecord) -> Bucket:
    session = record.session["session_id"] if record.session else ""
    chain = record.explanation.chain if record.explanation else []
    others = [member.session_id for member in chain if member.session_id != session]
    events = {session: record.events}
    for other in others[:CHAIN_SESSIONS_MAX]:
        with suppress(SessionUnknown):  # erased meanwhile
            events[other] = read_whole_session(client, other).events
    places = {name: ChainMember(session) for name in events} if others else {}
    rows, now_us = event_rows(events), SystemClock().now_us()
    return as_bucket(rows, TENANT_DEFAULT, now_us, relations=Relations(places))


def event_rows(record_events: Mapping[str, Iterable[EventRecord]]) -> pa.Table:
    rows = []
    for session, events in sorted(record_events.items()):
        for number, event in enumerate(events):
            row = {name: getattr(event, name, None) for name in EVENT_ROWS.names}
            row |= {"tenant": TENANT_DEFAULT, "session_id": session, "consent": "unknown"}
            row |= {"payload": bytes(event.payload).decode(), "extra": None}
            row |= {"schema_version": SCHEMA_VERSION, "received_at": event.ts}
            rows.append(row | {"key": number.to_bytes(KEY_BYTES, "big")})
    return pa.Table.from_pylist(rows, EVENT_ROWS)


#: Events before the part show who wrote the text that its edits changed.
_BEFORE_S = 3600
_ROWS_MAX = 4_000
#: Fates are computed in the service: this much takes it a second at most.
_BYTES_MAX = 4 * 1024 * 1024
_EVENTS = frozenset({"events"})
#: Tables that the fates need.
_TABLES = ("edits", "observations", "turns", "events")
_OF_PAGE = {
    "start_us": "select min(epoch_us(ts)) from page where type = 'edit'",
    "last_us": "select max(epoch_us(ts)) from page where type = 'edit'",
}
Row = Mapping[str, Any]


class SessionHistory(msgspec.Struct, frozen=True):
    """The first page of a session, with the rows that `fates_of` needs."""

    record: SessionRecord
    rows: Sequence[Row]


def _read_history(lake: Lake, caller: Caller, asked: SessionRequest) -> SessionHistory:
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


#: The first page of SHOW_SESSION and the history of its edits, by one query. It has no route.
SHOW_HISTORY = Endpoint(
    SHOW_SESSION.route, _read_history, SHOW_SESSION.roles, SHOW_SESSION.summary, reads_rows=True
)


def fates_of(
    visitor: Visitor,
    record: SessionRecord,
    part: Sequence[EventRecord],
    horizon_s: int | None = None,
    history: Sequence[Row] | None = None,
) -> dict[str, EditFate]:
    """The fates of the edits in a part of a session, by the edits' names in rewards.

    If too much happened before a later horizon, an earlier one counts."""
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
    return {
        "sessions": msgspec.json.encode(sessions).decode(),
        "before_us": str(_BEFORE_S * SECOND_US),
        "behind_us": str(behind_us),
        "history_rows_max": str(_ROWS_MAX),
        "history_bytes_max": str(_BYTES_MAX),
    }


def _by_session(rows: Sequence[Row]) -> dict[str, list[EventRecord]]:
    events: defaultdict[str, list[EventRecord]] = defaultdict(list)
    for row in rows:
        fields: dict[str, Any] = {name: row.get(name) for name in EventRecord.__struct_fields__}
        fields["payload"] = msgspec.Raw(row["payload"].encode())
        events[row["session_id"]].append(EventRecord(**fields))
    return events
