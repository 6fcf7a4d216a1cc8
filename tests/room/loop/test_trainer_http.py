"""What is of trainers by address alone: outages, refusals, jobs that are asked after."""

import socket
from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest

from penstock_jobs.loop.cycles import TrainerFailed, TrainerRefused
from penstock_jobs.loop.trainers import ANSWER_BYTES_MAX, TrainedCheckpoint
from tests.support.loop.trainers import by_address, task
from tests.support.servers.scripted_server import Answer, Hang, Server, one_after_the_other, serving

DIGEST = "sha256:" + "a" * 64
MADE = Answer(200, f'{{"uri": "s3://models/1", "digest": "{DIGEST}"}}')
RUNS = Answer(202, '{"detail": "step 7"}', {"Location": "/jobs/1?try=1"})


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


def train(server: Server, **facts: Any) -> TrainedCheckpoint:
    return by_address(server.url, **facts).train(task(), Event())


def test_a_job_is_asked_after_where_it_said_and_known_by_its_key(server: Server) -> None:
    server.script = one_after_the_other(RUNS, RUNS, MADE)
    assert train(server, token="hush").digest == DIGEST
    asked = [(one.method, one.path) for one in server.asked]
    assert asked == [("POST", "/train"), *[("GET", "/jobs/1?try=1")] * 2]
    assert {one.headers["idempotency-key"] for one in server.asked} == {"mini-0001-abc"}
    assert {one.headers["authorization"] for one in server.asked} == {"Bearer hush"}
    assert server.asked[0].document == task().facts


@pytest.mark.parametrize(
    "outage",
    [
        None,
        Answer(502, "<html>"),
        Answer(503),
        Answer(504),
        Answer(429, headers={"Retry-After": "1000000"}),
        Answer(408),
        Answer(200, MADE.body[:20], missing=50),
        Hang(),
    ],
    ids=["closes", "502", "503", "504", "429", "408", "cut off", "hangs"],
)
@pytest.mark.parametrize("begun", [False, True])
def test_outages_are_outlived(server: Server, outage: Any, begun: bool) -> None:
    before = [RUNS] if begun else []
    server.script = one_after_the_other(*before, outage, outage, MADE)
    quick = {"seconds_max": 1} if isinstance(outage, Hang) else {}
    assert train(server, **quick).digest == DIGEST
    assert server.methods == ["POST", *["GET" if begun else "POST"] * (2 + begun)]


def test_an_outage_that_does_not_end_is_told(server: Server) -> None:
    server.script = one_after_the_other(RUNS, Answer(503, '{"detail": "back soon"}'))
    with pytest.raises(
        TrainerFailed, match=r"jobs/1.* cannot be reached: it answered 503: back soon"
    ):
        train(server, silence_s=0.2)
    assert len(server.asked) > 3
    assert "DELETE" not in server.methods  # it may be at work


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Answer(401, "no token"), "status 401: no token"),
        (Answer(409, '{"title": "Busy"}'), "status 409: Busy"),
        (Answer(422, '{"title": "x", "detail": "unknown parent"}'), "status 422: unknown parent"),
        (Answer(404), "status 404: nothing"),
        (Answer(307, headers={"Location": "/other"}), "status 307: redirects are not followed"),
    ],
)
def test_a_refusal_is_final_and_says_why(server: Server, answer: Answer, why: str) -> None:
    server.script = one_after_the_other(answer)
    with pytest.raises(TrainerRefused, match=why):
        train(server)
    assert server.methods == ["POST"]


@pytest.mark.parametrize("status", [500, 404, 410])
def test_a_job_that_failed_or_is_gone_may_be_begun_again(server: Server, status: int) -> None:
    server.script = one_after_the_other(RUNS, Answer(status, '{"detail": "no memory"}'))
    with pytest.raises(TrainerFailed, match=f"status {status}.*jobs/1.*no memory"):
        train(server)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Answer(201, MADE.body), "its status is 201"),
        (Answer(204), "its status is 204"),
        (Answer(202, headers={"Location": "http://models.test/1"}), "is not at 127.0.0.1"),
        (Answer(202, headers={"Location": "file:///etc/passwd"}), "http://"),
        (Answer(202, headers={"Location": "http://[x/1"}), "Location"),
    ],
)
def test_what_cannot_be_meant_is_no_answer(server: Server, answer: Answer, why: str) -> None:
    server.script = one_after_the_other(answer)
    with pytest.raises(TrainerFailed, match=f"cannot be used: .*{why}"):
        train(server)


def test_an_answer_without_end_is_read_so_far_and_no_further(server: Server) -> None:
    server.script = one_after_the_other(Answer(200, "x" * 50_000_000))
    with pytest.raises(
        TrainerFailed, match=f"cannot be used: .*longer than {ANSWER_BYTES_MAX} bytes"
    ):
        train(server)


def test_pauses_are_those_that_it_asks_for_within_bounds() -> None:
    trainer = by_address("http://gpu-1/", pause_s=10, pause_s_max=300)
    facts = ((0, 0), (7, 0), (9_999, 0), (0, 1), (0, 4))
    assert [trainer.next_pause_s(*one) for one in facts] == [10, 7, 300, 10, 80]
    assert trainer.next_pause_s(0, 9_999) == 300


def test_a_token_that_comes_back_is_not_repeated(server: Server) -> None:
    server.script = lambda asked: Answer(403, f"not with {asked.headers['authorization']}")
    with pytest.raises(TrainerRefused, match=r"not with Bearer \*\*\*") as refused:
        train(server, token="hush-hush")
    assert "hush" not in str(refused.value)
    assert "hush" not in repr(by_address(server.url, token="hush-hush"))


def test_where_clouds_keep_their_keys_is_no_trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "create_connection", None)
    with pytest.raises(TrainerFailed, match=r"169\.254\.169\.254 is not dialled"):
        by_address("http://169.254.169.254/", silence_s=0).train(task(), Event())
