"""The fuse alone; then in the running writer, where it must act."""

import json
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.http.client import ServiceClient
from penstock.ingest import partition_writer
from penstock.ingest.errors import RejectedLimitReached
from penstock.ingest.flush import RejectionLimit
from penstock.lake.catalog import current
from penstock_jobs.demo.server import running_server
from tests.support.lakes import body_of, hand_lake, make_event
from tests.support.waiting import eventually

BAD = b'{"type": "user_message"}\n'


def take(limit: RejectionLimit, seen: int, rejected: int) -> None:
    limit.check(seen, rejected, "why")
    limit.add(seen, rejected)


def test_a_few_bad_lines_on_a_quiet_day_stop_nothing() -> None:
    limit = RejectionLimit(0.5, window_lines=100)
    for _ in range(50):
        take(limit, 1, 1)


def test_more_than_the_share_of_the_window_raises_and_names_the_last_reason() -> None:
    limit = RejectionLimit(0.5, window_lines=100)
    take(limit, 50, 50)
    with pytest.raises(RejectedLimitReached, match=r"51 of the last 51 lines") as raised:
        limit.check(1, 1, "why")
    assert "of 50% of 100; the last reason: why." in str(raised.value)


def test_good_lines_push_bad_ones_out_of_the_window() -> None:
    limit = RejectionLimit(0.5, window_lines=100)
    for _ in range(20):
        take(limit, 40, 40)
        take(limit, 100, 0)


def test_a_flush_that_is_tried_again_counts_once() -> None:
    """An outage of the database repeats a flush: that must not look like a bad deploy."""
    limit = RejectionLimit(0.5, window_lines=100)
    for _ in range(1000):
        limit.check(40, 40, "why")
    take(limit, 40, 40)


def test_a_good_flush_never_raises() -> None:
    limit = RejectionLimit(0.5, window_lines=100)
    take(limit, 1000, 60)
    for _ in range(100):
        take(limit, 10, 0)


def test_a_share_of_one_lets_everything_through() -> None:
    limit = RejectionLimit(1.0, window_lines=1)
    for _ in range(100):
        take(limit, 1000, 1000)


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 50)), max_size=60))
def test_raises_exactly_when_the_window_says_so(flushes: list[tuple[int, int]]) -> None:
    limit, window, ratio = RejectionLimit(0.3, 100), 100, 0.3
    committed: list[tuple[int, int]] = []
    for good, bad in flushes:
        recent = [(good + bad, bad)]
        for seen, rejected in reversed(committed):
            if sum(one for one, _ in recent[1:]) >= window:
                break
            recent.append((seen, rejected))
        all_seen, all_bad = (sum(column) for column in zip(*recent, strict=True))
        if bad and all_bad > ratio * max(all_seen, window):
            with pytest.raises(RejectedLimitReached):
                limit.check(good + bad, bad, "")
            return
        take(limit, good + bad, bad)
        committed.append((good + bad, bad))


def test_rejections_are_weighed_against_the_events_of_all_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused lines all go to the first partition; most good ones to the others."""
    monkeypatch.setattr(partition_writer, "REJECTED_WINDOW_LINES", 50)
    with hand_lake(tmp_path, log_partitions=8) as lake:
        writing = lake.writer()
        for number in range(5):
            lake.send([make_event(f"s{i}", number) for i in range(40)])
            lake.send(BAD * 10)
            writing.drain()
        assert sum(lake.stored().values()) == 200


def test_a_stopped_writer_moves_nothing_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_writer, "REJECTED_WINDOW_LINES", 10)
    with hand_lake(tmp_path) as lake:
        lake.store([make_event("s", 1)])
        before = current(lake.lake.database)
        lake.send(BAD * 50)
        lake.send([make_event("s", 2)])
        for _ in range(2):  # starting again does not help by itself
            with pytest.raises(RejectedLimitReached):
                lake.writer().drain()
            assert current(lake.lake.database) == before
        assert lake.rows("select count(*) as n from events") == [{"n": 2}]
    with hand_lake(tmp_path, rejected_ratio_max=1.0) as lake:
        lake.store()
        assert sum(lake.stored().values()) == 2


def test_a_bad_deploy_stops_the_running_writer_until_a_person_raises_the_limit(
    tmp_path: Path,
) -> None:
    settings = {"PENSTOCK_FLUSH_SECONDS_MAX": "0.1", "PENSTOCK_REJECTED_RATIO_MAX": "0.001"}
    with running_server(tmp_path, settings=settings) as server, closing(server.client()) as client:
        key = server.key
        client.send_events(body_of([make_event("good", 1)]))
        answer = client.send_events(BAD * 40)
        assert (answer["accepted"], len(answer["rejected"])) == (0, 40)
        eventually(lambda: client.get("/readyz").status == 503)
        [problem] = client.get("/readyz").json()["problems"]
        assert "The writer stopped: 40 of the last" in problem
        assert "PENSTOCK_REJECTED_RATIO_MAX" in problem
        assert b"penstock_writer_stopped 1.0" in client.get("/metrics").body
        client.send_events(body_of([make_event("good", 2)]))  # acknowledged all the same
        assert count(client) == 2
    settings["PENSTOCK_REJECTED_RATIO_MAX"] = "1"
    with (
        running_server(tmp_path, settings=settings) as server,
        closing(server.client(key)) as client,
    ):
        eventually(lambda: b'events_stored_total{tenant="default"}' in client.get("/metrics").body)
        assert client.get("/readyz").status == 200
        assert count(client) == 2
    with hand_lake(tmp_path) as lake:
        assert sum(lake.stored().values()) == 2


def count(client: ServiceClient) -> int:
    body = json.dumps({"sql": "select count(*) as n from events"}).encode()
    reply = client.post("/v1/query", body, Content_Type="application/json")
    return int(reply.json()["rows"][0]["n"])
