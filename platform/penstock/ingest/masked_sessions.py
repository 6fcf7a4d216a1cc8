"""Sessions with masked content: their later model calls lose their token ids, which would reveal
it. The writer of a session's partition removes them, whatever gateway an event came from."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.backends.database.engine import Database, insert_of, portions
from penstock.events.event import SessionStart, microseconds
from penstock.events.frames import Frame
from penstock.events.redaction.placeholders import (
    MARKS,
    PLACEHOLDER,
    has_token_ids,
    payload_without_token_ids,
)
from penstock.lake.buckets import SessionId
from penstock.lake.rows import DecodedEvents
from penstock.lake.tables import masked_session

#: A session that continues a masked one repeats its content from its first event on.
_FROM_THE_START = 0
_LINK = b'"parent_session"'
_start_decoder = msgspec.json.Decoder(SessionStart)


@dataclass
class MaskSigns:
    """Possible content of a flush's lines. Without signs no line is examined."""

    placeholders: bool = False
    token_ids: bool = False

    def look_at(self, frame: Frame) -> None:
        signs, body = frame.header.signs, frame.body
        if signs is not None:
            self.placeholders = self.placeholders or "placeholders" in signs
            self.token_ids = self.token_ids or "token_ids" in signs
            return
        self.placeholders = self.placeholders or any(mark in body for mark in MARKS)
        self.token_ids = self.token_ids or has_token_ids(body)


class MaskedSessions(msgspec.Struct, frozen=True):
    #: Sessions that are newly masked, or from an earlier time on.
    fresh: Mapping[SessionId, int] = msgspec.field(default_factory=dict)
    #: Calls that lost their token ids.
    calls: int = 0

    def save(self, connection: Connection) -> None:
        """Record the sessions in the transaction that stores the events."""
        if self.fresh:
            insert = insert_of(connection)(masked_session)
            earlier = sa.case(
                (insert.excluded.since_us < masked_session.c.since_us, insert.excluded.since_us),
                else_=masked_session.c.since_us,
            )
            keys = masked_session.primary_key.columns
            rows = [
                {"tenant": tenant, "session_id": id_, "since_us": since}
                for (tenant, id_), since in sorted(self.fresh.items())
            ]
            adding = insert.on_conflict_do_update(index_elements=keys, set_={"since_us": earlier})
            connection.execute(adding, rows)


def drop_token_ids(database: Database, decoded: DecodedEvents, signs: MaskSigns) -> MaskedSessions:
    """Remove token ids of calls from the first masked event of their session on."""
    links = any(
        event.type == "session_start" and _LINK in bytes(event.payload) for event in decoded.events
    )
    if not (signs.placeholders or signs.token_ids or links):
        return MaskedSessions()
    since: dict[SessionId, int] = {}
    parents: dict[SessionId, SessionId] = {}
    calls: list[tuple[int, SessionId]] = []
    for at, (tenant, event) in enumerate(zip(decoded.tenants, decoded.events, strict=True)):
        if event.type == "session_start":
            if links and (parent := _start_decoder.decode(event.payload).parent_session):
                session = SessionId(tenant, event.session_id)
                parents[session] = SessionId(tenant, parent)
        elif signs.token_ids and event.type == "model_call" and has_token_ids(bytes(event.payload)):
            calls.append((at, SessionId(tenant, event.session_id)))
        if signs.placeholders and _is_masked(bytes(event.payload)):
            session, us = SessionId(tenant, event.session_id), microseconds(event.ts)
            since[session] = min(since.get(session, us), us)
    known = _read(database, {*(session for _, session in calls), *parents.values(), *since})
    for session, us in known.items():
        since[session] = min(since.get(session, us), us)
    _follow(parents, since)
    dropped = 0
    for at, session in calls:
        event = decoded.events[at]
        if session in since and microseconds(event.ts) >= since[session]:
            event.payload = msgspec.Raw(payload_without_token_ids(bytes(event.payload)))
            dropped += 1
    fresh = {
        session: us for session, us in since.items() if session not in known or us < known[session]
    }
    return MaskedSessions(fresh, dropped)


def _is_masked(payload: bytes) -> bool:
    return any(mark in payload for mark in MARKS) and bool(
        PLACEHOLDER.search(payload.decode("latin-1"))
    )


def _follow(parents: Mapping[SessionId, SessionId], since: dict[SessionId, int]) -> None:
    """Pass masks on to sessions that continue masked ones, to any depth within the flush."""
    below = {session for session, parent in parents.items() if parent in since}
    while below:
        since.update(dict.fromkeys(below, _FROM_THE_START))
        below = {
            session
            for session, parent in parents.items()
            if parent in below and since.get(session) != _FROM_THE_START
        }


def _read(database: Database, sessions: Collection[SessionId]) -> dict[SessionId, int]:
    known: dict[SessionId, int] = {}
    if not sessions:
        return known
    columns = masked_session.c
    query = sa.select(columns.session_id, columns.since_us)
    with database.read() as connection:
        for tenant, own in groupby(sorted(sessions), key=attrgetter("tenant")):
            ids: Iterable[str] = [session.session_id for session in own]
            for some in portions(ids):
                mine = query.where(columns.tenant == tenant, columns.session_id.in_(some))
                for row in connection.execute(mine):
                    known[SessionId(tenant, row.session_id)] = row.since_us
    return known
