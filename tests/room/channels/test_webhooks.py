"""Webhooks are told of each change, in order, and who is told of what."""

import time

import pytest

from penstock.backends.database.engine import Database
from penstock.core.errors import InvalidInput
from penstock.core.settings import Settings
from penstock.registry.channels.change import WebhookUnknown
from penstock.registry.channels.webhooks import Webhook, add_webhook, list_webhooks, remove_webhook
from tests.support.channels.watching_watchers import change_times, deliver_now, standing
from tests.support.checkpoint_factory import TENANT, add, promote, release, rollback, set_policy
from tests.support.servers.scripted_server import Answer
from tests.support.webhook_receiver import TAKEN, Receiver, is_signed

# What is sent


def test_each_change_is_told_once_and_in_order(
    database: Database, settings: Settings, receiver: Receiver
) -> None:
    add(database, "one", "two")
    made, secret = add_webhook(database, settings, TENANT, receiver.url)
    promote(database, "one")
    promote(database, "two")
    rollback(database)
    release(database)
    assert deliver_now(database, settings) == 0
    assert deliver_now(database, settings) == 0
    told = [one.document for one in receiver.asked]
    assert [one["action"] for one in told] == ["promote", "promote", "rollback", "release"]
    assert [one["version"] for one in told] == [1, 2, 3, 4]
    assert [one["checkpoint"] for one in told] == ["one", "two", "one", "one"]
    assert told[2] | {"at": ""} == {
        "tenant": TENANT, "channel": "production", "version": 3, "action": "rollback",
        "checkpoint": "one", "digest": told[0]["digest"], "uri": "https://models.test/one",
        "previous": "two", "canary": None, "canary_digest": None, "canary_uri": None,
        "checkpoint_version": 3, "canary_version": None,
        "canary_share": None, "pinned": True, "policy": None, "verdict": None,
        "overridden": False, "actor": "bob", "reason": "it is worse", "at": "",
        "previous_hash": told[1]["hash"], "hash": told[2]["hash"],
    }  # fmt: skip
    for one in receiver.asked:
        assert is_signed(secret, one.headers, one.body, now_s=time.time())
    assert len({one.headers["webhook-id"] for one in receiver.asked}) == 4
    assert standing(database, settings).waiting == 0
    assert made.target.endswith(made.id)


def test_signature_is_as_the_specification_has_it() -> None:
    headers = {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    secret, body = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", b'{"test": 2432232314}'
    assert is_signed(secret, headers, body, now_s=1614265330)


# Who is told of what


def test_a_webhook_is_told_from_its_adding_on(
    database: Database, settings: Settings, receiver: Receiver
) -> None:
    change_times(database, 2)
    add_webhook(database, settings, TENANT, receiver.url)
    set_policy(database)
    change_times(database, 1, "canary")
    assert deliver_now(database, settings) == 0
    assert (receiver.versions(), receiver.versions("canary")) == ([3], [1])


def test_channels_and_tenants_are_kept_apart(
    database: Database, settings: Settings, receiver: Receiver
) -> None:
    add_webhook(database, settings, TENANT, f"{receiver.url}/one", "production")
    add_webhook(database, settings, "bolt", f"{receiver.url}/theirs")
    change_times(database, 1)
    change_times(database, 1, "canary")
    assert deliver_now(database, settings) == 0
    assert [(one.path, one.document["channel"]) for one in receiver.asked] == [
        ("/hook/one", "production")
    ]
    assert [one.tenant for one in list_webhooks(database, settings, "bolt")] == ["bolt"]


def test_a_removed_webhook_is_told_nothing_more(
    database: Database, settings: Settings, receiver: Receiver
) -> None:
    made, _ = add_webhook(database, settings, TENANT, receiver.url)
    change_times(database, 2)
    with pytest.raises(WebhookUnknown):
        remove_webhook(database, "bolt", made.id)

    def remove(_got: object) -> Answer:
        remove_webhook(database, TENANT, made.id)
        return TAKEN

    receiver.script = remove
    assert deliver_now(database, settings) == 0
    assert receiver.versions() == [1]
    assert list_webhooks(database, settings, TENANT) == []
    with pytest.raises(WebhookUnknown):
        remove_webhook(database, TENANT, made.id)


@pytest.mark.parametrize(
    "url", ["", "fleet", "ftp://fleet/", "http://", "http://fleet:port/", "https://fleet/ä"]
)
def test_what_is_no_address_is_refused(url: str, embedded: Database, settings: Settings) -> None:
    with pytest.raises(InvalidInput):
        add_webhook(embedded, settings, TENANT, url)


def test_secrets_in_an_address_are_not_shown() -> None:
    made = Webhook("1", TENANT, None, "https://me:pass@fleet/hook?token=abc&a=1", 0)
    assert made.shown == "https://me:***@fleet/hook?token=***&a=1"
    assert "abc" not in repr(made)
