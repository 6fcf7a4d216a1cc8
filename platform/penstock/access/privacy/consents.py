"""Consent by user, project and session: decisions, and what holds for sessions.

The newest decision on a subject counts, beside what a session itself says at its start; the
strictest of these holds. Decisions are not written into events, so a withdrawn one also stops
counting for stored events.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Final, Literal, NamedTuple

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.access.privacy.tombstones import PROJECT, SESSION, USER
from penstock.access.tables import consent_decision
from penstock.backends.audit.chain import append
from penstock.backends.audit.entry import Deed, person_digest
from penstock.backends.database.engine import Database, clock_us, portions
from penstock.backends.terminal.output import time_text
from penstock.events.event import CONSENT_UNKNOWN, Consent
from penstock.lake.lake import Lake
from penstock.lake.query.lake_query import OwnQuery
from penstock.lake.tables import consent_change

DecisionKind = Literal["user", "project", "session"]
_LABELS: Mapping[str, DecisionKind] = {"users": USER, "projects": PROJECT}
TRAIN: Final = "train"
NO_TRAIN: Final = "no_train"


@dataclass(frozen=True)
class ConsentDecision:
    """A decision on the consent of a subject."""

    id: int
    tenant: str
    kind: DecisionKind
    subject: str
    consent: Consent
    reason: str
    decided_by: str
    decided_at: str


def decide_consent(
    database: Database,
    tenant: str,
    kind: DecisionKind,
    subject: str,
    consent: Consent,
    *,
    reason: str,
    by: str,
) -> ConsentDecision:
    """Decide from now on. The audit names the subject by a digest."""
    row = {"tenant": tenant, "kind": kind, "subject": subject, "consent": consent}
    row |= {"reason": reason, "decided_by": by}
    with database.write() as connection:
        decided_at = clock_us(connection)
        insert = sa.insert(consent_decision).values(**row, decided_at=decided_at)
        id_ = connection.execute(insert.returning(consent_decision.c.id)).scalar_one()
        facts = {"kind": kind, "consent": consent}
        digest = person_digest(tenant, kind, subject)
        append(connection, Deed(tenant, by, "consent", digest, facts))
    at = time_text(decided_at)
    return ConsentDecision(id_, tenant, kind, subject, consent, reason, by, at)


def list_decisions(database: Database, tenant: str) -> list[ConsentDecision]:
    """All decisions ever made, the newest last."""
    columns = [consent_decision.c[name] for name in ConsentDecision.__dataclass_fields__]
    query = sa.select(*columns).where(consent_decision.c.tenant == tenant).order_by("id")
    rows = database.rows(query)
    decided = [row._asdict() | {"decided_at": time_text(row.decided_at)} for row in rows]
    return [ConsentDecision(**facts) for facts in decided]


class DecidedSubject(NamedTuple):
    tenant: str
    kind: DecisionKind
    subject: str


def decisions_after(database: Database, number: int) -> tuple[int, set[DecidedSubject]]:
    """The subjects decided on after this decision, and the number of the newest."""
    columns = consent_decision.c
    query = sa.select(columns.id, columns.tenant, columns.kind, columns.subject)
    rows = database.rows(query.where(columns.id > number))
    newest = max((row.id for row in rows), default=number)
    return newest, {DecidedSubject(*row[1:]) for row in rows}


def newest_decision(database: Database) -> int:
    """The number of the newest decision; 0 without any."""
    return database.scalar(sa.select(sa.func.max(consent_decision.c.id))) or 0


# Present consent


def standing_decisions(
    connection: Connection, tenant: str, kind: DecisionKind, subjects: Iterable[str] | None = None
) -> dict[str, str]:
    """The present decisions, by subject: of these subjects or of all."""
    columns = consent_decision.c
    mine = sa.select(sa.func.max(columns.id)).where(columns.tenant == tenant, columns.kind == kind)
    standing: dict[str, str] = {}
    for some in [None] if subjects is None else portions(subjects):
        chosen = mine if some is None else mine.where(columns.subject.in_(some))
        newest = chosen.group_by(columns.subject)
        query = sa.select(columns.subject, columns.consent).where(columns.id.in_(newest))
        standing.update((row.subject, row.consent) for row in connection.execute(query))
    return {subject: consent for subject, consent in standing.items() if consent != CONSENT_UNKNOWN}


class DecidedConsents(msgspec.Struct, frozen=True):
    """Sessions whose consent decisions deny or allow; all others are in neither."""

    #: By session, the most specific kind of decision that denies it.
    denied: Mapping[str, DecisionKind] = msgspec.field(default_factory=dict)
    allowed: Collection[str] = frozenset()


class SessionDecisions:
    def __init__(
        self, lake: Lake, tenant: str, sessions: pa.Table, snap: int | None = None
    ) -> None:
        self._database, self._tenant = lake.database, tenant
        self._labels = _labels_decided(lake.database, tenant)
        self._judged: pa.Table | None = None
        if any(self._labels.values()):
            query = OwnQuery(
                _sql(), frozenset({"events"}), self._labels, tables={"asked": sessions}
            )
            rows = lake.query(query, as_of=snap, tenant=tenant).arrow()
            self._judged = rows.sort_by("session_id").combine_chunks()

    def of(self, sessions: Collection[str]) -> DecidedConsents:
        """Decide a session. One denial of a user or project suffices, and all must allow. Refusals
        by the session itself since the snap count too."""
        rows: list[dict[str, object]] = []
        if self._judged is not None:
            rows = rows_of_sessions(self._judged, sessions).to_pylist()
        return _decided(self._database, self._tenant, sessions, rows)


def rows_of_sessions(rows: pa.Table, sessions: Collection[str]) -> pa.Table:
    """Select the rows of these sessions among rows sorted by session_id."""
    if not sessions:
        return rows.slice(0, 0)
    ids = rows["session_id"]
    low = bisect_left(ids, min(sessions), key=lambda name: name.as_py())
    high = bisect_right(ids, max(sessions), key=lambda name: name.as_py())
    near = rows.slice(low, high - low)
    return near.filter(pc.is_in(near["session_id"], pa.array(sessions, pa.string())))


def decided_consents(
    lake: Lake, tenant: str, sessions: Collection[str], snap: int | None = None
) -> DecidedConsents:
    asked = pa.table({"session_id": pa.array(sessions, pa.string())})
    return SessionDecisions(lake, tenant, asked, snap).of(sessions)


def decided_in(database: Database, tenant: str, events: pa.Table) -> DecidedConsents:
    """Decide sessions whose events are all at hand."""
    asked = events.select(["session_id"]).group_by("session_id").aggregate([])
    labels = _labels_decided(database, tenant)
    rows: list[dict[str, object]] = []
    if any(labels.values()):
        with duckdb.connect(config={"threads": 1}) as connection:
            connection.register("events", events.select(["session_id", "user", "project"]))
            connection.register("asked", asked)
            rows = connection.sql(_sql(), params=labels).to_arrow_table().to_pylist()
    return _decided(database, tenant, asked["session_id"].to_pylist(), rows)


def _labels_decided(database: Database, tenant: str) -> dict[str, object]:
    """Decided users and projects: parameters of decided_sessions.sql."""
    labels: dict[str, object] = {}
    with database.read() as connection:
        for name, kind in _LABELS.items():
            standing = standing_decisions(connection, tenant, kind)
            for how, meant in (("denied", NO_TRAIN), ("willing", TRAIN)):
                labels[f"{name}_{how}"] = [
                    subject for subject, consent in standing.items() if consent == meant
                ]
    return labels


def _decided(
    database: Database,
    tenant: str,
    sessions: Collection[str],
    judged: Iterable[Mapping[str, object]],
) -> DecidedConsents:
    """Decide sessions. `judged` are rows of decided_sessions.sql."""
    with database.read() as connection:
        own = standing_decisions(connection, tenant, SESSION, sessions)
        refused = _refused_since(connection, tenant, sessions)
    denied: dict[str, DecisionKind] = {}
    allowed = {session for session, consent in own.items() if consent == TRAIN}
    rows = list(judged)
    denied |= {str(row["session_id"]): "project" for row in rows if row["project_denies"]}
    denied |= {str(row["session_id"]): "user" for row in rows if row["user_denies"]}
    allowed |= {str(row["session_id"]) for row in rows if row["allows"]}
    refused |= {session for session, consent in own.items() if consent == NO_TRAIN}
    denied |= dict.fromkeys(sorted(refused), SESSION)
    return DecidedConsents(denied, allowed - denied.keys())


def _sql() -> str:
    return files("penstock.access.privacy").joinpath("decided_sessions.sql").read_text("utf-8")


def _refused_since(connection: Connection, tenant: str, sessions: Iterable[str]) -> set[str]:
    """Sessions that ever said `no_train`, also after a snap."""
    refused = (consent_change.c.tenant == tenant, consent_change.c.consent == NO_TRAIN)
    query = sa.select(consent_change.c.session_id).where(*refused)
    found: set[str] = set()
    for some in portions(sessions):
        found.update(connection.scalars(query.where(consent_change.c.session_id.in_(some))))
    return found
