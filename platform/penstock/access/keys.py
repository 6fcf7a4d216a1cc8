"""Keys: who may send, read, serve, train, promote, or do anything. Kept as hashes."""

import hashlib
import re
import secrets
import threading
from dataclasses import dataclass, field
from typing import Literal, get_args

import sqlalchemy as sa

from penstock.access.errors import KeyRefused, RoleMissing
from penstock.access.tables import api_key
from penstock.clock import Clock
from penstock.database.engine import Database, lock_table, now_us
from penstock.errors import InvalidInput
from penstock.events.event import TENANT_DEFAULT, is_tenant

Role = Literal["ingest", "read", "serve", "train", "promote", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)
_SECRET_BYTES = 24
#: A key that nobody knows makes the ring look at the database, but not more often than this.
_LOOK_AGAIN_SECONDS = 1.0
_KEY = re.compile(rf"bearer\s+pk_({'|'.join(ROLES)})_[\w-]{{32}}\s*", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True)
class Grant:
    """What a key allows."""

    tenant: str
    role: Role
    #: Which key it is, as it is listed.
    key: str = field(default="", compare=False)

    def require(self, *roles: Role) -> None:
        """One of them, or admin. Raises RoleMissing."""
        if self.role not in (*roles, "admin"):
            raise RoleMissing(role=" or ".join(roles))


@dataclass(frozen=True)
class Key:
    """A key as it is listed: never the secret."""

    id: str
    tenant: str
    role: Role
    note: str
    created_at: int
    revoked_at: int | None


def create_key(database: Database, role: str, tenant: str, note: str = "") -> tuple[Key, str]:
    """The key and its secret, which is not kept: show it now or never."""
    made = _make_key(database, role, tenant, note)
    assert made is not None
    return made


def create_first_key(database: Database, note: str) -> tuple[Key, str] | None:
    """An admin key where there is no key yet, else None. Of several processes that start at
    once one makes it."""
    return _make_key(database, "admin", TENANT_DEFAULT, note, first=True)


def _make_key(
    database: Database, role: str, tenant: str, note: str, *, first: bool = False
) -> tuple[Key, str] | None:
    if role not in ROLES:
        raise InvalidInput(what=f"The role {role!r}", why=f"it is one of {', '.join(ROLES)}")
    if not is_tenant(tenant):
        raise InvalidInput(
            what=f"The tenant {tenant!r}", why="it is empty, too long or unprintable"
        )
    secret = f"pk_{role}_{secrets.token_urlsafe(_SECRET_BYTES)}"
    row = {"id": secrets.token_hex(4), "sha256": _digest(secret), "tenant": tenant, "role": role}
    with database.write() as connection:
        lock_table(connection, api_key, alone=first)
        if first and connection.scalar(sa.select(sa.exists().select_from(api_key))):
            return None
        made = connection.execute(
            sa.insert(api_key).values(**row, note=note, created_at=now_us()).returning(api_key)
        ).one()
    return _key(made), secret


def list_keys(database: Database) -> list[Key]:
    with database.read() as connection:
        rows = connection.execute(sa.select(api_key).order_by(api_key.c.created_at)).all()
    return [_key(row) for row in rows]


def revoke_key(database: Database, key_id: str) -> None:
    with database.write() as connection:
        revoked = connection.execute(
            sa.update(api_key)
            .where(api_key.c.id == key_id, api_key.c.revoked_at.is_(None))
            .values(revoked_at=now_us())
        )
    if revoked.rowcount == 0:
        raise InvalidInput(
            what=f"The key {key_id!r}", why="there is none, or it is revoked already"
        )


class KeyRing:
    """The keys in force, in memory: a request does not wait for the database, and goes on
    being answered while the database is away."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._grants: dict[str, Grant] = {}
        self._tried_s = self._looked_s = -_LOOK_AGAIN_SECONDS
        self._lock = threading.Lock()

    def refresh(self) -> None:
        """Take over keys that were made and revoked. Raises DatabaseUnreachable."""
        with self._lock:
            self._tried_s = looked_s = self._clock.elapsed_s()
            with self._database.read() as connection:
                rows = connection.execute(
                    sa.select(api_key).where(api_key.c.revoked_at.is_(None))
                ).all()
            self._grants = {row.sha256: Grant(row.tenant, row.role, row.id) for row in rows}
            self._looked_s = looked_s

    def grant(self, authorization: str | None) -> Grant:
        """What the `Authorization` header allows. Raises KeyRefused."""
        scheme, _, secret = (authorization or "").partition(" ")
        digest = _digest(secret.strip()) if scheme.lower() == "bearer" and secret else ""
        found = self._grants.get(digest)
        if found is None:
            raise KeyRefused
        return found

    def looked_since(self, moment_s: float) -> bool:
        """Whether keys that were there at that moment are in the ring."""
        return self._looked_s >= moment_s

    def pause_s(self) -> float:
        """How long to wait with the next refresh for a key that nobody knows."""
        return max(0.0, self._tried_s + _LOOK_AGAIN_SECONDS - self._clock.elapsed_s())


def may_be_key(authorization: str | None) -> bool:
    """Whether it is worth to look for it: it looks like one that was made here."""
    return authorization is not None and _KEY.fullmatch(authorization) is not None


def _digest(secret: str) -> str:
    # The secret is random and long: a plain hash cannot be turned back.
    return hashlib.sha256(secret.encode()).hexdigest()


def _key(row: sa.Row[tuple[object, ...]]) -> Key:
    found = dict(row._mapping)
    del found["sha256"]
    return Key(**found)
