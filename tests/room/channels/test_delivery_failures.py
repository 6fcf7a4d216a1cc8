"""Webhooks that fail, hang or are away: what they missed waits, and keeps no other waiting."""

import pytest
import sqlalchemy as sa

from penstock.backends.database.engine import Database, now_us
from penstock.core.metrics import Metrics
from penstock.core.settings import Settings
from penstock.registry.channels import notice_delivery
from penstock.registry.channels.notice_delivery import pause_s
from penstock.registry.channels.tables import delivery
from penstock.registry.channels.webhooks import add_webhook
from tests.support.channels.watching_watchers import change_times, deliver_now, deliverer, standing
from tests.support.checkpoint_factory import TENANT
from tests.support.servers.scripted_server import Answer, Hang
from tests.support.waiting import eventually
from tests.support.webhook_receiver import Receiver, answers, receiving

# When it fails


@pytest.mark.parametrize("status", [500, 410])
def test_what_is_not_taken_waits_and_says_why(
    status: int, embedded: Database, settings: Settings, receiver: Receiver
) -> None:
    add_webhook(embedded, settings, TENANT, receiver.url)
    change_times(embedded, 3)
    receiver.script = answers(204, status, status)
    assert deliver_now(embedded, settings) == 2
    found = standing(embedded, settings)
    assert (found.waiting, found.attempts) == (2, 1)
    assert f"it answered {status}" in (found.problem or "")
    assert deliver_now(embedded, settings) == 2
    assert standing(embedded, settings).attempts == 2
    assert deliver_now(embedded, settings) == 0
    assert receiver.versions() == [1, 2, 2, 2, 3]
    assert (standing(embedded, settings).attempts, standing(embedded, settings).problem) == (
        0,
        None,
    )
    tries = [one.headers["webhook-id"] for one in receiver.asked[1:4]]
    assert len(set(tries)) == 1


@pytest.mark.parametrize("hang", [Hang(drip=False), Hang()], ids=["silent", "byte by byte"])
def test_who_hangs_is_given_up_in_time(
    hang: Hang,
    embedded: Database,
    settings: Settings,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    add_webhook(embedded, settings, TENANT, receiver.url)
    change_times(embedded, 1)
    receiver.script = lambda _got: hang
    with monkeypatch.context() as patch:
        patch.setattr(notice_delivery, "WEBHOOK_SECONDS_MAX", 0.3)
        assert deliver_now(embedded, settings) == 1
    assert standing(embedded, settings).problem == "it did not answer within 0.3 s"
    receiver.script = answers()
    assert deliver_now(embedded, settings) == 0
    assert receiver.versions() == [1, 1]


def pause_of(database: Database) -> float:
    """How long the next try is put off, in seconds."""
    with database.read() as connection:
        until, now = connection.execute(sa.select(delivery.c.try_at, now_us())).one()
    return float(until - now) / 1_000_000


@pytest.mark.parametrize(
    ("answer", "least", "most"),
    [
        (Answer(500), 0, 1),
        (Answer(410), 400, 1000),
        (Answer(503, headers={"Retry-After": "700"}), 600, 700),
        (Answer(503, headers={"Retry-After": "99999999"}), 900, 1000),
        (Answer(503, headers={"Retry-After": "Sat, 21 Nov 2026 10:00:00 GMT"}), 0, 1),
    ],
    ids=["500", "410", "asks for a pause", "asks for too much", "asks for a date"],
)
def test_pauses_between_tries(
    answer: Answer,
    least: float,
    most: float,
    *,
    embedded: Database,
    settings: Settings,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    add_webhook(embedded, settings, TENANT, receiver.url)
    change_times(embedded, 1)
    receiver.script = lambda _got: answer
    monkeypatch.setattr(notice_delivery, "PAUSE_SECONDS_MAX", 1000)
    deliver_now(embedded, settings)
    assert least - 60 < pause_of(embedded) <= most


def test_pauses_grow_are_bounded_and_vary() -> None:
    assert [pause_s(tries, 60, 0) for tries in range(1, 9)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert pause_s(10_000, 60, 0) == 60
    assert pause_s(3, 60, 1) == 2
    assert pause_s(1, 60, 0, gone=True) == 60


def test_a_target_that_hangs_keeps_no_other_waiting(
    database: Database, settings: Settings, receiver: Receiver
) -> None:
    with receiving() as hanging:
        hanging.script = lambda _got: Hang(drip=False)
        add_webhook(database, settings, TENANT, hanging.url)
        add_webhook(database, settings, TENANT, receiver.url)
        metrics = Metrics()
        with deliverer(database, settings, metrics) as made:
            made.start()
            change_times(database, 3)
            eventually(lambda: receiver.versions() == [1, 2, 3])
            eventually(lambda: metrics.value("notices_delivered_total") == 3)
            eventually(lambda: hanging.versions() == [1])


def test_metrics_and_warnings_name_who_fails(
    database: Database, settings: Settings, receiver: Receiver
) -> None:
    made, _ = add_webhook(database, settings, TENANT, receiver.url)
    receiver.script = answers(500)
    change_times(database, 2)
    metrics = Metrics()
    with deliverer(database, settings, metrics) as telling:
        telling.deliver_now()
        target = {"target": made.target}
        assert metrics.value("notices_waiting", **target) == 2
        assert metrics.value("notice_target_failing", **target) == 1
        assert metrics.value("notice_failures_total") == 1
        [said] = telling.problems()
        assert said == f"2 changes are undelivered to {made.target}: it answered 500"
        [said] = telling.warnings()
        assert said == f"2 changes are undelivered to {made.target}: see `penstock webhooks list`"
        telling.deliver_now()
        assert metrics.value("notices_waiting", **target) == 0
        assert metrics.value("notice_target_failing", **target) == 0
        assert metrics.value("notices_delivered_total") == 2
        assert telling.problems() == []
