"""The recorder before servers that behave in all ways, and what it never does to its agent."""

import asyncio
import gzip
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.events.event import DROPPED_TYPE, PAYLOADS
from penstock.ingest.recorder import recorder as recording
from penstock.ingest.recorder.recorder import Recorder
from tests.support.servers.scripted_server import (
    Answer,
    Asked,
    Hang,
    Server,
    one_after_the_other,
    serving,
)
from tests.support.waiting import eventually

OK = Answer(200, '{"accepted": 1, "rejected": []}')
_MINUTE = 60.0


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        server.script = lambda _asked: OK
        yield server


@contextmanager
def _recording(server: Server, spool: Path, **options: Any) -> Iterator[Recorder]:
    recorder = Recorder(server.url, "key", spool=spool, mask=False, **options)
    try:
        yield recorder
    finally:
        recorder.close(0.5)


def _events(asked: list[Asked]) -> list[dict[str, Any]]:
    return [json.loads(line) for each in asked for line in gzip.decompress(each.body).splitlines()]


def test_a_session_arrives_as_it_was_told(server: Server, tmp_path: Path) -> None:
    with _recording(server, tmp_path) as recorder:
        session = recorder.session(
            "s-1", checkpoint="c-1", user="u", client="ours", consent="train"
        )
        with session as s:
            s.user_message("the streaming is broken")
            call = s.model_call("I look", tool_calls=[{"id": "t", "name": "read"}], model="m")
            s.tool_result("t", tool="read", ok=True, output="text")
            edit = s.edit("src/app.py", before="a\n", after="b\n", call_id="t")
            s.file_observed("src/app.py", "b\n")
            s.file_observed("src/old.py", deleted=True)
            s.feedback(call, "thumbs", 1)
            s.compaction(trigger="auto")
            s.interrupt(reason="user")
            s.error(message="boom")
            s.test_result(passed=3)
            s.vcs_commit(commit="abc")
            s.event("x_mine", anything=[1])
        assert recorder.flush(_MINUTE)
        counts = recorder.counts()
    assert (counts.recorded, counts.sent, counts.dropped, counts.waiting) == (15, 15, 0, 0)
    sent = _events(server.asked)
    assert {event["type"] for event in sent} == {*PAYLOADS, "x_mine"}
    assert sent[0]["payload"] == {"client": "ours", "consent": "train"}
    assert sent[-1]["payload"] == {"reason": "completed"}
    assert {(e["session_id"], e["checkpoint"], e["user"]) for e in sent} == {("s-1", "c-1", "u")}
    assert [event["ts"] for event in sent] == sorted({event["ts"] for event in sent})
    assert len({event["event_id"] for event in sent}) == 15
    assert next(event for event in sent if event["type"] == "edit")["payload"]["edit_id"] == edit
    assert {asked.headers["authorization"] for asked in server.asked} == {"Bearer key"}
    assert {asked.path for asked in server.asked} == {"/train/v1/events"}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError, "crash"),
        (KeyboardInterrupt, "user_stop"),
        (asyncio.CancelledError, "completed"),
    ],
)
def test_a_session_says_how_it_ended(
    server: Server, tmp_path: Path, error: type[BaseException], reason: str
) -> None:
    with _recording(server, tmp_path) as recorder:
        with pytest.raises(error), recorder.session("s"):
            raise error
        assert recorder.flush(_MINUTE)
    assert _events(server.asked)[-1]["payload"] == {"reason": reason}


@pytest.mark.parametrize(
    ("answers", "logged"),
    [
        ((None, Answer(503), Answer(500), OK), "events wait for the service"),
        ((Answer(401, '{"title": "no key"}'), OK), "401 no key"),
    ],
    ids=["away", "wrong key"],
)
def test_what_a_service_does_not_take_it_gets_later_and_once(
    server: Server,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    answers: tuple[Answer | None, ...],
    logged: str,
) -> None:
    server.script = one_after_the_other(*answers)
    with caplog.at_level(logging.WARNING, "penstock.recorder"), _recording(server, tmp_path) as r:
        r.session("s").user_message("hello")
        assert r.flush(_MINUTE)
        assert r.counts().sent == 1
    assert logged in caplog.text
    bodies = {asked.body for asked in server.asked}
    assert len(bodies) == 1  # the very same events, which the service knows by their identity


def test_a_service_that_asks_for_a_pause_is_not_asked_meanwhile(
    server: Server, tmp_path: Path
) -> None:
    server.script = lambda _asked: Answer(429, "", {"Retry-After": "3600"})
    with _recording(server, tmp_path) as recorder:
        recorder.session("s").user_message("hello")
        assert not recorder.flush(0.3)
        assert not recorder.flush(0.1)
        assert len(server.asked) == 1
        assert recorder.counts().waiting == 1


def test_what_is_not_sent_at_the_end_the_next_recorder_sends(
    server: Server, tmp_path: Path
) -> None:
    server.script = lambda _asked: None
    with _recording(server, tmp_path) as recorder:
        recorder.session("s").user_message("first")
        eventually(lambda: server.asked)
    server.script = lambda _asked: OK
    server.asked.clear()
    with _recording(server, tmp_path) as recorder:
        recorder.session("s").user_message("second")
        assert recorder.flush(_MINUTE)
    assert [event["payload"]["text"] for event in _events(server.asked)] == ["first", "second"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("status", [401, 404, 500])
def test_whoever_flushes_in_vain_does_not_have_it_asked_all_the_time(
    server: Server, tmp_path: Path, status: int
) -> None:
    server.script = lambda _asked: Answer(status)
    with _recording(server, tmp_path) as recorder:
        recorder.session("s").user_message("hello")
        eventually(lambda: server.asked)
        assert not recorder.flush(0.5)
        assert 2 <= len(server.asked) <= 5  # it pauses for a quarter of a second, and then longer


def test_a_batch_that_is_too_large_is_divided_until_it_fits(server: Server, tmp_path: Path) -> None:
    def script(asked: Asked) -> Answer:
        lines = gzip.decompress(asked.body).splitlines()
        return OK if len(lines) == 1 and len(lines[0]) < 5_000 else Answer(413)

    server.script = script
    with _recording(server, tmp_path) as recorder:
        session = recorder.session("s")
        for number in range(5):
            session.user_message(f"{number}")
        session.user_message("x" * 10_000)
        assert not recorder.flush(_MINUTE)  # one was dropped
        eventually(lambda: recorder.counts().dropped == 1)
        session.user_message("after")
        assert recorder.flush(_MINUTE)
        assert recorder.counts().sent == 7
    taken = [asked for asked in server.asked if script(asked) is OK]
    told = [event for event in _events(taken) if event["type"] == DROPPED_TYPE]
    assert [event["payload"] for event in told] == [{"events": 1, "reason": "too_large"}]
    assert {event["session_id"] for event in told} == {"s"}


def test_a_batch_that_is_refused_is_dropped_and_counted(server: Server, tmp_path: Path) -> None:
    server.script = one_after_the_other(Answer(400, '{"detail": "no events"}'), OK)
    with _recording(server, tmp_path) as recorder:
        recorder.session("s").user_message("hello")
        assert not recorder.flush(_MINUTE)
        assert recorder.counts().dropped == 1


def test_full_memory_drops_what_comes_and_says_so(server: Server, tmp_path: Path) -> None:
    with _recording(server, tmp_path, memory_bytes_max=10_000) as recorder:
        recorder.session("big").user_message("x" * 20_000)
        recorder.session("small").user_message("x")
        recorder.flush(_MINUTE)
        counts = recorder.counts()
    assert (counts.recorded, counts.dropped) == (2, 1)
    told = [event for event in _events(server.asked) if event["type"] == DROPPED_TYPE]
    assert [(e["session_id"], e["payload"]["reason"]) for e in told] == [("big", "memory_full")]


def test_a_full_spool_drops_what_comes(server: Server, tmp_path: Path) -> None:
    server.script = lambda _asked: None
    with _recording(server, tmp_path, spool_bytes_max=2_000) as recorder:
        session = recorder.session("s")
        for _ in range(20):
            session.user_message(os.urandom(300).hex())
            recorder.flush(0.05)
        eventually(lambda: recorder.counts().dropped > 0)
        size = sum(path.stat().st_size for path in tmp_path.rglob("*.gz"))
    assert 0 < size <= 2_000


def test_what_json_cannot_say_is_dropped_and_nothing_is_raised(
    server: Server, tmp_path: Path
) -> None:
    deep: list[Any] = []
    for _ in range(10_000):
        deep = [deep]
    with _recording(server, tmp_path) as recorder:
        session = recorder.session("s")
        for value in (object(), float("nan"), {1, 2}, b"bytes", deep):
            session.event("x_odd", value=value)
        session.user_message("\ud800 lone")
        recorder.flush(_MINUTE)
        assert recorder.counts().dropped == 5
        assert recorder.counts().sent >= 1


@pytest.mark.parametrize("url", ["", "nonsense", "ftp://host", "http://", "http://[::1"])
def test_an_address_that_is_none_stops_no_agent(url: str, tmp_path: Path) -> None:
    recorder = Recorder(url, spool=tmp_path, mask=False)
    recorder.session("s").user_message("hello")
    assert not recorder.flush(0.2)
    assert recorder.counts().waiting == 1
    recorder.close(0.2)


def test_a_server_that_never_answers_holds_nobody_up(server: Server, tmp_path: Path) -> None:
    server.script = lambda _asked: Hang(drip=False)
    with _recording(server, tmp_path) as recorder:
        session = recorder.session("s")
        session.user_message("first")
        eventually(lambda: server.asked)
        session.user_message("second")
        assert not recorder.flush(0.05)
        recorder.close(0.05)
        assert recorder.counts().waiting == 2
    kept = [gzip.decompress(path.read_bytes()) for path in sorted(tmp_path.rglob("*.gz"))]
    assert [json.loads(lines)["payload"]["text"] for lines in kept] == ["first", "second"]


def test_threads_and_tasks_record_at_once(server: Server, tmp_path: Path) -> None:
    with _recording(server, tmp_path) as recorder:

        def work(number: int) -> None:
            session = recorder.session(f"thread-{number}")
            for each in range(200):
                session.user_message(str(each))

        async def tasks() -> None:
            await asyncio.gather(*(asyncio.to_thread(work, n) for n in range(4, 6)))
            work(6)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        asyncio.run(tasks())
        for thread in threads:
            thread.join()
        assert recorder.flush(_MINUTE)
    by_session: dict[str, list[int]] = {}
    for event in sorted(_events(server.asked), key=lambda event: event["ts"]):
        by_session.setdefault(event["session_id"], []).append(int(event["payload"]["text"]))
    assert len(by_session) == 7
    assert all(texts == list(range(200)) for texts in by_session.values())


def test_recording_after_the_end_is_dropped(server: Server, tmp_path: Path) -> None:
    recorder = Recorder(server.url, spool=tmp_path, mask=False)
    recorder.close()
    recorder.session("s").user_message("late")
    assert recorder.counts().dropped == 1


_AGENT = """
import os, sys
from penstock.ingest.recorder.recorder import Recorder
recorder = Recorder(sys.argv[1], "key", spool=sys.argv[2], mask=False)
session = recorder.session("s")
"""


def _agent(server: Server, spool: Path, program: str) -> None:
    command = [sys.executable, "-c", _AGENT + program, server.url, str(spool)]
    subprocess.run(command, check=True)


_FORK = """
session.user_message("before")
child = os.fork()
session.user_message("child" if child == 0 else "parent")
if child == 0:
    recorder.close()
    os._exit(0)
os.waitpid(child, 0)
"""
_MULTIPROCESSING = """
import multiprocessing
work = multiprocessing.get_context("fork").Process(target=session.user_message, args=("child",))
work.start(); work.join()
"""


@pytest.mark.parametrize(
    ("program", "texts"),
    [
        ("session.user_message('last words')", ["last words"]),
        (_FORK, ["before", "child", "parent"]),
        (_MULTIPROCESSING, ["child"]),
    ],
    ids=["end", "fork", "multiprocessing"],
)
def test_each_process_sends_what_is_left_at_its_end(
    server: Server, tmp_path: Path, program: str, texts: list[str]
) -> None:
    _agent(server, tmp_path, program)
    assert sorted(event["payload"]["text"] for event in _events(server.asked)) == texts


def test_a_killed_process_leaves_what_the_next_sends(server: Server, tmp_path: Path) -> None:
    server.script = lambda _asked: None
    program = """
import time
session.user_message("hello")
while not list(__import__("pathlib").Path(sys.argv[2]).rglob("*.gz")):
    time.sleep(0.01)
os.kill(os.getpid(), 9)
"""
    with pytest.raises(subprocess.CalledProcessError):
        _agent(server, tmp_path, program)
    server.script = lambda _asked: OK
    server.asked.clear()
    _agent(server, tmp_path, "session.user_message('next'); recorder.flush(60)")
    assert [event["payload"]["text"] for event in _events(server.asked)] == ["hello", "next"]


def test_it_imports_the_standard_library_alone() -> None:
    program = """
import sys
import penstock
penstock.Recorder
print(*{name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names))
print(*(name for name in ("http.client", "ssl", "asyncio", "email") if name in sys.modules))
"""
    done = subprocess.run(
        [sys.executable, "-ISc", program.replace("import penstock\n", _PATH)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    ours, heavy = done.stdout.splitlines()
    assert set(ours.split()) <= {"__main__", "penstock"}
    assert heavy == ""


_PATH = f"sys.path.insert(0, {str(Path(recording.__file__).parents[3])!r})\nimport penstock\n"


def test_the_type_of_what_was_dropped_is_that_of_the_ledger() -> None:
    assert recording.DROPPED_TYPE == DROPPED_TYPE
