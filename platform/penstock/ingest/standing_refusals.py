"""What a gateway knows of sessions that may not be trained on, where the operator wants none of
them: it refuses their lines in its answer.

The writer decides: it knows every decision, and what stored rows say. So the first line that shows
why a session is refused goes on to it, and the writer keeps that as a decision on the session."""

import threading
from collections.abc import Sequence
from typing import Self

import msgspec
import sqlalchemy as sa

from penstock.clock import Clock
from penstock.database.engine import Database
from penstock.events.event import consent_of
from penstock.events.validation import Rejection, ValidatedLines
from penstock.ingest.refused_events import REASON
from penstock.ingest.settings import REFUSE, IngestSettings
from penstock.privacy.consents import NO_TRAIN
from penstock.privacy.tables import consent_decision
from penstock.privacy.tombstones import PROJECT, SESSION, USER
from penstock.settings import Settings

#: The newest decisions are read, no more of sessions and of the others: those of before are left to
#: the writer.
DECISIONS_MAX = 100_000
#: An erasure deletes decisions; so all are read again once in a while.
_ALL_AGAIN_SECONDS = 60.0


class StandingRefusals:
    """The subjects on whom `no_train` was decided, in memory: `(tenant, kind, subject)`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._denied: set[tuple[str, str, str]] = set()
        self._newest = 0
        self._all_read_s = -_ALL_AGAIN_SECONDS
        self._lock = threading.Lock()

    @classmethod
    def of(cls, database: Database, settings: Settings, clock: Clock) -> Self | None:
        """None where nothing is refused."""
        refuses = settings.room(IngestSettings).no_train == REFUSE
        return cls(database, clock) if refuses else None

    def refresh(self) -> None:
        """Read what was decided since. Raises DatabaseUnreachable."""
        with self._lock:
            now_s = self._clock.elapsed_s()
            again = now_s - self._all_read_s >= _ALL_AGAIN_SECONDS
            columns = consent_decision.c
            names = ("id", "tenant", "kind", "subject", "consent")
            newest_first = (
                sa.select(*(columns[name] for name in names))
                .where(columns.id > (0 if again else self._newest))
                .order_by(columns.id.desc())
                .limit(DECISIONS_MAX)
            )
            with self._database.read() as connection:
                rows = [
                    row
                    for chosen in (columns.kind == SESSION, columns.kind != SESSION)
                    for row in reversed(connection.execute(newest_first.where(chosen)).all())
                ]
            self._newest = max((row.id for row in rows), default=self._newest)
            denied = set() if again else set(self._denied)
            for _, tenant, kind, subject, consent in rows:
                if consent == NO_TRAIN:
                    denied.add((tenant, kind, subject))
                else:
                    denied.discard((tenant, kind, subject))
            self._denied = denied
            if again:
                self._all_read_s = now_s

    def denies(self, tenant: str, kind: str, subject: str | None) -> bool:
        return subject is not None and (tenant, kind, subject) in self._denied


class _EventSubject(msgspec.Struct):
    """What decisions may be about, and what says so."""

    session_id: str
    type: str
    payload: msgspec.Raw
    user: str | None = None
    project: str | None = None


_subject_decoder = msgspec.json.Decoder(_EventSubject)


class RequestRefusals:
    """Refuses lines of one request: of a session as a whole, from the piece of the body on in which
    something shows why."""

    def __init__(self, standing: StandingRefusals, tenant: str) -> None:
        self._standing = standing
        self._tenant = tenant
        self._sessions: set[str] = set()

    def sift(
        self, validated: ValidatedLines, sent: Sequence[bytes], first_line: int
    ) -> tuple[ValidatedLines, list[Rejection]]:
        """The lines with the refused ones among the rejections, without their content; and the
        refused ones that go on all the same, for the writer to refuse and to count. `sent` are the
        lines of which those were validated, as they stand in the body."""
        if not validated.lines:
            return validated, []
        subjects = _subject_decoder.decode_lines(b"\n".join(validated.lines))
        shown: dict[str, int] = {}
        for at, subject in enumerate(subjects):
            if subject.session_id not in self._sessions and self._shows(subject):
                self._sessions.add(subject.session_id)
                if not self._standing.denies(self._tenant, SESSION, subject.session_id):
                    shown[subject.session_id] = at
        refused = [
            at for at, subject in enumerate(subjects) if subject.session_id in self._sessions
        ]
        if not refused:
            return validated, []
        rejected = {rejection.line for rejection in validated.rejections}
        numbers = [
            number
            for number, line in enumerate(sent, first_line)
            if number not in rejected and line.strip()
        ]
        passed = set(shown.values())
        rejections = {
            at: Rejection(numbers[at], REASON, b"", validated.sources[at]) for at in refused
        }
        gone = [rejections[at] for at in refused if at not in passed]
        sifted = _without(validated, set(refused) - passed)
        sifted = sifted._replace(rejections=[*validated.rejections, *gone])
        return sifted, [rejections[at] for at in refused if at in passed]

    def _shows(self, subject: _EventSubject) -> bool:
        denies, tenant = self._standing.denies, self._tenant
        return (
            denies(tenant, USER, subject.user)
            or denies(tenant, PROJECT, subject.project)
            or denies(tenant, SESSION, subject.session_id)
            or (subject.type == "session_start" and consent_of(bytes(subject.payload)) == NO_TRAIN)
        )


def _without(validated: ValidatedLines, positions: set[int]) -> ValidatedLines:
    kept = [at for at in range(len(validated.lines)) if at not in positions]
    missed = set(validated.near_missed)
    return validated._replace(
        lines=[validated.lines[at] for at in kept],
        sessions=[validated.sessions[at] for at in kept],
        sources=[validated.sources[at] for at in kept],
        near_missed=[place for place, at in enumerate(kept) if at in missed],
    )
