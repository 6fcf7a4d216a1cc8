"""Events that may not be trained on, where the operator wants none of them stored.

A session is refused as a whole: by what it says itself, now or in rows that are stored, or by a
decision on it, its user or its project. That it was is kept as a decision on the session, since
its later events may name nobody."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.database.engine import Database, clock_us
from penstock.events.event import consent_of
from penstock.ingest.flush import FlushInput, without
from penstock.ingest.rejection_rules import RejectedRow
from penstock.lake.duplicates import SessionMemory
from penstock.lake.rows import DecodedEvents
from penstock.privacy.consents import NO_TRAIN, DecisionKind, standing_decisions
from penstock.privacy.tables import consent_decision
from penstock.privacy.tombstones import PROJECT, SESSION, USER

REASON = "no_train: what may not be trained on is refused, and nothing of it is kept"
_BY = "ingest"
_WHY = "refused as it came in"


class _Label(NamedTuple):
    """What decisions may be about, of many events the same."""

    session: str
    id: str
    user: str | None
    project: str | None


@dataclass(frozen=True)
class RefusedEvents:
    positions: frozenset[int] = frozenset()
    #: (tenant, session)s of them that nobody has decided on yet.
    sessions: frozenset[tuple[str, str]] = frozenset()

    def settle(self, connection: Connection) -> bool:
        """In the transaction that stores the others."""
        if self.sessions:
            same: dict[str, str | int] = {"kind": SESSION, "consent": NO_TRAIN, "reason": _WHY}
            same |= {"decided_by": _BY, "decided_at": clock_us(connection)}
            rows = [same | {"tenant": tenant, "subject": s} for tenant, s in sorted(self.sessions)]
            connection.execute(sa.insert(consent_decision), rows)
        return True


def find_refused(
    database: Database, decoded: DecodedEvents, memories: Mapping[str, SessionMemory]
) -> RefusedEvents:
    """By sessions: `memories` hold what stored rows say of them."""
    refused = {
        session for session in set(decoded.sessions) if memories[session].consent == NO_TRAIN
    }
    named: defaultdict[str, set[_Label]] = defaultdict(set)
    for tenant, session, event in zip(
        decoded.tenants, decoded.sessions, decoded.events, strict=True
    ):
        named[tenant].add(_Label(session, event.session_id, event.user, event.project))
        if event.type == "session_start" and consent_of(bytes(event.payload)) == NO_TRAIN:
            refused.add(session)
    decided: set[str] = set()
    with database.read() as connection:
        for tenant, labels in named.items():
            sessions = _denied(connection, tenant, SESSION, {each.id for each in labels})
            users = _denied(connection, tenant, USER, {each.user for each in labels})
            projects = _denied(connection, tenant, PROJECT, {each.project for each in labels})
            decided |= {each.session for each in labels if each.id in sessions}
            refused |= {
                each.session for each in labels if each.user in users or each.project in projects
            }
    whole = refused | decided
    if not whole:
        return RefusedEvents()
    places = frozenset(at for at, session in enumerate(decoded.sessions) if session in whole)
    fresh = refused - decided
    new = frozenset(
        (tenant, each.id)
        for tenant, labels in named.items()
        for each in labels
        if each.session in fresh
    )
    return RefusedEvents(places, new)


def _denied(
    connection: Connection, tenant: str, kind: DecisionKind, subjects: Collection[str | None]
) -> set[str]:
    named = sorted(subject for subject in subjects if subject)
    standing = standing_decisions(connection, tenant, kind, named)
    return {subject for subject, consent in standing.items() if consent == NO_TRAIN}


def without_refused(flush: FlushInput, refused: Collection[int]) -> FlushInput:
    """The flush with the events at these positions among the rejected, without their content. They
    were accepted, and are no longer counted as that."""
    decoded = flush.decoded
    rows = []
    for at in sorted(refused):
        tenant, source = decoded.tenants[at], decoded.events[at].source or ""
        received_us = decoded.received_us[at]
        rows.append(RejectedRow(tenant, source, received_us, 0, REASON, b"", truncated=False))
    kept, taken_back = without(flush, refused)
    return replace(kept, rejected=[*flush.rejected, *rows], accepted=flush.accepted - taken_back)
