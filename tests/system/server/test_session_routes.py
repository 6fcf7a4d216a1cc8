"""GET /v1/sessions and /v1/sessions/{id} of a real server: pages, filters, tenants, refusals."""

import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest

from penstock.backends.http.client import HttpAnswer
from penstock_jobs.rewards.definition import find_definition
from tests.support.lakes import hand_lake
from tests.support.reward_events import DAY_US
from tests.support.reward_runs import run_at, store_samples

SLASHED = "shop/web 7/ü"


@pytest.fixture(scope="module")
def service(start: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    data = tmp_path_factory.mktemp("sessions")
    with hand_lake(data) as lake:
        store_samples(lake, "acme")
        run_at(lake, DAY_US / 1_000_000, find_definition())
    with start(data=data) as running:
        event: dict[str, Any] = {"ts": "2026-11-21T10:00:00Z", "type": "user_message"}
        event |= {"payload": {"text": "theirs"}}
        theirs = [event | {"session_id": "sample-kept"}, event | {"session_id": SLASHED}]
        running.post("/v1/events", "\n".join(map(json.dumps, theirs)).encode(), "bolt")
        yield running


def get(service: Any, path: str, key: str = "read") -> HttpAnswer:
    with service.client(key) as client:
        answer: HttpAnswer = client.get(f"/v1/sessions{path}")
    return answer


def document(service: Any, path: str, key: str = "read") -> Any:
    answer = get(service, path, key)
    assert answer.status == 200, answer.body
    assert answer.headers["content-type"] == "application/json"
    return answer.json()


def test_a_session_comes_with_its_events_its_rewards_and_why_it_is_worth_that(service: Any) -> None:
    record = document(service, "/sample-reverted?limit=4")
    assert record["session"]["user"]
    # The edit was taken back, and the user said so.
    assert record["explanation"]["value"] == pytest.approx(-0.959, abs=0.001)
    assert {row["name"] for row in record["rewards"]} > {"work_left", "reward"}
    assert record["rewards_cut_off"] is False
    events = record["events"]
    assert len(events) == 4
    while record["next"]:
        record = document(service, f"/sample-reverted?limit=4&cursor={record['next']}")
        assert (record["session"], record["rewards"]) == (None, [])
        events += record["events"]
    [edit] = [event for event in events if event["type"] == "edit"]
    assert edit["payload"]["path"] == "web/load.ts"
    count = "select count(*) as n from events where session_id = 'sample-reverted'"
    assert service.query(count) == [{"n": len(events)}]


def test_an_id_may_hold_slashes(service: Any) -> None:
    record = document(service, f"/{quote(SLASHED)}", "bolt")
    assert record["session"]["session_id"] == SLASHED


@pytest.mark.parametrize(
    ("path", "status", "detail"),
    [
        ("/nobody", 404, "No segment holds the session 'nobody'"),
        ("?limit=0", 400, "limit"),
        ("?limit=1001", 400, "limit"),
        ("?outcome=good", 400, "outcome"),
        ("?since=yesterday", 400, "neither a time nor an age"),
        ("?since=99999999999w", 400, "no calendar reaches so far"),
        ("?cursor=x", 400, "none that an answer gave"),
        ("?cursor=WzEsMixbXV0", 400, "none that an answer gave"),
        ("/sample-kept?cursor=WzFd", 400, "none that an answer gave"),
        ("?definition=mine", 400, "it has not run"),
        ("?project=%00", 200, ""),
    ],
)
def test_what_is_refused_is_said(service: Any, path: str, status: int, detail: str) -> None:
    answer = get(service, path)
    assert answer.status == status, answer.body
    if status != 200:
        assert answer.headers["content-type"] == "application/problem+json"
        assert detail in answer.json()["detail"]
