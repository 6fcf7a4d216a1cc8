"""Whoever watches a channel over HTTP hears of each change, and waits no longer than asked."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from penstock.backends.database.engine import Database
from penstock.core.settings import Settings, load_settings
from penstock.doors.cli import main
from penstock.registry.channels.webhooks import add_webhook, remove_webhook
from tests.support.checkpoint_factory import add, promote, rollback
from tests.support.server.registering import Registry, problem
from tests.support.waiting import eventually
from tests.support.webhook_receiver import receiving


def test_what_is_known_already_is_304(registry: Registry) -> None:
    registry.add("e-one", "e-two")
    registry.promote("tagged", "e-one")
    tag = registry.get("/v1/channels/tagged").headers["etag"]
    for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        same = registry.get("/v1/channels/tagged", If_None_Match=known)
        assert (same.status, same.body, same.headers["etag"]) == (304, b"", tag)
    assert registry.get("/v1/channels/tagged", If_None_Match='"other"').status == 200
    waited = registry.get("/v1/channels/tagged?after=1&wait=0.05", If_None_Match=tag)
    assert waited.status == 304
    registry.promote("tagged", "e-two")
    changed = registry.get("/v1/channels/tagged", If_None_Match=tag)
    assert (changed.status, changed.json()["checkpoint"]) == (200, "e-two")
    assert registry.get("/v1/channels/tagged?after=1", If_None_Match=tag).status == 200


def test_waiting_ends_with_a_change(registry: Registry) -> None:
    registry.add("w-one", "w-two")
    registry.promote("waited", "w-one")
    with ThreadPoolExecutor(10) as threads:
        path = "/v1/channels/waited?after=1&wait=30"
        asked = [threads.submit(registry.get, path) for _ in range(10)]
        eventually(lambda: registry.waiting() == 10)
        registry.promote("waited", "w-two")
        for one in asked:
            answer = one.result().json()
            assert (answer["version"], answer["checkpoint"], answer["next"]) == (2, "w-two", 2)
            [change] = answer["changes"]
            assert (change["action"], change["version"]) == ("promote", 2)
    assert registry.waiting() == 0


def test_each_change_is_in_the_answer(registry: Registry) -> None:
    registry.add("m-one", "m-two")
    registry.promote("missed", "m-one")
    registry.promote("missed", "m-two")
    rollback(registry.database, tenant="acme", channel="missed")
    answer = registry.get("/v1/channels/missed?after=1&wait=30").json()
    assert [one["action"] for one in answer["changes"]] == ["promote", "rollback"]
    assert (answer["version"], answer["next"]) == (3, 3)


def test_waiting_ends_in_time_without_a_change(registry: Registry) -> None:
    registry.add("t-one")
    registry.promote("still", "t-one")
    answer = registry.get("/v1/channels/still?after=1&wait=0.05").json()
    assert (answer["version"], answer["changes"], answer["next"]) == (1, [], 1)
    for query in ("wait=3", "after=-1", "after=9223372036854775808", "after=1&wait=nan"):
        problem(registry.get(f"/v1/channels/any?{query}"), 400)


def test_waiters_are_bounded_and_those_who_left_are_forgotten(registry: Registry) -> None:
    registry.add("b-one")
    registry.promote("bounded", "b-one")
    clients = [registry.service.client(registry.keys["read"]) for _ in range(60)]
    try:
        for one in clients:
            one._http._connection.request(
                "GET", "/v1/channels/bounded?after=1&wait=30", None, one._headers
            )
        eventually(lambda: registry.waiting() == 60)
        refused = registry.get("/v1/channels/bounded?after=1&wait=30")
        assert "60 of its requests wait" in problem(refused, 429)["detail"]
        assert int(refused.headers["retry-after"]) >= 1
        assert registry.get("/v1/channels/bounded").status == 200
    finally:
        for one in clients:
            one.close()
    eventually(lambda: registry.waiting() == 0)


def test_a_server_that_stops_answers_its_waiters(start: Callable[..., Any]) -> None:
    # Long enough that an end which only waits for them would not be in time.
    with start(shutdown_seconds_max=30) as service:
        database = Database.of(load_settings(service.data, {}))
        add(database, "s-one", tenant="acme")
        promote(database, "s-one", tenant="acme")
        database.close()
        with ThreadPoolExecutor(5) as threads:
            path = "/v1/channels/production?after=1&wait=60"
            asked = [threads.submit(lambda: service.client("read").get(path)) for _ in range(5)]
            eventually(lambda: service.metric("channel_waiters") == 5)
            assert service.server.stop() == 0
            for one in asked:
                answer = one.result().json()
                assert (answer["version"], answer["changes"]) == (1, [])


def test_a_server_tells_webhooks(registry: Registry) -> None:
    with receiving() as receiver:
        made, _ = add_webhook(
            registry.database, Settings(data=registry.service.data), "acme", receiver.url, "told"
        )
        registry.add("h-one", "h-two")
        registry.promote("told", "h-one")
        registry.promote("told", "h-two")
        rollback(registry.database, tenant="acme", channel="told")
        eventually(lambda: receiver.versions("told") == [1, 2, 3])
        remove_webhook(registry.database, "acme", made.id)


Watch = Callable[..., tuple[int, str, str]]


@pytest.fixture
def watch(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Watch:
    """Runs `penstock channels watch ARGUMENTS` with a key; exit status, output and messages."""

    def run(key: str, *arguments: str) -> tuple[int, str, str]:
        address = registry.service.server.url
        monkeypatch.setenv("PENSTOCK_KEY", registry.keys.get(key, key))
        command = ["penstock", "channels", "watch", *arguments, "--url", address]
        monkeypatch.setattr("sys.argv", command)
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), *capsys.readouterr()

    return run


def test_watch_over_http(registry: Registry, watch: Watch) -> None:
    registry.add("n-one", "n-two", "n-three")
    registry.promote("followed", "n-one")
    registry.promote("followed", "n-two")
    status, out, _ = watch("read", "followed", "--json", "--changes", "1")
    assert (status, json.loads(out)["checkpoint"]) == (0, "n-two")
    with ThreadPoolExecutor(1) as thread:
        later = thread.submit(_promote_when_somebody_waits, registry, "followed", "n-three")
        _, out, _ = watch("read", "followed", "--json", "--after", "0", "--changes", "3")
        later.result()
    told = [json.loads(line) for line in out.splitlines()]
    assert [one["checkpoint"] for one in told] == ["n-one", "n-two", "n-three"]


def _promote_when_somebody_waits(registry: Registry, channel: str, name: str) -> None:
    eventually(lambda: registry.waiting() == 1)
    registry.promote(channel, name)
