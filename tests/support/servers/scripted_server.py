"""A server that answers as it is told to, and remembers what it was asked."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Asked:
    """Names of headers are in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found


@dataclass(frozen=True)
class Answer:
    status: int = 200
    body: str | bytes = ""
    headers: dict[str, str] = field(default_factory=dict)
    #: It says that there are so many more bytes than there are.
    missing: int = 0


@dataclass(frozen=True)
class Hang:
    """Never an end: a byte of a header now and then, or not a word."""

    drip: bool = True


Script = Callable[[Asked], Answer | Hang | None]


@dataclass
class Server:
    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    #: None: it closes the connection without a word.
    script: Script = lambda _asked: Answer()
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def methods(self) -> list[str]:
        return [one.method for one in self.asked]


def one_after_the_other(*answers: Answer | Hang | None) -> Script:
    """The last of them again and again."""
    left = list(answers)
    return lambda _asked: left.pop(0) if len(left) > 1 else left[0]


@contextmanager
def serving() -> Iterator[Server]:
    server = Server()
    with answering(server, "/train"):
        yield server


@contextmanager
def answering(server: Server, path: str) -> Iterator[None]:
    """At an address with this path, which it gets."""
    http = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    http.daemon_threads = True
    http.told = server  # type: ignore[attr-defined]
    server.url = f"http://127.0.0.1:{http.server_port}{path}"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield
    finally:
        server.ended.set()
        http.shutdown()
        http.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _do(self) -> None:
        server: Server = self.server.told  # type: ignore[attr-defined]
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = Asked(self.command, self.path, headers, body)
        server.asked.append(asked)
        self.close_connection = True
        answer = server.script(asked)
        if isinstance(answer, Hang):
            with suppress(OSError):
                self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: " if answer.drip else b"")
                while not server.ended.wait(0.02):
                    self.wfile.write(b"x" if answer.drip else b"")
        elif answer is not None:
            content = answer.body if isinstance(answer.body, bytes) else answer.body.encode()
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content) + answer.missing))
            self.end_headers()
            with suppress(OSError):  # who asked had enough
                self.wfile.write(content)

    do_GET = do_POST = do_DELETE = _do  # noqa: N815 as http.server calls them

    def log_message(self, format: str, *args: object) -> None:
        pass
