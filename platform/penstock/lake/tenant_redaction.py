"""Redaction of a tenant: modes that differ from the settings, and counts of matches by rule.

Matches are counted where lines are masked, also of lines that are dropped. A killed process loses
the counts of a minute at most. A line that is sent twice counts twice."""

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

import sqlalchemy as sa

from penstock.backends.audit.chain import Tally, append
from penstock.backends.audit.entry import Deed
from penstock.backends.database.engine import Database, clock_us, put_rows
from penstock.core.errors import InvalidInput
from penstock.core.settings import Settings
from penstock.events.event import is_tenant
from penstock.events.redaction import MODES, KindModes, Mode, RedactionSettings, SourceRule
from penstock.lake import RedactionLoosened
from penstock.lake.tables import redaction_count, tenant_redaction

_HOUR_US = 3_600_000_000


@dataclass(frozen=True)
class RedactionCount:
    tenant: str
    source: str
    hour: int
    rule: str
    matches: int


class RedactionTally(Tally):
    """Matches, by tenant, source, hour and rule."""

    def count(self, tenant: str, received_us: int, matches: Mapping[SourceRule, int]) -> None:
        hour = received_us - received_us % _HOUR_US
        for (source, rule), count in matches.items():
            place, beyond = (tenant, source, hour, rule), (tenant, "", hour, rule)
            self.add(place, {"matches": count}, beyond=beyond)

    def store(self, database: Database, counts: Sequence[tuple[Any, Counter[str]]]) -> None:
        names = ("tenant", "source", "hour", "rule")
        rows = [dict(zip(names, place, strict=True)) | matches for place, matches in counts]
        if rows:
            with database.write() as connection:
                put_rows(connection, redaction_count, rows, added=["matches"])


def read_redaction_counts(
    database: Database, tenant: str | None = None, since_us: int = 0
) -> list[RedactionCount]:
    columns = redaction_count.c
    query = sa.select(redaction_count).where(columns.hour > since_us - _HOUR_US)
    if tenant is not None:
        query = query.where(columns.tenant == tenant)
    order = (columns.hour, columns.tenant, columns.source, columns.rule)
    return [RedactionCount(**row._mapping) for row in database.rows(query.order_by(*order))]


# Modes

#: From the mildest on.
STRICTNESS: tuple[Mode, ...] = ("off", "mask", "quarantine", "drop")
_REFRESH_SECONDS = 5.0


@dataclass(frozen=True)
class TenantRedaction:
    """The modes of a tenant; None means the settings."""

    tenant: str
    secrets: Mode | None
    personal: Mode | None
    set_by: str
    set_at: int

    def over(self, modes: KindModes) -> KindModes:
        return KindModes(self.secrets or modes.secrets, self.personal or modes.personal)


class TenantModes:
    """A cache of the modes of tenants. Where they cannot be read, it raises: no line passes."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._settings = settings.room(RedactionSettings).modes
        self._own: dict[str, KindModes] | None = None
        self._read_s = 0.0
        #: Whether `refresh` is called every few seconds, so that lines do not wait for the
        #: database.
        self.is_kept = False
        self._lock = threading.Lock()

    def refresh(self) -> None:
        with self._lock:
            rows = list_redactions(self._database)
            self._own = {row.tenant: row.over(self._settings) for row in rows}
            self._read_s = time.monotonic()

    def of(self, tenant: str) -> KindModes | None:
        """Find a tenant's modes; None means the settings. Raises DatabaseUnreachable."""
        own = self._own
        if own is None or (not self.is_kept and time.monotonic() - self._read_s > _REFRESH_SECONDS):
            self.refresh()
            own = self._own
        assert own is not None
        return own.get(tenant)


def list_redactions(database: Database, tenant: str | None = None) -> list[TenantRedaction]:
    query = sa.select(tenant_redaction).order_by(tenant_redaction.c.tenant)
    if tenant is not None:
        query = query.where(tenant_redaction.c.tenant == tenant)
    return [TenantRedaction(**row._mapping) for row in database.rows(query)]


def set_redaction(
    database: Database,
    settings: Settings,
    tenant: str,
    *,
    secrets: str | None,
    personal: str | None,
    by: str,
    may_loosen: bool,
) -> TenantRedaction:
    """Set a tenant's modes. None leaves one as it is, `default` means the settings. Raises
    InvalidInput, and RedactionLoosened where the caller may not let more through."""
    if not is_tenant(tenant):
        why = "it is empty, too long or unprintable"
        raise InvalidInput(what=f"The tenant {tenant!r}", why=why)
    for mode in (secrets, personal):
        if mode not in {None, "default", *MODES}:
            why = f"it is one of {', '.join(MODES)}, default"
            raise InvalidInput(what=f"The mode {mode!r}", why=why)
    of_settings = settings.room(RedactionSettings).modes
    with database.write() as connection:
        query = sa.select(tenant_redaction).where(tenant_redaction.c.tenant == tenant)
        row = connection.execute(query.with_for_update()).first()
        now = clock_us(connection)
        before = TenantRedaction(tenant, None, None, by, now)
        if row is not None:
            before = TenantRedaction(**row._mapping)
        after = TenantRedaction(
            tenant, _chosen(secrets, before.secrets), _chosen(personal, before.personal), by, now
        )
        if not may_loosen:
            pairs = zip(before.over(of_settings), after.over(of_settings), strict=True)
            for old, new in pairs:
                if STRICTNESS.index(new) < STRICTNESS.index(old):
                    raise RedactionLoosened(mode=new, before=old)
        put_rows(connection, tenant_redaction, [asdict(after)])
        modes = {"secrets": after.secrets, "personal": after.personal}
        facts = {name: mode or "default" for name, mode in modes.items()}
        append(connection, Deed(tenant, by, "redaction", facts=facts))
    return after


def _chosen(mode: str | None, before: Mode | None) -> Mode | None:
    if mode is None:
        return before
    return None if mode == "default" else cast(Mode, mode)
