"""Secrets of webhooks are encrypted in the database, with a key that is not in it."""

import stat
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from penstock.backends.database.engine import Database
from penstock.core.lake_keys import KEY_NAME, SEALED_MARK, SecretKeyUnfit, SecretSeal
from penstock.core.settings import Settings
from penstock.registry.channels.tables import webhook
from penstock.registry.channels.webhooks import add_webhook, list_webhooks
from tests.support.channels.watching_watchers import change_times, deliver_now, standing
from tests.support.checkpoint_factory import TENANT
from tests.support.webhook_receiver import Receiver, is_signed

TOKEN = "T0KENinTHEaddress"


def stored(database: Database) -> str:
    with database.read() as connection:
        return repr(connection.execute(sa.select(webhook)).all())


def test_nothing_of_a_secret_is_in_the_database(
    database: Database, settings: Settings, receiver: Receiver
) -> None:
    made, secret = add_webhook(database, settings, TENANT, f"{receiver.url}?token={TOKEN}")
    assert TOKEN not in stored(database)
    assert secret.removeprefix("whsec_") not in stored(database)
    assert stored(database).count(SEALED_MARK) == 2
    change_times(database, 1)
    assert deliver_now(database, settings) == 0
    [got] = receiver.asked
    assert got.path.endswith(TOKEN)
    assert is_signed(secret, got.headers, got.body, now_s=int(got.headers["webhook-timestamp"]))
    [listed] = list_webhooks(database, settings, TENANT)
    assert (listed.id, listed.url) == (made.id, f"{receiver.url}?token={TOKEN}")
    assert TOKEN not in listed.shown + repr(listed)


def test_without_the_key_it_is_said_what_to_do_and_the_webhook_can_be_removed(
    embedded: Database, settings: Settings, receiver: Receiver
) -> None:
    add_webhook(embedded, settings, TENANT, receiver.url)
    change_times(embedded, 1)
    key = settings.data / KEY_NAME
    content = key.read_bytes()
    key.unlink()
    deliver_now(embedded, settings)
    problem = standing(embedded, settings).problem or ""
    assert "there is no such file" in problem
    assert "PENSTOCK_SECRET_KEY_FILE" in problem
    assert not key.exists()
    [listed] = list_webhooks(embedded, settings, TENANT)
    assert "a missing key" in listed.shown
    add_webhook(embedded, settings, TENANT, receiver.url)  # with a new key
    deliver_now(embedded, settings)
    [_, second] = list_webhooks(embedded, settings, TENANT)
    assert (listed.url, second.url) == (None, receiver.url)
    key.write_bytes(content)
    assert list_webhooks(embedded, settings, TENANT)[0].url == receiver.url


def test_several_machines_name_one_key_and_none_makes_its_own(
    embedded: Database, settings: Settings, tmp_path: Path
) -> None:
    shared = tmp_path / "shared.key"
    here = replace(settings, secret_key_file=str(shared))
    with pytest.raises(SecretKeyUnfit, match="there is no such file"):
        add_webhook(embedded, here, TENANT, "https://a.test")
    shared.write_text("c2hvcnQ=\n")
    with pytest.raises(SecretKeyUnfit, match="32 bytes"):
        add_webhook(embedded, here, TENANT, "https://a.test")
    SecretSeal(shared.with_name("other.key")).seal("", "")
    shared.with_name("other.key").rename(shared)
    add_webhook(embedded, here, TENANT, "https://a.test")
    there = Settings(data=tmp_path / "elsewhere", secret_key_file=str(shared))
    assert [hook.url for hook in list_webhooks(embedded, there, TENANT)] == ["https://a.test"]
    assert not (tmp_path / "elsewhere").exists()


@given(st.text(), st.text(max_size=9), st.text(max_size=9))
def test_a_sealed_text_opens_only_where_it_was_made(
    tmp_path_factory: pytest.TempPathFactory, text: str, place: str, other: str
) -> None:
    seal = SecretSeal(tmp_path_factory.getbasetemp() / KEY_NAME)
    sealed = seal.seal(text, place)
    assert sealed != seal.seal(text, place)
    assert seal.open(sealed, place) == text
    if place != other:
        with pytest.raises(SecretKeyUnfit, match="changed in the database"):
            seal.open(sealed, other)


def test_the_key_is_its_owner_s_alone_and_is_made_once(tmp_path: Path) -> None:
    file = tmp_path / "data" / KEY_NAME
    sealed = SecretSeal(file).seal("a", "b")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    SecretSeal(file).seal("c", "d")
    assert SecretSeal(file).open(sealed, "b") == "a"
    assert [path.name for path in file.parent.iterdir()] == [KEY_NAME]
