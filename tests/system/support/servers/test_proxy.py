import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.servers.ports import free_port
from tests.support.servers.proxy import TcpProxy

_PATIENCE_SECONDS = 180
_MOMENT_SECONDS = 0.05
_LAST_WORDS = bytes(2_000_000)


class _Echo(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Echoing)
        self.heard = bytearray()
        self.left = threading.Semaphore(0)


class _Echoing(socketserver.BaseRequestHandler):
    server: _Echo

    def handle(self) -> None:
        while piece := self.request.recv(65536):
            self.server.heard += piece
            if piece == b"quit":
                self.request.sendall(_LAST_WORDS)
                return
            self.request.sendall(piece)
        self.server.left.release()


@pytest.fixture
def echo() -> Iterator[_Echo]:
    with _Echo() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def proxy(echo: _Echo) -> Iterator[TcpProxy]:
    with TcpProxy("127.0.0.1", echo.server_address[1]) as proxy:
        yield proxy


@contextmanager
def _client(proxy: TcpProxy) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", proxy.port), _PATIENCE_SECONDS) as client:
        yield client


def _exchange(client: socket.socket, message: bytes) -> None:
    client.sendall(message)
    answer = b""
    while len(answer) < len(message):
        piece = client.recv(65536)
        assert piece, "the connection was closed"
        answer += piece
    assert answer == message


def _hears_nothing(client: socket.socket) -> bool:
    client.settimeout(_MOMENT_SECONDS)
    try:
        client.recv(1)
    except TimeoutError:
        return True
    finally:
        client.settimeout(_PATIENCE_SECONDS)
    return False


def _is_closed(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def test_it_passes_bytes_both_ways_on_several_connections(proxy: TcpProxy) -> None:
    with _client(proxy) as one, _client(proxy) as other:
        _exchange(one, b"one")
        _exchange(other, b"other" * 100_000)
        _exchange(one, b"again")


def test_a_cut_closes_what_is_open_and_lets_new_connections_in(
    proxy: TcpProxy, caplog: pytest.LogCaptureFixture
) -> None:
    with _client(proxy) as client:
        _exchange(client, b"before")
        proxy.cut()
        assert _is_closed(client)
    with _client(proxy) as client:
        _exchange(client, b"after")
    assert not caplog.records


def test_refusing_leaves_open_connections_alone(proxy: TcpProxy) -> None:
    with _client(proxy) as client:
        _exchange(client, b"before")
        proxy.refuse()
        with pytest.raises(ConnectionRefusedError), _client(proxy):
            pass
        _exchange(client, b"still")
        proxy.accept()
        with _client(proxy) as new:
            _exchange(new, b"welcome")


def test_a_stall_holds_bytes_back_and_flow_lets_them_go(proxy: TcpProxy, echo: _Echo) -> None:
    with _client(proxy) as client:
        _exchange(client, b"before")
        proxy.stall()
        client.sendall(b"held")
        with _client(proxy) as new:
            new.sendall(b"new")
            assert _hears_nothing(new)
        assert _hears_nothing(client)
        assert echo.heard == b"before"
        proxy.flow()
        assert client.recv(4) == b"held"


def test_a_stalled_connection_can_be_cut(proxy: TcpProxy) -> None:
    with _client(proxy) as client:
        proxy.stall()
        client.sendall(b"held")
        proxy.cut()
        assert _is_closed(client)


def test_lost_replies_reach_the_server_and_cut_the_client(proxy: TcpProxy, echo: _Echo) -> None:
    proxy.lose_replies()
    for _ in range(2):
        with _client(proxy) as client:
            client.sendall(b"commit ")
            assert _is_closed(client)
    assert echo.heard == b"commit commit "
    proxy.flow()
    with _client(proxy) as client:
        _exchange(client, b"again")


def test_replies_can_be_lost_a_number_of_times(proxy: TcpProxy) -> None:
    proxy.lose_replies(times=1)
    with _client(proxy) as client:
        client.sendall(b"lost")
        assert _is_closed(client)
    with _client(proxy) as client:
        _exchange(client, b"answered")


def test_a_server_that_is_gone_closes_the_connection() -> None:
    with TcpProxy("127.0.0.1", free_port()) as proxy, _client(proxy) as client:
        assert _is_closed(client)


def test_the_end_of_the_server_reaches_the_client_after_its_last_bytes(proxy: TcpProxy) -> None:
    with _client(proxy) as client:
        client.sendall(b"quit")
        with client.makefile("rb") as answer:
            assert answer.read() == _LAST_WORDS


def test_the_end_of_the_client_reaches_the_server(proxy: TcpProxy, echo: _Echo) -> None:
    with _client(proxy) as client:
        _exchange(client, b"good-bye")
    assert echo.left.acquire(timeout=_PATIENCE_SECONDS)


def test_it_takes_the_port_it_is_given_and_frees_it(echo: _Echo) -> None:
    port = echo.server_address[1]
    with TcpProxy("127.0.0.1", port) as first, _client(first) as client:
        _exchange(client, b"first")
    with TcpProxy("127.0.0.1", port, port=first.port) as second, _client(second) as client:
        assert second.address == first.address
        _exchange(client, b"second")
