"""Keys are made once, kept as hashes, found by their secret, and refused once revoked."""

import json
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from penstock.access import ROLES
from penstock.access.keys import (
    KeyExpired,
    KeyRefused,
    KeyRing,
    RoleMissing,
    create_first_key,
    create_key,
    list_keys,
    may_be_key,
    revoke_key,
    rotate_key,
)
from penstock.backends.database.engine import Database
from penstock.core.clock import SECOND_US, SystemClock
from penstock.core.errors import InvalidInput
from penstock.core.settings import load_settings
from penstock.lake.lake import open_or_make
from tests.support.commands import penstock
from tests.support.manual_clock import ManualClock
from tests.support.servers.interleaving import Stopped, waiting_or_done
from tests.support.servers.postgres import PostgresServer


@pytest.fixture
def database(each_database: None, tmp_path: Path) -> Iterator[Database]:
    with open_or_make(load_settings(tmp_path, environment={})) as lake:
        yield lake.database


def bearer(secret: str) -> str:
    return f"Bearer {secret}"


def test_a_key_allows_its_role_for_its_tenant_and_an_admins_every_role(database: Database) -> None:
    secrets = {role: create_key(database, role, "acme")[1] for role in ROLES}
    ring = KeyRing(database, ManualClock())
    ring.refresh()
    for role, secret in secrets.items():
        assert may_be_key(bearer(secret))
        grant = ring.grant(bearer(secret))
        assert (grant.tenant, grant.role) == ("acme", role)
        for needed in ROLES:
            allowed = role in (needed, "admin")
            with nullcontext() if allowed else pytest.raises(RoleMissing, match=f"role {needed}"):
                grant.require(needed)
    # What cannot be a key is not looked for.
    for header in (None, "", "Bearer pk_admin_short", bearer("pk_root_" + "x" * 32), "\xff"):
        assert not may_be_key(header)


def test_secret_is_nowhere_in_the_lake(database: Database, tmp_path: Path) -> None:
    made, secret = create_key(database, "admin", "acme", "note")
    assert secret not in repr(made) + repr(list_keys(database))
    for file in tmp_path.rglob("*"):
        assert not file.is_file() or secret.encode() not in file.read_bytes()


def test_any_other_header_is_refused(database: Database) -> None:
    _, secret = create_key(database, "admin", "acme")
    ring = KeyRing(database, ManualClock())
    ring.refresh()
    others = [
        "",
        "Bearer",
        "Bearer ",
        "Basic {}",
        "{}",
        "Bearer {}x",
        "Bearer x {}",
        "Bearer\xff{}",
    ]
    for header in (None, *(each.format(secret) for each in others)):
        with pytest.raises(KeyRefused):
            ring.grant(header)


def test_revoked_key_is_refused_after_the_next_refresh(database: Database) -> None:
    made, secret = create_key(database, "read", "acme")
    ring = KeyRing(database, ManualClock())
    ring.refresh()
    revoke_key(database, made.id)
    assert ring.grant(bearer(secret))  # the ring asks the database now and then, not each time
    ring.refresh()
    with pytest.raises(KeyRefused):
        ring.grant(bearer(secret))
    [listed] = list_keys(database)
    assert listed.revoked_at is not None
    with pytest.raises(InvalidInput, match="does not exist or is already revoked"):
        revoke_key(database, made.id)


def test_unknown_keys_make_the_ring_look_but_not_at_every_request(database: Database) -> None:
    clock = ManualClock()
    ring = KeyRing(database, clock)
    assert not ring.refreshed_since(clock.elapsed_s())
    assert ring.pause_s() == 0
    ring.refresh()
    assert ring.refreshed_since(clock.elapsed_s())
    clock.advance(0.25)
    assert not ring.refreshed_since(clock.elapsed_s())
    assert ring.pause_s() == 0.75
    clock.advance(1.0)
    assert ring.pause_s() == 0


def test_of_processes_that_start_at_once_one_makes_the_first_key(
    in_postgresql: None, tmp_path: Path, postgres: PostgresServer
) -> None:
    """SQLite lets only one write at a time anyway."""
    made: list[object] = []
    with open_or_make(load_settings(tmp_path, environment={})) as lake:
        database = lake.database

        def start() -> None:
            made.append(create_first_key(database, "made at the start"))

        first = Stopped(database, "EXISTS", start)
        with waiting_or_done(postgres, start):
            first.finish()
        assert sorted(one is None for one in made) == [False, True]
        assert len(list_keys(database)) == 1


def test_an_expired_key_is_refused_by_that_name(database: Database) -> None:
    clock = ManualClock(SystemClock().now_us() + 3600 * SECOND_US)  # ahead of the database's
    key, secret = create_key(database, "read", "acme", expires_at=clock.now_us() + 90 * SECOND_US)
    ring = KeyRing(database, clock)
    ring.refresh()
    clock.advance(89)
    assert ring.grant(bearer(secret)).key == key.id
    clock.advance(1)
    with pytest.raises(KeyExpired, match=rf"The key {key.id} expired at .*\+00:00") as refused:
        ring.grant(bearer(secret))
    assert refused.value.http_status == 401
    assert [listed.expires_at for listed in list_keys(database)] == [key.expires_at]


def test_the_command_says_until_when_a_key_lives(tmp_path: Path) -> None:
    create = ("keys", "create", "--role", "read", "--data", str(tmp_path))
    made = penstock(*create, "--expires", "90d", "--json")
    assert made.returncode == 0, made.stderr
    expires_at = datetime.fromisoformat(json.loads(made.stdout)["expires_at"])
    assert timedelta(days=89) < expires_at - datetime.now(UTC) <= timedelta(days=90)
    listed = penstock("keys", "list", "--data", str(tmp_path)).stdout
    assert "expires (UTC)" in listed
    assert f"{expires_at:%Y-%m-%d %H:%M}" in listed
    for wrong in ("soon", "2020-01-01", f"{10**12}w"):
        assert penstock(*create, "--expires", wrong).returncode == 2


def test_a_rotated_key_works_until_its_clients_have_the_new_one(database: Database) -> None:
    clock = ManualClock(SystemClock().now_us())
    ring = KeyRing(database, clock)
    old, secret = create_key(database, "read", "acme", "fleet")
    until = clock.now_us() + 3600 * SECOND_US
    new, new_secret = rotate_key(database, old.id, until)
    assert (new.role, new.tenant, new.note, new.expires_at) == ("read", "acme", "fleet", None)
    ring.refresh()
    for valid in (secret, new_secret):
        assert ring.grant(bearer(valid)).tenant == "acme"
    clock.advance(3601)
    with pytest.raises(KeyExpired):
        ring.grant(bearer(secret))
    assert ring.grant(bearer(new_secret)).key == new.id


def test_rotating_a_key_never_makes_it_last_longer(database: Database) -> None:
    now = SystemClock().now_us()
    old, _ = create_key(database, "read", "acme", expires_at=now + 60 * SECOND_US)
    new, _ = rotate_key(database, old.id, now + 3600 * SECOND_US)
    kept = {key.id: key for key in list_keys(database)}
    assert kept[old.id].expires_at == old.expires_at
    assert new.expires_at is not None
    assert old.expires_at is not None
    lengths = new.expires_at - new.created_at, old.expires_at - old.created_at
    assert abs(lengths[0] - lengths[1]) < SECOND_US  # times are the database's


@pytest.mark.parametrize("why", ["stranger", "revoked", "unknown", "past"])
def test_a_key_that_cannot_be_rotated_stays(database: Database, why: str) -> None:
    old, secret = create_key(database, "read", "acme")
    if why == "revoked":
        revoke_key(database, old.id)
    name = "none" if why == "unknown" else old.id
    until = 0 if why == "past" else SystemClock().now_us() + SECOND_US * 60
    with pytest.raises(InvalidInput):
        rotate_key(database, name, until, "bolt" if why == "stranger" else None)
    assert len(list_keys(database)) == 1
    ring = KeyRing(database, ManualClock())
    ring.refresh()
    assert (why == "revoked") or ring.grant(bearer(secret)).key == old.id


@pytest.mark.parametrize(
    ("tenant", "expires_at", "why"),
    [
        ("", None, "tenant"),
        ("a\0b", None, "tenant"),  # it would let it reach into another's sessions
        ("t" * 129, None, "tenant"),
        ("acme", 1, "it has passed"),
        ("acme", -1, "the year 9999"),
        ("acme", 2**62, "the year 9999"),
    ],
)
def test_a_key_that_cannot_be_meant_is_not_made(
    database: Database, tenant: str, expires_at: int | None, why: str
) -> None:
    with pytest.raises(InvalidInput, match=why):
        create_key(database, "read", tenant, expires_at=expires_at)
