"""Addresses that a program in a sandbox may reach, under their usual names.

Each is a listener on the loopback with the same port. A relay outside accepts its connections."""

import asyncio
import ipaddress
import re
import socket
import threading
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from functools import cache
from typing import NamedTuple

from penstock.backends.http.address import HttpAddress
from penstock.core.errors import InvalidInput
from penstock.core.settings import without_secrets

_NAME = re.compile(r"(?!-)[A-Za-z0-9_.-]{1,253}")
_NAMES_MAX = 250


class Forward(NamedTuple):
    """A listener in the sandbox and the host that it leads to, with the same port."""

    listen: str
    host: str
    port: int


class Forwards(NamedTuple):
    all: list[Forward]
    #: Lines of /etc/hosts.
    names: dict[str, str]
    #: Additional addresses of the loopback.
    extra: tuple[str, ...]


def address_of(url: str) -> str:
    address = HttpAddress.of(url, f"The serving address {without_secrets(url)!r}")
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"{host}:{address.port}"


def split(address: str) -> tuple[str, int]:
    host, _, digits = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    port = int(digits) if digits.isascii() and digits.isdecimal() else 0
    if not 0 < port < 65536 or not (_is_number(host) or _NAME.fullmatch(host)):
        why = "it must be HOST:PORT, such as packages.example:443"
        raise InvalidInput(what=f"The address {address!r}", why=why)
    return host, port


def plan(addresses: Iterable[str]) -> Forwards:
    forwards: dict[tuple[str, int], Forward] = {}
    names: dict[str, str] = {}
    extra: list[str] = []
    for address in addresses:
        host, port = split(address)
        if host == "localhost":
            listen = "127.0.0.1"
        elif not _is_number(host):
            if len(names) >= _NAMES_MAX:
                raise InvalidInput(what="The list of addresses", why="it has too many names")
            listen = names.setdefault(host, f"127.1.0.{len(names) + 1}")
        elif ":" in host and host != "::1":
            why = "a sandbox reaches no IPv6 address but ::1; use a name or an IPv4 address"
            raise InvalidInput(what=f"The address {host}", why=why)
        else:
            listen = host
        number = ipaddress.ip_address(listen)
        if not (number.is_loopback or number.is_unspecified or listen in extra):
            extra.append(listen)
        forwards[listen, port] = Forward(listen, host, port)
    return Forwards(list(forwards.values()), names, tuple(extra))


@cache
def answers(address: str) -> bool:
    """Whether anybody takes a connection there. Asked once per process."""
    try:
        socket.create_connection(split(address), timeout=_CONNECT_SECONDS_MAX).close()
    except OSError:
        return False
    return True


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


_CHUNK_BYTES = 64 * 1024
_CONNECT_SECONDS_MAX = 20.0
_CONNECTIONS_MAX = 256  # to one address at a time
_PAUSE_SECONDS = 0.1


class Relay:
    """Relays accepted connections, in its own thread, until it is closed."""

    def __init__(self, forwards: Sequence[Forward], listening: Sequence[socket.socket]) -> None:
        self._forwards = list(zip(forwards, listening, strict=True))
        self._reached: set[str] = set()
        self._refused: set[str] = set()
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=self._serve, name="relay", daemon=True)
        self._thread.start()

    @property
    def unreachable(self) -> tuple[str, ...]:
        return tuple(sorted(self._refused - self._reached))

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()

    def _serve(self) -> None:
        async def serve() -> None:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._accept(*pair)) for pair in self._forwards]
                await self._ended.wait()
                for task in tasks:
                    task.cancel()

        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(serve())

    async def _accept(self, forward: Forward, listening: socket.socket) -> None:
        listening.setblocking(False)
        slots = asyncio.Semaphore(_CONNECTIONS_MAX)
        with listening:
            async with asyncio.TaskGroup() as group:
                while True:
                    await slots.acquire()
                    try:
                        inside, _ = await self._loop.sock_accept(listening)
                    except OSError:  # no more open files, for now
                        slots.release()
                        await asyncio.sleep(_PAUSE_SECONDS)
                        continue
                    task = group.create_task(self._carry(forward, inside))
                    task.add_done_callback(lambda _task: slots.release())

    async def _carry(self, forward: Forward, inside: socket.socket) -> None:
        address = f"{forward.host}:{forward.port}"
        with suppress(OSError):  # either end may go at any time
            near = await asyncio.open_connection(sock=inside)
            with closing(near[1]):
                try:
                    async with asyncio.timeout(_CONNECT_SECONDS_MAX):
                        far = await asyncio.open_connection(forward.host, forward.port)
                except OSError:  # including a timeout
                    self._refused.add(address)
                    return
                self._reached.add(address)
                with closing(far[1]):
                    await asyncio.gather(_pump(near[0], far[1]), _pump(far[0], near[1]))


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while piece := await source.read(_CHUNK_BYTES):
            sink.write(piece)
            await sink.drain()
        if sink.can_write_eof():
            sink.write_eof()
