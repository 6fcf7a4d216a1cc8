"""The topic is told of each change, by channel and in order, through outages of the broker."""

import sys
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kafka import KafkaConsumer

from penstock.channels.notice_delivery import Deliverer, target_statuses, topic_target
from penstock.channels.settings import ChannelSettings
from penstock.database.engine import Database
from penstock.errors import ExtraMissing, SettingInvalid
from penstock.metrics import Metrics
from penstock.settings import Settings, load_settings
from tests.support.channels.watching_watchers import deliverer, tell_now
from tests.support.checkpoint_factory import TENANT, add, promote, rollback, set_policy
from tests.support.servers.broker import Broker

Record = tuple[str, dict[str, Any]]


def settings_of(url: str, request_s: float = 20) -> Settings:
    limits = {"notice_topic_url": url, "log_request_seconds_max": request_s}
    return load_settings(Path("/nonexistent"), {}, limits)


@pytest.fixture
def topic() -> str:
    return uuid.uuid4().hex


@pytest.fixture
def settings(broker: Broker, topic: str) -> Settings:
    return settings_of(f"kafka://{broker.address}/{topic}")


def records(broker: Broker, topic: str, count: int) -> list[Record]:
    """Key and document of the first so many."""
    consumer = KafkaConsumer(
        topic, bootstrap_servers=broker.address, auto_offset_reset="earliest", group_id=None
    )
    with closing(consumer):
        found: list[Record] = []
        while len(found) < count:
            for some in consumer.poll(timeout_ms=20_000).values():
                found += [(one.key.decode(), msgspec.json.decode(one.value)) for one in some]
    return found


def test_each_change_is_there_by_channel_and_in_order(
    database: Database, broker: Broker, topic: str, settings: Settings
) -> None:
    add(database, "one", "two")
    promote(database, "one")
    set_policy(database, channel="canary")
    promote(database, "two")
    assert tell_now(database, settings) == 0
    rollback(database)
    assert tell_now(database, settings) == 0
    found = records(broker, topic, 4)
    mine = [document for key, document in found if key == f"{TENANT}/production"]
    assert [one["version"] for one in mine] == [1, 2, 3]
    assert [one["checkpoint"] for one in mine] == ["one", "two", "one"]
    assert [key for key, _ in found].count(f"{TENANT}/canary") == 1
    [told] = target_statuses(database, settings, TENANT)
    assert (told.id, told.waiting, told.problem) == ("topic", 0, None)


def test_a_broker_that_is_away_loses_nothing(
    database: Database, broker: Broker, topic: str, settings: Settings
) -> None:
    set_policy(database)
    assert tell_now(database, settings) == 0
    add(database, "one", "two")
    promote(database, "one")
    promote(database, "two")
    impatient = settings_of(settings.room(ChannelSettings).notice_topic_url, request_s=0.5)
    broker.pause()
    try:
        with deliverer(database, impatient) as made:
            assert sum(one.count for one in made.tell_now()) == 2
        [told] = target_statuses(database, impatient, TENANT)
        assert (told.waiting, told.attempts) == (2, 1)
        assert topic in (told.problem or "")
    finally:
        broker.resume()
    assert tell_now(database, settings) == 0
    versions = [document["version"] for _, document in records(broker, topic, 3)]
    assert sorted(set(versions)) == [1, 2, 3]
    assert versions == sorted(versions)


def test_a_deliverer_goes_on_after_a_failure(
    database: Database, broker: Broker, topic: str, settings: Settings
) -> None:
    """With the producer that it has, or with a new one."""
    set_policy(database)
    impatient = settings_of(settings.room(ChannelSettings).notice_topic_url, request_s=2)
    with deliverer(database, impatient) as made:
        broker.pause()
        try:
            assert len(made.tell_now()) == 1
        finally:
            broker.resume()
        made.tell_now()
        promote(database, add(database, "one").name)
        while made.tell_now():
            pass
    versions = [document["version"] for _, document in records(broker, topic, 2)]
    assert versions[0] == 1
    assert versions[-1] == 2


@pytest.mark.parametrize(
    "url", ["local:log", "kafka://", "kafka://host:9092", "kafka://host/topic?nope=1"]
)
def test_what_is_no_topic_is_refused(url: str, database: Database) -> None:
    with pytest.raises(SettingInvalid, match="notice_topic_url"):
        Deliverer(database, settings_of(url), Metrics())


def test_a_missing_extra_is_said(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kafka", None)
    with pytest.raises(ExtraMissing, match=r"penstock\[kafka\]"):
        Deliverer(database, settings_of("kafka://host:9092/topic"), Metrics())


def test_a_topic_is_known_by_its_name() -> None:
    """Other brokers of the same cluster, and another password, are the same topic."""
    first = topic_target(settings_of("kafka://one:9092/changes"))
    assert first == topic_target(settings_of("kafka://a:b@two:9092,three:9092/changes"))
    assert first != topic_target(settings_of("kafka://one:9092/others"))
    assert topic_target(settings_of("")) is None
