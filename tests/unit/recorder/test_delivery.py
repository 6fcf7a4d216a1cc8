"""What follows from the service's answers."""

import pytest

from penstock.ingest.recorder.spool import Reply, SendOutcome, outcome, pause_seconds


@pytest.mark.parametrize(
    ("expected", "statuses"),
    [
        (SendOutcome.TAKEN, [200]),
        (SendOutcome.TOO_LARGE, [413]),
        (SendOutcome.REFUSED, [400, 422]),
        (SendOutcome.LATER, [0, 429, 500, 503, 507]),
        (SendOutcome.UNUSABLE, [301, 401, 403, 404]),
    ],
)
def test_each_status_has_an_outcome(expected: SendOutcome, statuses: list[int]) -> None:
    assert {outcome(Reply(status)) for status in statuses} == {expected}


def test_pauses_grow_to_a_minute_and_are_spread() -> None:
    shortest = [pause_seconds(attempts, Reply(0), 0.0) for attempts in range(12)]
    longest = [pause_seconds(attempts, Reply(0), 1.0) for attempts in range(12)]
    assert shortest[:3] == [0.25, 0.5, 1.0]
    assert longest[:3] == [0.5, 1.0, 2.0]
    assert longest[-1] == 60.0
    assert shortest[-1] == 30.0


def test_a_service_that_asks_for_a_pause_gets_it_but_not_for_ever() -> None:
    assert pause_seconds(0, Reply(429, retry_after_s=7), 0.0) == 7
    assert pause_seconds(0, Reply(429, retry_after_s=8), 1.0) == 10
    assert pause_seconds(9, Reply(503, retry_after_s=1e9), 0.0) == 300
