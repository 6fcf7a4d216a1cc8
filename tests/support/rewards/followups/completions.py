"""A server on loopback that speaks `/v1/chat/completions`, and errs as it is told."""

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import sqlalchemy as sa

from penstock.database.engine import Database
from penstock_jobs.rewards.tables import judge_spending

#: Status, headers, body; or "hang" for no answer until the server ends.
Fault = tuple[int, dict[str, str], bytes]


def completion(content: str, tokens: int = 50) -> bytes:
    answer = {"choices": [{"message": {"role": "assistant", "content": content}}]}
    return json.dumps(answer | {"usage": {"total_tokens": tokens}}).encode()


def by_first_word(request: dict[str, Any]) -> str:
    """Labels a message by its first word, whatever else it says."""
    message = json.loads(request["messages"][1]["content"])
    label = message["user_message"].split()[0]
    return json.dumps({"label": label, "confidence": 0.9, "dissatisfied": 0.2})


class Completions:
    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        #: The next answers; then `reply` answers.
        self.faults: deque[Fault | str] = deque()
        self.reply: Callable[[dict[str, Any]], str] = by_first_word
        self.ending = threading.Event()
        self.lock = threading.Condition()
        self.url = ""

    def arrived(self, count: int, within_s: float = 60) -> bool:
        """Waits for so many requests."""
        with self.lock:
            return self.lock.wait_for(lambda: len(self.requests) >= count, within_s)


@contextmanager
def running_completions() -> Iterator[Completions]:
    told = Completions()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            with told.lock:
                told.requests.append(json.loads(body) | {"path": self.path})
                told.headers.append({name.lower(): v for name, v in self.headers.items()})
                fault = told.faults.popleft() if told.faults else None
                told.lock.notify_all()
            if fault == "hang":
                told.ending.wait()
                return
            status, headers, answer = (
                fault
                if isinstance(fault, tuple)
                else (200, {}, completion(told.reply(json.loads(body))))
            )
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(answer))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            """Tests are quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    told.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield told
    finally:
        told.ending.set()
        server.shutdown()
        server.server_close()
        thread.join()


class Spent(NamedTuple):
    requests: int
    tokens: int


def spent(database: Database, run: str) -> Spent:
    """What a run has spent so far, with what is set aside."""
    query = sa.select(judge_spending.c.requests, judge_spending.c.tokens)
    with database.read() as connection:
        row = connection.execute(query.where(judge_spending.c.run == run)).one_or_none()
    return Spent(*row) if row else Spent(0, 0)
