"""What connections may cost, on a real server with limits that a test can reach."""

import asyncio
import re
import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
import uvicorn

from penstock.doors.server import wire
from penstock.doors.server.wire import ConnectionCounts, bounded_protocol, make_room_for

CONNECTIONS_MAX, ADDRESS_CONNECTIONS_MAX = 12, 8
PIECE = 32 * 1024


async def application(scope: Any, receive: Any, send: Any) -> None:
    """`/long` answers much more than any buffer holds, `/early` before it has read anything,
    everything else how much came."""
    size, more = 0, scope["path"] != "/early"
    while more:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    if scope["path"] == "/long":
        for _ in range(4_000):
            await send({"type": "http.response.body", "body": bytes(PIECE), "more_body": True})
    await send({"type": "http.response.body", "body": b"%d" % size})


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()


@pytest.fixture
def counts() -> ConnectionCounts:
    return ConnectionCounts(CONNECTIONS_MAX, ADDRESS_CONNECTIONS_MAX)


@pytest.fixture
def port(counts: ConnectionCounts) -> Iterator[int]:
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        application, http=bounded_protocol(counts), lifespan="off", log_level="critical",
        timeout_graceful_shutdown=1,
    )  # fmt: skip
    server = _Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listening])))
    thread.start()
    server.up.wait()
    yield listening.getsockname()[1]
    server.should_exit = True
    thread.join()


@contextmanager
def _client(port: int, address: str = "127.0.0.1") -> Iterator[socket.socket]:
    with closing(socket.create_connection(("127.0.0.1", port), source_address=(address, 0))) as end:
        end.settimeout(30)
        yield end


def _rest(end: socket.socket) -> bytes:
    """What comes until the server closes the connection."""
    content = b""
    try:
        while piece := end.recv(1 << 16):
            content += piece
    except ConnectionResetError:
        pass
    return content


def _ask(port: int, address: str = "127.0.0.1", body: bytes = b"") -> bytes:
    with _client(port, address) as end:
        head = b"POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
        end.sendall(head % len(body) + body)
        return _rest(end)


def test_headers_are_bounded(port: int) -> None:
    with _client(port) as end:
        try:
            end.sendall(b"GET / HTTP/1.1\r\n")
            for number in range(100_000):
                end.sendall(b"x-%d: 1\r\n" % number)
        except OSError:
            pass
        assert _rest(end).startswith(b"HTTP/1.1 431 ") or number < 60_000


def test_trailers_are_bounded(port: int) -> None:
    with _client(port) as end:
        sent = 0
        try:
            end.sendall(b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n")
            for sent in range(2_000):  # noqa: B007
                end.sendall(b"x-trailer: " + bytes(b"1" * 1_000) + b"\r\n")
        except OSError:
            pass
        assert b" 431 " in _rest(end) or sent < 1_999


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET / HT",
        b"GET / HTTP/1.1\r\nhost: x\r\n",
        b"GET /ok HTTP/1.1\r\nhost: x\r\n\r\nGET / HTTP/1.1\r\nho",
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nx",
        # A fast start is no licence to stop.
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 3000000\r\n\r\n" + bytes(1_000_000),
    ],
    ids=["nothing", "line", "headers", "second", "body", "large body"],
)
def test_who_never_ends_is_cut_off(port: int, monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(wire, "HEADER_SECONDS_MAX", 0.2)
    monkeypatch.setattr(wire, "BODY_PAUSE_SECONDS_MAX", 0.2)
    with _client(port) as end:
        end.sendall(sent)
        assert _rest(end).count(b" 408 ") == 1


HEAD = b"POST / HTTP/1.1\r\nhost: x\r\n"


CHUNKED = b"transfer-encoding: chunked\r\n\r\n"
GET = b"GET / HTTP/1.1\r\n"
CLOSE = b"connection: close\r\n"


@pytest.mark.parametrize(
    ("sent", "answers"),
    [
        (GET + b"a:\r\n" * (wire.HEADERS_MAX + 1) + b"\r\n", [431]),
        ((GET + b"\r\n") * 2_000, [429]),
        (HEAD + CHUNKED + b"1\r\nx\r\n" * 5_000, [400]),
        (
            (GET + b"\r\n") * (wire.PIPELINED_REQUESTS_MAX - 1) + GET + CLOSE + b"\r\n",
            [200] * wire.PIPELINED_REQUESTS_MAX,
        ),
        (HEAD + CLOSE + CHUNKED + b"40\r\n%b\r\n" % bytes(64) * 5_000 + b"0\r\n\r\n", [200]),
        (HEAD + CLOSE + b"content-length: 3000000\r\n\r\n" + bytes(3_000_000), [200]),
    ],
    ids=["many headers", "much pipelined", "tiny pieces", "pipelined", "pieces", "body"],
)
def test_what_is_taken_is_bounded(port: int, sent: bytes, answers: list[int]) -> None:
    """What is refused was not run before."""
    with _client(port) as end:
        end.sendall(sent)
        found = re.findall(rb"HTTP/1.1 (\d+) ", _rest(end))
        assert [int(status) for status in found] == answers


@pytest.mark.parametrize(
    "head",
    [b"host: x\r\n", b"host: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n"],
    ids=["kept alive", "upgrade"],
)
def test_an_empty_line_does_not_hold_an_idle_connection(
    port: int, monkeypatch: pytest.MonkeyPatch, head: bytes
) -> None:
    monkeypatch.setattr(wire, "HEADER_SECONDS_MAX", 0.2)
    with _client(port) as end:
        end.sendall(b"GET / HTTP/1.1\r\n" + head + b"\r\n")
        answer = b""
        while not answer.endswith(b"0\r\n\r\n"):
            answer += end.recv(1 << 16)
        end.sendall(b"\r\n")
        assert b" 408 " in _rest(end)


def _send_until_cut_off(end: socket.socket) -> None:
    def send_for_ever() -> None:
        while True:
            end.sendall(bytes(1024))

    with pytest.raises(OSError, match=r"reset|pipe"):
        send_for_ever()


@pytest.mark.parametrize("path", ["/", "/early"], ids=["read", "answered already"])
def test_a_body_has_an_end(port: int, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setattr(wire, "BODY_SECONDS_MAX", 0.2)
    monkeypatch.setattr(wire, "BODY_PAUSE_SECONDS_MAX", 0.1)
    with _client(port) as end:
        end.sendall(f"POST {path} HTTP/1.1\r\ncontent-length: 1000000000000\r\n\r\n".encode())
        _send_until_cut_off(end)


def test_who_is_refused_while_an_answer_waits_for_him_is_cut_off(
    port: int, counts: ConnectionCounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "CLOSE_SECONDS_MAX", 0.1)
    with _client(port) as end:
        too_large = b"GET / HTTP/1.1\r\nx: " + bytes(b"y" * wire.HEADER_BYTES_MAX)
        end.sendall(b"GET /long HTTP/1.1\r\nhost: x\r\n\r\n" + too_large)
        while "127.0.0.1" in counts.by_address:
            assert _ask(port, "127.0.0.2")


def test_a_drip_of_bytes_is_no_progress(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "BODY_PAUSE_SECONDS_MAX", 0.2)
    with _client(port) as end:
        end.sendall(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n")
        end.settimeout(0.02)
        answer = b""
        for _ in range(1_000_000):
            try:
                end.send(b"x")
                answer = end.recv(1 << 16)
            except TimeoutError:
                continue
            except OSError:
                break
            break
        assert b" 408 " in answer or not answer


@pytest.mark.parametrize("bound", ["ANSWER_PAUSE_SECONDS_MAX", "ANSWER_PAUSES_SECONDS_MAX"])
def test_who_never_reads_the_answer_is_cut_off(
    port: int, counts: ConnectionCounts, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    """Nor by drips, for hours."""
    monkeypatch.setattr(wire, bound, 0.2)
    with _client(port) as end:
        end.sendall(b"GET /long HTTP/1.1\r\nhost: x\r\n\r\n")
        while counts.by_address:  # it is ended though the client has read nothing
            assert _ask(port, "127.0.0.2")
            if set(counts.by_address) <= {"127.0.0.2"}:
                break


def test_one_address_cannot_take_the_others_place(port: int) -> None:
    address = ("127.0.0.1", port)
    open_ends = [socket.create_connection(address) for _ in range(ADDRESS_CONNECTIONS_MAX)]
    try:
        assert _ask(port).startswith(b"HTTP/1.1 503 ")
        assert _ask(port, "127.0.0.2").startswith(b"HTTP/1.1 200 ")
    finally:
        for end in open_ends:
            end.close()


def test_all_together_are_bounded(port: int) -> None:
    addresses = [f"127.0.0.{2 + number % 2}" for number in range(CONNECTIONS_MAX)]
    open_ends = [
        socket.create_connection(("127.0.0.1", port), source_address=(address, 0))
        for address in addresses
    ]
    try:
        assert _ask(port).startswith(b"HTTP/1.1 503 ")
    finally:
        for end in open_ends:
            end.close()


def test_a_closed_connection_leaves_its_place(port: int, counts: ConnectionCounts) -> None:
    for _ in range(3 * CONNECTIONS_MAX):
        with _client(port) as end:
            end.sendall(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            assert _rest(end).startswith(b"HTTP/1.1 200 ")
    while counts.by_address:
        pass


def test_the_limit_of_open_files_is_raised_or_leaves_fewer_connections() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (600, hard))
        assert make_room_for(400) == 400
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 400 + wire.OTHER_FILES_MAX
        if hard != resource.RLIM_INFINITY:
            assert make_room_for(hard) == hard - wire.OTHER_FILES_MAX
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
