"""A TCP proxy on loopback that does what networks do: it cuts, refuses, stalls, loses answers.

    with TcpProxy("127.0.0.1", broker.behind_proxy_port, port=broker.advertised_port) as proxy:
        ...
        proxy.stall()

It knows no protocol. Each call may come from any thread, and has taken effect when it returns.
"""

import asyncio
import threading
from asyncio import StreamReader, StreamWriter
from collections.abc import Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Self

from tests.support.servers.ports import free_port

_PIECE_BYTES = 64 * 1024
_CALL_SECONDS_MAX = 120


class TcpProxy:
    """A client that only half closes its connection loses the answers that are still to come."""

    def __init__(self, target_host: str, target_port: int, *, port: int | None = None) -> None:
        self.port = port or free_port()
        self._target = (target_host, target_port)
        self._connections: set[asyncio.Task[None]] = set()
        self._replies_to_lose = 0.0
        self._listener: asyncio.Server | None = None
        self._flowing = asyncio.Event()
        self._closing = asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._run()), name="proxy", daemon=True
        )

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        self.accept()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join()

    def cut(self) -> None:
        """Close all connections; new ones are welcome."""
        self._call(self._cut())

    def refuse(self) -> None:
        """Nothing listens any more; connections that are there go on."""
        self._call(self._refuse())

    def accept(self) -> None:
        self._call(self._accept())

    def stall(self) -> None:
        """Connections stay and are made, and no byte passes, nor the news of an end."""
        self._call(self._let_flow(False))

    def flow(self) -> None:
        """Go on after `stall`, with what waited, and after `lose_replies`."""
        self._call(self._let_flow(True))

    def lose_replies(self, times: int | None = None) -> None:
        """Requests pass. The first bytes of an answer cut their connection instead of passing:
        so many times, or until `flow`."""
        self._call(self._lose(float("inf") if times is None else times))

    def _call(self, coroutine: Coroutine[None, None, None]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(_CALL_SECONDS_MAX)

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._flowing.set()
        self._ready.set()
        await self._closing.wait()
        await self._refuse()
        await self._cut()

    async def _accept(self) -> None:
        if self._listener is None:
            host = "127.0.0.1"
            self._listener = await asyncio.start_server(self._connect, host, self.port)

    async def _refuse(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    async def _cut(self) -> None:
        connections = list(self._connections)
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        await asyncio.sleep(0)  # transports close their sockets in the loop's next round

    async def _let_flow(self, flowing: bool) -> None:
        if flowing:
            self._replies_to_lose = 0
            self._flowing.set()
        else:
            self._flowing.clear()

    async def _lose(self, times: float) -> None:
        self._replies_to_lose = times

    async def _connect(self, reader: StreamReader, writer: StreamWriter) -> None:
        this = asyncio.current_task()
        assert this is not None
        self._connections.add(this)
        try:
            with suppress(asyncio.CancelledError):  # a cut; asyncio's streams would log it
                await self._relay(reader, writer)
        finally:
            self._connections.discard(this)
            writer.transport.abort()

    async def _relay(self, reader: StreamReader, writer: StreamWriter) -> None:
        try:
            behind_reader, behind = await asyncio.open_connection(*self._target)
        except OSError:
            return  # which closes the client's connection: the nearest to a refusal
        requests = asyncio.create_task(self._pass_on(reader, behind))
        replies = asyncio.create_task(self._pass_on(behind_reader, writer, replies=True))
        try:
            await asyncio.wait([requests, replies], return_when=asyncio.FIRST_COMPLETED)
        finally:
            requests.cancel()
            replies.cancel()
            behind.transport.abort()

    async def _pass_on(
        self, reader: StreamReader, writer: StreamWriter, replies: bool = False
    ) -> None:
        """Ends when the connection is to end; what had come before has then been sent."""
        with suppress(OSError):
            while True:
                piece = await reader.read(_PIECE_BYTES)
                await self._flowing.wait()
                if not piece:
                    break
                if replies and self._replies_to_lose > 0:
                    self._replies_to_lose -= 1
                    return
                writer.write(piece)
                await writer.drain()
            writer.close()
            await writer.wait_closed()
