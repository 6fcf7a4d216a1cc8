"""Keys, their roles, and the authorization of requests."""

import asyncio
import hashlib
import re
import secrets
import threading
from collections import OrderedDict
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Literal

import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.access import ROLES, Role
from penstock.access.tables import api_key
from penstock.backends.audit.chain import append
from penstock.backends.audit.entry import OPERATOR, Deed, Facts
from penstock.backends.database.engine import Database, clock_us, lock_table, now_us
from penstock.backends.http.address import address_group
from penstock.backends.http.problems import current_request
from penstock.core.clock import SECOND_US, Clock
from penstock.core.errors import InvalidInput, PenstockError
from penstock.core.metrics import Metrics
from penstock.events.event import TENANT_DEFAULT, is_tenant

_SECRET_BYTES = 24
#: The year 9999, the last one of calendars.
_EXPIRES_MAX_US = 253_370_764_800 * SECOND_US
#: The shortest pause between two reads of the database for unknown keys.
_REFRESH_PAUSE_SECONDS = 1.0
_KEY = re.compile(rf"bearer\s+pk_({'|'.join(ROLES)})_[\w-]{{32}}\s*", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True)
class Grant:
    tenant: str
    role: Role
    key: str = field(default="", compare=False)
    #: In microseconds since 1970; None for never.
    expires_at: int | None = field(default=None, compare=False)

    def require(self, *roles: Role) -> None:
        """Accept one of these roles, or admin. Raises RoleMissing."""
        if self.role not in (*roles, "admin"):
            raise RoleMissing(role=" or ".join(roles or ("admin",)))


@dataclass(frozen=True)
class Key:
    """A key without its secret."""

    id: str
    tenant: str
    role: Role
    note: str
    created_at: int
    revoked_at: int | None
    expires_at: int | None


_KEY_COLUMNS = [api_key.c[field.name] for field in fields(Key)]


def create_key(
    database: Database,
    role: str,
    tenant: str,
    note: str = "",
    expires_at: int | None = None,
    *,
    maker_expires_at: int | None = None,
    by: str = OPERATOR,
) -> tuple[Key, str]:
    """Create a key that expires no later than its maker. Only its hash is stored, so show it
    now."""
    if role not in ROLES:
        raise InvalidInput(what=f"The role {role!r}", why=f"it must be one of {', '.join(ROLES)}")
    if not is_tenant(tenant):
        why = "it is empty, too long or unprintable"
        raise InvalidInput(what=f"The tenant {tenant!r}", why=why)
    if expires_at is not None and not 0 <= expires_at < _EXPIRES_MAX_US:
        what = "The time at which the key expires"
        raise InvalidInput(
            what=what, why="it must be in microseconds since 1970, up to the year 9999"
        )
    _refuse_outliving(expires_at, maker_expires_at)
    with database.write() as connection:
        lock_table(connection, api_key, alone=False)
        terms = role, tenant, note, expires_at
        key, secret = _insert(connection, *terms, by=by)
        if expires_at is not None and expires_at <= key.created_at:
            raise InvalidInput(what="The time at which the key expires", why="it has passed")
    return key, secret


def _refuse_outliving(expires_at: int | None, maker_expires_at: int | None) -> None:
    if maker_expires_at is not None and (expires_at is None or expires_at > maker_expires_at):
        end = datetime.fromtimestamp(maker_expires_at / 1_000_000, UTC)
        why = f"the key that creates it expires at {end:%Y-%m-%d %H:%M} UTC"
        raise InvalidInput(what="A key that outlives its maker", why=why)


def create_first_key(database: Database, note: str) -> tuple[Key, str] | None:
    """Create an admin key if there is no key. Only one of several starting processes does."""
    with database.write() as connection:
        lock_table(connection, api_key, alone=True)
        if connection.scalar(sa.select(sa.exists().select_from(api_key))):
            return None
        return _insert(connection, "admin", TENANT_DEFAULT, note)


def _insert(
    connection: Connection,
    role: str,
    tenant: str,
    note: str,
    expires_at: int | None = None,
    *,
    by: str = OPERATOR,
) -> tuple[Key, str]:
    secret = f"pk_{role}_{secrets.token_urlsafe(_SECRET_BYTES)}"
    row = {"id": secrets.token_hex(4), "sha256": _digest(secret), "tenant": tenant, "role": role}
    times = {"created_at": now_us(), "expires_at": expires_at}
    insert = sa.insert(api_key).values(**row, note=note, **times)
    key = Key(*connection.execute(insert.returning(*_KEY_COLUMNS)).one())
    facts = {"role": role, "expires_at": expires_at}
    append(connection, Deed(tenant, by, "key", f"key {key.id}", facts))
    return key, secret


def list_keys(database: Database, tenant: str | None = None) -> list[Key]:
    """List all keys, or a tenant's."""
    query = sa.select(*_KEY_COLUMNS).order_by(api_key.c.created_at)
    if tenant is not None:
        query = query.where(api_key.c.tenant == tenant)
    return [Key(*row) for row in database.rows(query)]


def revoke_key(
    database: Database, key_id: str, tenant: str | None = None, *, by: str = OPERATOR
) -> None:
    """Revoke a key of any tenant, or of this one. Raises InvalidInput."""
    valid = sa.update(api_key).where(api_key.c.id == key_id, api_key.c.revoked_at.is_(None))
    if tenant is not None:
        valid = valid.where(api_key.c.tenant == tenant)
    with database.write() as connection:
        revoked = valid.values(revoked_at=now_us()).returning(api_key.c.tenant)
        owner = connection.scalar(revoked)
        if owner is None:
            why = "it does not exist or is already revoked"
            raise InvalidInput(what=f"The key {key_id!r}", why=why)
        append(connection, Deed(owner, by, "revoke", f"key {key_id}"))


def rotate_key(
    database: Database,
    key_id: str,
    old_until: int,
    tenant: str | None = None,
    *,
    maker_expires_at: int | None = None,
    by: str = OPERATOR,
) -> tuple[Key, str]:
    """Create a key with the same terms and lifetime; the old one works at most until `old_until`,
    in microseconds since 1970."""
    valid = [api_key.c.id == key_id, api_key.c.revoked_at.is_(None)]
    if tenant is not None:
        valid.append(api_key.c.tenant == tenant)
    with database.write() as connection:
        query = sa.select(*_KEY_COLUMNS).where(*valid).with_for_update()
        row, now = connection.execute(query).first(), clock_us(connection)
        old = Key(*row) if row is not None else None
        if old is None or (old.expires_at is not None and old.expires_at <= now):
            why = "it does not exist, was revoked or has expired"
            raise InvalidInput(what=f"The key {key_id!r}", why=why)
        if old_until < now:
            raise InvalidInput(what="The time until which the old key works", why="it has passed")
        expires_at = None
        if old.expires_at is not None:
            old_until = min(old_until, old.expires_at)
            expires_at = now + old.expires_at - old.created_at
        _refuse_outliving(expires_at, maker_expires_at)
        terms = old.role, old.tenant, old.note, expires_at
        key, secret = _insert(connection, *terms, by=by)
        ending = sa.update(api_key).where(api_key.c.id == old.id).values(expires_at=old_until)
        connection.execute(ending)
        facts: Facts = {"by_key": key.id, "works_until": old_until}
        append(connection, Deed(old.tenant, by, "rotate", f"key {old.id}", facts))
    return key, secret


class KeyRing:
    """The valid keys in memory, so requests are authorized even without the database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._grants: dict[str, Grant] = {}
        self._grants_by_id: dict[str, Grant] = {}
        self._tried_s = self._refreshed_s = -_REFRESH_PAUSE_SECONDS
        self._lock = threading.Lock()

    def refresh(self) -> None:
        """Read the keys from the database. Raises DatabaseUnreachable."""
        with self._lock:
            self._tried_s = started_s = self._clock.elapsed_s()
            valid = sa.select(api_key).where(api_key.c.revoked_at.is_(None))
            rows = self._database.rows(valid)
            self._grants = {
                row.sha256: Grant(row.tenant, row.role, row.id, row.expires_at) for row in rows
            }
            self._grants_by_id = {grant.key: grant for grant in self._grants.values()}
            self._refreshed_s = started_s

    def grant(self, authorization: str | None) -> Grant:
        """The grant of an `Authorization` header. Raises KeyRefused, KeyExpired."""
        scheme, _, secret = (authorization or "").partition(" ")
        digest = _digest(secret.strip()) if scheme.lower() == "bearer" and secret else ""
        return self._valid(self._grants.get(digest))

    def grant_of_key(self, key_id: str) -> Grant:
        """The present grant of a key that was accepted earlier. Raises KeyRefused, KeyExpired."""
        return self._valid(self._grants_by_id.get(key_id))

    def _valid(self, grant: Grant | None) -> Grant:
        if grant is None:
            raise KeyRefused
        if grant.expires_at is not None and self._clock.now_us() >= grant.expires_at:
            at = datetime.fromtimestamp(grant.expires_at // SECOND_US, UTC).isoformat()
            raise KeyExpired(key=grant.key, at=at)
        return grant

    def refreshed_since(self, moment_s: float) -> bool:
        """Whether the keys were read after that moment."""
        return self._refreshed_s >= moment_s

    def pause_s(self) -> float:
        """The pause before the next read for an unknown key."""
        return max(0.0, self._tried_s + _REFRESH_PAUSE_SECONDS - self._clock.elapsed_s())


def may_be_key(authorization: str | None) -> bool:
    """Whether a text has the form of a key, so that a refresh may find it."""
    return authorization is not None and _KEY.fullmatch(authorization) is not None


class Authorizer:
    def __init__(self, keys: KeyRing, clock: Clock, metrics: Metrics | None = None) -> None:
        self.keys = keys
        self._clock = clock
        self._failed = FailedKeys(clock, metrics)
        self._refreshing = asyncio.Lock()

    async def authorize(self, authorization: str | None, *roles: Role) -> Grant:
        """The grant of a key with one of the roles. Raises KeyRefused, KeyExpired, TooManyBadKeys,
        RoleMissing."""
        request = current_request()
        address = request.address if request is not None else None
        try:
            grant = await self._grant(authorization, address)
        except KeyRefused:
            self._failed.count(address, "unknown" if authorization else "missing")
            raise
        except KeyExpired:
            self._failed.count(address, "expired")
            raise
        if request is not None:
            request.key, request.tenant = grant.key, grant.tenant
        grant.require(*roles)
        return grant

    async def _grant(self, authorization: str | None, address: str | None) -> Grant:
        try:
            return self.keys.grant(authorization)
        except KeyRefused:
            if not authorization:
                raise
            self._failed.refuse_guesser(address)
            if not may_be_key(authorization):
                raise
        await self._refresh()
        return self.keys.grant(authorization)

    async def grant_of_key(self, key_id: str) -> Grant:
        """The present grant of a key that was accepted earlier. Raises KeyRefused, KeyExpired."""
        try:
            grant = self.keys.grant_of_key(key_id)
        except KeyRefused:
            await self._refresh()
            grant = self.keys.grant_of_key(key_id)
        if (request := current_request()) is not None:
            request.key, request.tenant = grant.key, grant.tenant
        return grant

    async def _refresh(self) -> None:
        """Read the database once for all waiting requests, so guessing keys is slow and cheap."""
        began_s = self._clock.elapsed_s()
        async with self._refreshing:
            if not self.keys.refreshed_since(began_s):
                await asyncio.sleep(self.keys.pause_s())
                await asyncio.to_thread(self.keys.refresh)


def _digest(secret: str) -> str:
    # The secret is long and random, so a plain hash is safe.
    return hashlib.sha256(secret.encode()).hexdigest()


Reason = Literal["missing", "unknown", "expired", "limited"]

#: Failures per address and minute; more are refused unread, to spare the database and the log.
#: Valid keys still work from there: clients behind one balancer do not lock each other out.
_FAILURES_MAX = 30
_WINDOW_SECONDS = 60.0
#: Beyond this the address whose last failure is oldest is forgotten.
_ADDRESSES_MAX = 4096


class FailedKeys:
    """The failed keys of one process, within its event loop."""

    def __init__(self, clock: Clock, metrics: Metrics | None = None) -> None:
        self._clock = clock
        self._metrics = metrics
        #: By address: the start of its window, and the failures in it.
        self._windows: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._windows)

    def refuse_guesser(self, address: str | None) -> None:
        began_s, failures = self._windows.get(_place(address), (0.0, 0))
        left_s = began_s + _WINDOW_SECONDS - self._clock.elapsed_s()
        if failures >= _FAILURES_MAX and left_s > 0:
            self._add("limited")
            raise TooManyBadKeys(failures=failures, retry_after_s=int(left_s) + 1)

    def count(self, address: str | None, reason: Reason) -> None:
        self._add(reason)
        if reason != "unknown":  # no failures yet
            return
        place, now_s = _place(address), self._clock.elapsed_s()
        began_s, failures = self._windows.pop(place, (now_s, 0))
        if now_s >= began_s + _WINDOW_SECONDS:
            began_s, failures = now_s, 0
        self._windows[place] = (began_s, failures + 1)
        if len(self._windows) > _ADDRESSES_MAX:
            self._windows.popitem(last=False)

    def _add(self, reason: Reason) -> None:
        if self._metrics is not None:
            self._metrics.add("keys_refused_total", reason=reason)


def _place(address: str | None) -> str:
    return address_group(address) if address else ""


class KeyRefused(PenstockError, http_status=401, http_headers={"WWW-Authenticate": "Bearer"}):
    """The request has no known key. Send `Authorization: Bearer <key>`; `penstock keys create`
    makes one."""


class KeyExpired(PenstockError, http_status=401, http_headers={"WWW-Authenticate": "Bearer"}):
    """The key {key} expired at {at}. Create another one with `penstock keys create`."""


class TooManyBadKeys(PenstockError, http_status=429):
    """This address sent {failures} unknown keys within a minute, so the request was not processed.
    Correct the key and retry in {retry_after_s} s; `penstock keys list` shows all keys."""

    def __init__(self, *, failures: int, retry_after_s: int) -> None:
        super().__init__(failures=failures, retry_after_s=retry_after_s)
        self.http_headers = {"Retry-After": str(retry_after_s)}


class RoleMissing(PenstockError, http_status=403):
    """The key is valid, but this needs the role {role}."""
