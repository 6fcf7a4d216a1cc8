"""Browsers that are signed in. The cookie holds a random token; the database its hash, the key that
it was opened with, and when it was used last. What the key may do is asked of the key each time."""

import hashlib
import secrets
from dataclasses import dataclass

import sqlalchemy as sa

from penstock.access.keys import Grant
from penstock.audit.chain import append
from penstock.audit.entry import Deed
from penstock.clock import SECOND_US, Clock
from penstock.console.tables import console_session
from penstock.database.engine import Database

#: Without a request for so long a session ends: a working day.
IDLE_SECONDS_MAX = 8 * 3600
#: Whatever happens, it ends after a week.
SESSION_SECONDS_MAX = 7 * 24 * 3600
#: The time of the last use is written at most so often.
_USE_NOTED_SECONDS = 60
_TOKEN_BYTES = 32


@dataclass(frozen=True)
class BrowserSession:
    tenant: str
    key_id: str
    created_at: int
    used_at: int
    #: Who signed in by an OpenID provider; None is whoever has the key.
    person: str | None = None

    @property
    def actor(self) -> str:
        return actor_name(self.key_id, self.person)

    def is_over(self, now_us: int) -> bool:
        idle_us, age_us = now_us - self.used_at, now_us - self.created_at
        return idle_us >= IDLE_SECONDS_MAX * SECOND_US or age_us >= SESSION_SECONDS_MAX * SECOND_US

    def is_use_due(self, now_us: int) -> bool:
        """Whether its last use is to be noted anew."""
        return now_us - self.used_at >= _USE_NOTED_SECONDS * SECOND_US


def actor_name(key_id: str, person: str | None) -> str:
    """As the audit and histories have it."""
    return f"{person} (key {key_id})" if person else f"key {key_id}"


class BrowserSessions:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def open(self, grant: Grant, person: str | None = None) -> str:
        """Sign a browser in; what its cookie is to hold."""
        token, now_us = secrets.token_urlsafe(_TOKEN_BYTES), self._clock.now_us()
        row = {"token_sha256": _digest(token), "tenant": grant.tenant, "key_id": grant.key}
        row |= {"person": person} if person else {}
        over = now_us - SESSION_SECONDS_MAX * SECOND_US
        deed = Deed(tenant=grant.tenant, actor=actor_name(grant.key, person), action="sign_in")
        with self._database.write() as connection:
            old = sa.delete(console_session).where(console_session.c.created_at < over)
            connection.execute(old)
            connection.execute(
                sa.insert(console_session).values(**row, created_at=now_us, used_at=now_us)
            )
            append(connection, deed)
        return token

    def find(self, token: str, *, is_use: bool = True) -> BrowserSession | None:
        """None where there is none, or it is over. What a page asks by itself is no use of it."""
        own = console_session.c.token_sha256 == _digest(token)
        columns = console_session.c
        query = sa.select(
            columns.tenant, columns.key_id, columns.created_at, columns.used_at, columns.person
        )
        with self._database.read() as connection:
            row = connection.execute(query.where(own)).first()
        if row is None:
            return None
        session, now_us = BrowserSession(*row), self._clock.now_us()
        if session.is_over(now_us):
            self._remove(token)
            return None
        if is_use and session.is_use_due(now_us):
            with self._database.write() as connection:
                connection.execute(sa.update(console_session).where(own).values(used_at=now_us))
        return session

    def end(self, token: str, session: BrowserSession) -> None:
        """Sign it out."""
        deed = Deed(tenant=session.tenant, actor=session.actor, action="sign_out")
        self._remove(token, deed)

    def _remove(self, token: str, *deeds: Deed) -> None:
        own = console_session.c.token_sha256 == _digest(token)
        with self._database.write() as connection:
            connection.execute(sa.delete(console_session).where(own))
            append(connection, *deeds)


def _digest(token: str) -> str:
    # The token is random and long: a plain hash cannot be turned back.
    return hashlib.sha256(token.encode()).hexdigest()
