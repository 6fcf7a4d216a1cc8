"""A proxy that is killed, and a service that is: what the recorder acknowledged is there."""

import os
import signal
import socket
from contextlib import closing
from functools import partial
from pathlib import Path

from penstock.access.keys import create_key
from penstock.core.settings import load_settings
from penstock.lake.lake import open_or_make
from penstock_jobs.simulator.demo.server import start_server
from tests.support.proxy.conversations import script
from tests.support.recording_proxy import RecordingProxy, ask, recording_proxy
from tests.support.servers.scripted_answers import ScriptedAnswer
from tests.support.servers.scripted_engine import scripted_engine
from tests.support.waiting import eventually

_PATH = "/v1/chat/completions"
_ROUNDS, _CALLS = 3, 5


def _say(proxy: RecordingProxy, session: str) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": session}], "stream": True}
    assert ask(proxy.url, f"/s/{session}{_PATH}", body)[0] == 200


def test_the_next_proxy_sends_what_a_killed_one_left(tmp_path: Path) -> None:
    """The service is away at first, and killed in between; no agent notices."""
    data, spool, told = tmp_path / "data", tmp_path / "spool", set()
    with open_or_make(load_settings(data, environment={})) as made:
        key = create_key(made.database, "admin", "default")[1]
    server = start_server(data)
    port = int(server.url.rpartition(":")[2])
    with scripted_engine("vllm", script) as engine:
        for attempt in range(_ROUNDS):
            if attempt == 1:
                server.kill()
                assert server.process.stdout is not None
                server.process.stdout.close()
            with recording_proxy(engine.url, spool, service=server.url, key=key) as proxy:
                for call in range(_CALLS):
                    _say(proxy, f"s-{attempt}-{call}")
                # On disk, whoever ends now.
                eventually(partial(_is_written, proxy, attempt))
                told |= {f"s-{attempt}-{call}" for call in range(_CALLS)}
            if attempt == 1:
                server = start_server(data, port=port)
        with recording_proxy(engine.url, spool, service=server.url, key=key) as proxy:
            _say(proxy, "last")
            eventually(lambda: not list(spool.rglob("*.gz")) and proxy.status()["events"]["sent"])
    with server.client(key) as client:
        sql = "select session_id, count(*) as n from events where type = 'model_call' group by all"
        rows = client.ask("query", "rows", {"sql": sql})["rows"]
    server.stop()
    assert server.process.stdout is not None
    server.process.stdout.close()
    assert {row["session_id"]: row["n"] for row in rows} == dict.fromkeys([*told, "last"], 1)


def _is_written(proxy: RecordingProxy, attempt: int) -> bool:
    """Each call is a start, a message and an answer; on disk, or with the service."""
    events = proxy.status()["events"]
    own = [e for e in proxy.recorded() if e["session_id"].startswith(f"s-{attempt}-")]
    all_there = len(own) == 3 * _CALLS or events["waiting"] == 0
    return bool(events["recorded"] == 3 * _CALLS and all_there)


def test_what_came_until_a_proxy_is_killed_is_recorded(tmp_path: Path) -> None:
    with scripted_engine("vllm", lambda _: ScriptedAnswer("x" * 50_000, pace_s=0.002)) as engine:
        with recording_proxy(engine.url, tmp_path) as proxy:
            host, port = proxy.url.removeprefix("http://").split(":")
            body = b'{"model": "m", "stream": true, "messages": [{"role": "user", "content": "a"}]}'
            head = f"POST /s/cut{_PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
            with closing(socket.create_connection((host, int(port)), timeout=60)) as client:
                client.sendall(head.encode() + body)
                read = 0
                while read < 100_000:  # more than is gathered before it is handed over
                    read += len(client.recv(65_536))
                proxy.process.kill()
        events = proxy.until("cut", "interrupt")
    kinds = [event["type"] for event in events]
    assert kinds == ["session_start", "user_message", "model_call", "interrupt"]
    tokens = events[2]["payload"]["tokens"]
    assert tokens["completion_ids"] == engine.sampled[-1].ids[: len(tokens["completion_ids"])]
    assert len(tokens["logprobs"]) == len(tokens["completion_ids"]) > 100


def test_the_process_that_records_is_started_again(tmp_path: Path) -> None:
    with scripted_engine("vllm", script) as engine, recording_proxy(engine.url, tmp_path) as proxy:
        _say(proxy, "before")
        proxy.until("before", "model_call")
        [recording] = _children(proxy.process.pid)
        os.kill(recording, signal.SIGKILL)
        eventually(lambda: _children(proxy.process.pid) not in ([recording], []))

        def records_again() -> bool:
            """A call while the process begins may be lost, and is counted; said again it is one."""
            _say(proxy, "after")
            return "model_call" in [event["type"] for event in proxy.recorded("after")]

        eventually(records_again)


def _children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in text.split()]
