"""Browsers that are signed in: how long, and that the cookie alone says nothing."""

import pytest
import sqlalchemy as sa

from penstock.access.keys import Grant
from penstock.backends.audit.chain import audit_entry
from penstock.backends.database.engine import Database
from penstock.doors.console.sign_in import (
    IDLE_SECONDS_MAX,
    SESSION_SECONDS_MAX,
    BrowserSessions,
    SignInLinks,
    SignInLinkUsed,
    console_session,
)
from tests.support.manual_clock import ManualClock
from tests.support.registry_fixtures import embedded, embedded_url

__all__ = ["embedded", "embedded_url"]

GRANT = Grant("acme", "read", key="k1")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def sessions(embedded: Database, clock: ManualClock) -> BrowserSessions:
    return BrowserSessions(embedded, clock)


def test_a_session_is_found_by_its_token_alone(
    embedded: Database, sessions: BrowserSessions
) -> None:
    token = sessions.open(GRANT)
    found = sessions.find(token)
    assert found is not None
    assert (found.tenant, found.key_id) == ("acme", "k1")
    assert sessions.find(token + "x") is None
    with embedded.read() as connection:
        [stored] = connection.execute(sa.select(console_session.c.token_sha256)).scalars()
    assert token not in stored
    assert sessions.find(stored) is None


def test_a_session_ends_when_nobody_uses_it(sessions: BrowserSessions, clock: ManualClock) -> None:
    token = sessions.open(GRANT)
    for _ in range(2):  # since the last use
        clock.advance(IDLE_SECONDS_MAX - 1)
        assert sessions.find(token) is not None
    clock.advance(IDLE_SECONDS_MAX - 1)
    assert sessions.find(token, is_use=False) is not None  # what a page asks by itself is no use
    clock.advance(1)
    assert sessions.find(token) is None
    clock.advance(-IDLE_SECONDS_MAX)
    assert sessions.find(token) is None  # it is gone


def test_a_session_ends_after_a_week_however_it_is_used(
    sessions: BrowserSessions, clock: ManualClock
) -> None:
    token = sessions.open(GRANT)
    step = IDLE_SECONDS_MAX // 2
    for _ in range(SESSION_SECONDS_MAX // step - 1):
        clock.advance(step)
        assert sessions.find(token) is not None
    clock.advance(step)
    assert sessions.find(token) is None


def test_signing_in_and_out_is_audited(embedded: Database, sessions: BrowserSessions) -> None:
    token = sessions.open(GRANT)
    session = sessions.find(token)
    assert session is not None
    sessions.end(token, session)
    assert sessions.find(token) is None
    with embedded.read() as connection:
        columns = audit_entry.c
        rows = connection.execute(sa.select(columns.actor, columns.action)).all()
    assert [tuple(row) for row in rows] == [("key k1", "sign_in"), ("key k1", "sign_out")]


def test_a_link_signs_in_once_and_not_for_long(clock: ManualClock) -> None:
    links = SignInLinks(clock)
    token = links.make("k1").partition("#")[2]
    assert links.use(token) == "k1"
    with pytest.raises(SignInLinkUsed):
        links.use(token)
    late = links.make("k1").partition("#")[2]
    clock.advance(601)
    with pytest.raises(SignInLinkUsed):
        links.use(late)
