"""A proxy before an HTTP server, which does to requests what a network or an overloaded service
does: refuses them, delays them, cuts them in the middle. A test says what, request by request."""

import http.client
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

_PIECE = 64 * 1024


@dataclass(frozen=True)
class Seen:
    """A request as the proxy got it."""

    method: str
    path: str
    query: str
    span: str | None


@dataclass(frozen=True)
class Refuse:
    """Answer with this instead of passing it on."""

    status: int
    code: str = "InternalError"


@dataclass(frozen=True)
class CutRequest:
    """Close the connection before the body was read; the server behind sees nothing."""


@dataclass(frozen=True)
class CutAnswer:
    """Pass it on, send so much of the answer's body, then close the connection."""

    after: int = 0


@dataclass(frozen=True)
class Hold:
    """Pass it on only when the event is set."""

    until: threading.Event


Fault = Refuse | CutRequest | CutAnswer | Hold
Script = Callable[[Seen], Fault | None]


def first(times: int, fault: Fault, method: str = "", query: str = "") -> Script:
    """The first so many requests of this kind get this fault, others none."""
    left = [times]
    lock = threading.Lock()

    def script(seen: Seen) -> Fault | None:
        if method not in ("", seen.method) or query not in seen.query:
            return None
        with lock:
            left[0] -= 1
            return fault if left[0] >= 0 else None

    return script


@dataclass
class FaultyProxy:
    """`script` decides on each request; `seen` is what came, in order."""

    url: str
    script: Script | None = None
    seen: list[Seen] = field(default_factory=list)


@contextmanager
def faulty_proxy(behind: str) -> Iterator[FaultyProxy]:
    """A proxy for the server at this address, on a free port."""
    target = urlsplit(behind)
    assert target.hostname
    assert target.port
    server = _Server((target.hostname, target.port))
    host, port = server.server_address[:2]
    server.proxy = FaultyProxy(f"http://{host!s}:{port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server.proxy
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    proxy: FaultyProxy

    def __init__(self, target: tuple[str, int]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target = target

    def handle_error(self, *_details: object) -> None:
        """Whoever is cut off hears of it; nobody else needs to."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _handle(self) -> None:
        address = urlsplit(self.path)
        seen = Seen(self.command, unquote(address.path), address.query, self.headers.get("Range"))
        proxy = self.server.proxy
        proxy.seen.append(seen)
        fault = proxy.script(seen) if proxy.script else None
        if isinstance(fault, CutRequest):
            self._cut()
            return
        body = self._body()
        if isinstance(fault, Refuse):
            self._refuse(fault)
            return
        if isinstance(fault, Hold):
            fault.until.wait()
        self._pass_on(body, fault.after if isinstance(fault, CutAnswer) else None)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _handle  # noqa: N815 as http.server calls them

    def _body(self) -> bytes:
        """As the client sent it: what it signs may be in the pieces of a chunked body."""
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        pieces = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(pieces)

    def _refuse(self, fault: Refuse) -> None:
        text = f"<Error><Code>{fault.code}</Code><Message>{fault.code}</Message></Error>"
        self.send_response(fault.status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text.encode())

    def _pass_on(self, body: bytes, cut_after: int | None) -> None:
        behind = http.client.HTTPConnection(*self.server.target)
        try:
            behind.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in ("expect", "connection", "transfer-encoding"):
                    behind.putheader(name, value)
            if "Content-Length" not in self.headers:
                behind.putheader("Content-Length", str(len(body)))
            behind.endheaders(body or None)
            self._pass_back(behind.getresponse(), cut_after)
        finally:
            behind.close()

    def _pass_back(self, answer: http.client.HTTPResponse, cut_after: int | None) -> None:
        self.send_response_only(answer.status, answer.reason)
        for name, value in answer.getheaders():
            if name.lower() not in ("connection", "transfer-encoding"):
                self.send_header(name, value)
        content = b"" if answer.getheader("Content-Length") else answer.read()
        if content or (not answer.getheader("Content-Length") and answer.status != 204):
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if cut_after is not None:
            self.wfile.write((content or answer.read(cut_after))[:cut_after])
            self._cut()
            return
        self.wfile.write(content)
        while piece := answer.read(_PIECE):
            self.wfile.write(piece)

    def _cut(self) -> None:
        self.close_connection = True
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, *_details: object) -> None:
        pass
