"""How long the pages of the console take over a large lake with rewards, and a long session."""

import argparse
import http.client
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlencode

from bench.figures import Figure, Goal, show
from bench.ingest_run import admin_key
from bench.large_lake import large_lake
from bench.measure import percentile, tree_cpu_s
from bench.measurement import Measurement, Size
from bench.servers import quiet_server
from penstock.backends.execution.calls import InlineExecutor
from penstock.backends.terminal.output import say
from penstock.doors.console.page import assets
from penstock.doors.console.sign_in import form_proof
from penstock_jobs.benchmarks.mine.proposals import Proposal, add_proposal
from penstock_jobs.rewards.definition import find_definition
from penstock_jobs.rewards.runs import RunRequest, run
from penstock_jobs.simulator.demo.server import Server

_EVENTS = 1_000_000
_PAGE = Goal(what="p95 of a page", at_most=300, unit=" ms")
_FIRST_CONTENT = Goal(what="p95 to the first content of a session", at_most=1_000, unit=" ms")
_ASSETS = Goal(what="all script and style", at_most=300, unit=" KB")
_VISITS = 20
_FIRST_BYTES = 16 * 1024
_MINED = "mined"
_MINED_TASKS = 1_000
_FACTS = {
    "source": "session", "settled": "0" * 40, "work": "a fix",
    "changed_lines": 9, "changed_files": 2,
}  # fmt: skip
_WAIT_SECONDS = 120
#: What each page of a long list, a search or a chart asks of the whole lake.
_PAGES = {
    "overview": "/",
    "overview of a month": "/?window=30d",
    "sessions": "/sessions",
    "sessions of a project": "/sessions?project=p7",
    "sessions with a word": "/sessions?words=7919",
    "sessions by worth": "/sessions?worth_min=0.5",
    "one session": "/sessions/s-000001234",
    "its tokens": "/session-tokens/s-000001234",
    "its file": "/session-file/s-000001234",
    "two sessions": "/session-pairs?left=s-000001234&right=s-000001235",
    "rewards": "/rewards",
    "rewards of a checkpoint": "/rewards?checkpoint=ckpt-0001",
    "monitors": "/rewards/monitors?before=ckpt-0000&after=ckpt-0001",
    "two definitions": "/rewards/comparison?before=default&after=survival",
    "two checkpoints": "/compared?before=ckpt-0000&after=ckpt-0001",
    "survival": "/survival",
    "labels": "/labels",
    "rates of judges": "/labels/rates",
    "shards": "/shards",
    "channels": "/channels",
    "checkpoints": "/checkpoints",
    "suites": "/suites",
    "mined tasks": f"/suites/{_MINED}/proposals",
    "a mined task": f"/suites/{_MINED}/proposals/task-0001",
    "query": "/query",
    "health": "/health",
    "ledger": "/ledger",
    "rejected lines": "/rejected",
    "keys": "/keys",
    "audit": "/audit",
}
_LONG_SESSION = "s-long"
_LONG_TURNS = 20_000
_TURN_BYTES = 6_500
_TURNS_AT_ONCE = 500
#: Stands on a page whose figures are being added up.
_AWAITS = b"data-anew"
#: So often a page is asked for them.
_LOOK_SECONDS = 0.5
#: Long after the made events: no reward is pending.
_AS_OF_US = 2_000_000_000_000_000


@dataclass(frozen=True)
class _Visit:
    """Seconds to the whole page, or to its first bytes."""

    seconds: float
    awaits: bool


@dataclass
class _Browser:
    """Asks as a browser that is signed in does, over one connection."""

    connection: http.client.HTTPConnection
    cookie: str = ""

    def sign_in(self, key: str) -> None:
        proof = self._cookie("GET", "", "", "/sign-in")
        form = urlencode({"key": key, "form_proof": form_proof(proof.partition("=")[2])})
        self.cookie = self._cookie("POST", form, proof, "/sign-in", "session")

    def _cookie(self, method: str, form: str, cookie: str, path: str, name: str = "") -> str:
        kind = {"Content-Type": "application/x-www-form-urlencoded"} if form else {}
        self.connection.request(method, path, form or None, {"Cookie": cookie} | kind)
        answer = self.connection.getresponse()
        answer.read()
        lines = answer.headers.get_all("set-cookie", [])
        return next(pair for line in lines if name in (pair := line.split(";")[0]).split("=")[0])

    def visit(self, path: str, first_bytes: int | None = None) -> _Visit:
        started = time.perf_counter()
        self.connection.request("GET", path, headers={"Cookie": self.cookie})
        answer = self.connection.getresponse()
        body = answer.read(first_bytes)
        seconds = time.perf_counter() - started
        body += answer.read()
        if answer.status != 200:
            raise AssertionError(f"{path} answered {answer.status}")
        return _Visit(seconds, _AWAITS in body)


def _measure(size: Size, here: Path) -> Iterator[Figure]:
    yield from measure_console(here / "lake", size.of(_EVENTS, 500_000))


def measure_console(data: Path, events: int) -> Iterator[Figure]:
    if not data.exists():
        with large_lake(data, events) as lake:
            for name in ("default", "survival"):
                run(lake, InlineExecutor(), RunRequest(find_definition(name)), now_us=_AS_OF_US)
            for number in range(_MINED_TASKS):
                task = Proposal(f"task-{number:04}", "left_out", "", None, "Mend it.", _FACTS)
                add_proposal(lake, "default", _MINED, task, None)
    key = admin_key(data)
    with quiet_server(data) as server:
        browser = _Browser(
            http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=_WAIT_SECONDS)
        )
        browser.sign_in(key)
        for name, path in _PAGES.items():
            yield from _page(server, browser, f"{name}, {events / 1e6:g} million events", path)
        _send_long_session(server, key)
        long = f"/sessions/{_LONG_SESSION}"
        browser.visit(long)
        seconds = [browser.visit(long, _FIRST_BYTES).seconds for _ in range(_VISITS)]
        size = _LONG_TURNS * _TURN_BYTES / 1e6
        detail = f"{_LONG_TURNS} turns and {size:.0f} MB"
        yield _FIRST_CONTENT.figure(1000 * percentile(seconds, 0.95), detail)
    loaded = sum(map(len, assets().contents.values())) / 1000
    yield _ASSETS.figure(loaded)


def _page(server: Server, browser: _Browser, what: str, path: str) -> Iterator[Figure]:
    cpu_s, began = [tree_cpu_s(server.process.pid)], time.perf_counter()
    first = visit = browser.visit(path)
    while visit.awaits:
        time.sleep(_LOOK_SECONDS)
        visit = browser.visit(path)
    made_s = time.perf_counter() - began
    cpu_s.append(tree_cpu_s(server.process.pid))
    visits = [first, *(browser.visit(path) for _ in range(_VISITS))]
    cpu_s.append(tree_cpu_s(server.process.pid))
    milliseconds = [1000 * visit.seconds for visit in visits]
    yield _PAGE.figure(percentile(milliseconds, 0.95), what)
    median, first_ms = percentile(milliseconds, 0.5), milliseconds[0]
    first_cpu_ms, cpu_ms = (1000 * (after - before) for before, after in pairwise(cpu_s))
    made = f", its figures after {1000 * made_s:.0f}" if first.awaits else ""
    value = (
        f"{first_ms:.0f}{made}, {first_cpu_ms:.0f} CPU; {median:.0f}, {cpu_ms / _VISITS:.0f} CPU"
    )
    yield Figure("  milliseconds of the first visit; median of the others", value)


def _send_long_session(server: Server, key: str) -> None:
    client = server.client(key)
    text = ("the parser drops the last line; see tests/test_parser.py " * 200)[: _TURN_BYTES // 2]
    now_us = time.time_ns() // 1000 - _LONG_TURNS * 2_000_000
    for first in range(0, _LONG_TURNS, _TURNS_AT_ONCE):
        lines = []
        for seq in range(2 * first, 2 * (first + _TURNS_AT_ONCE)):
            payload: dict[str, str] = {"text": f"{seq} {text}"}
            if seq % 2:
                payload["call_id"] = f"c{seq}"
            event = {
                "session_id": _LONG_SESSION,
                "seq": seq,
                "event_id": f"e{seq}",
                "ts": now_us + seq * 1_000_000,
                "type": "model_call" if seq % 2 else "user_message",
                "payload": payload,
            }
            lines.append(json.dumps(event))
        answer = client.post("/v1/events", "\n".join(lines).encode())
        if answer.status != 200:
            raise AssertionError(f"/v1/events answered {answer.status}")


MEASUREMENT = Measurement(
    name="console",
    title="Pages of the console",
    about="""
Each page once, and then twenty times more, over a lake with rewards. Figures of a whole lake are
added up behind the first visit, which says so; when they were there stands in its line. CPU time is
of the service and of the processes that run its queries. `make console-bench` does so over ten
million events.
""",
    goals=(_PAGE, _FIRST_CONTENT, _ASSETS),
    run=_measure,
    quick=False,
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.console", description=__doc__)
    parser.add_argument("--events", type=int, default=10_000_000, help="in the lake")
    parser.add_argument("--data", type=Path, help="where the lake is made, or lies from before")
    asked = parser.parse_args()
    say(f"visiting the pages of a lake of {asked.events} events with rewards")
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        data = asked.data or Path(directory) / "lake"
        sys.exit(0 if show(measure_console(data, asked.events)) else 1)


if __name__ == "__main__":
    main()
