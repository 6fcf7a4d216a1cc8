"""The application on a socket, until a signal."""

import gc
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn

from penstock.server.app import make_app
from penstock.server.service import Service
from penstock.server.settings import ServerSettings
from penstock.server.wire import ConnectionCounts, bounded_protocol, make_room_for
from penstock.terminal.long_commands import on_end_signal
from penstock.terminal.output import say

BACKLOG = 2048
_SWITCH_SECONDS = 0.0002
#: New objects until the youngest are visited, and how often that is until the older ones are.
_COLLECTIONS = (20_000, 20, 100)


def run(service: Service, bound: socket.socket) -> bool:
    """Serves until SIGTERM or SIGINT; whether it had come up."""
    limits = service.settings.room(ServerSettings)
    connections_max = make_room_for(limits.connections_max)
    if connections_max < limits.connections_max:
        say(
            f"The system's limit of open files leaves room for {connections_max} connections, "
            f"and PENSTOCK_CONNECTIONS_MAX is {limits.connections_max}: raise it (ulimit -n)."
        )
    counts = ConnectionCounts(connections_max, limits.address_connections_max)
    config = uvicorn.Config(
        make_app(service),
        http=bounded_protocol(counts),
        loop="uvloop",
        lifespan="on",
        log_config=None,  # its lines go where those of other libraries go
        log_level="error",  # below that it logs a line for each request that is no HTTP
        access_log=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=round(service.settings.shutdown_seconds_max),
    )
    server = _Server(service.end_soon, config)

    def stop() -> None:
        server.should_exit = True

    # uvicorn sends itself the signal again when it is done, which would end the process by that
    # signal: to a supervisor, a failure. A signal from before it listens is heard as well.
    with _short_pauses(), on_end_signal(stop):
        server.run(sockets=[bound])
    return server.started


class _Server(uvicorn.Server):
    def __init__(self, end_soon: Callable[[], None], config: uvicorn.Config) -> None:
        super().__init__(config)
        self._end_soon = end_soon

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """uvicorn waits for requests that are under way: those that only wait are answered now."""
        self._end_soon()
        super().handle_exit(sig, frame)


@contextmanager
def _short_pauses() -> Iterator[None]:
    """Requests share the interpreter with the writer: let neither hold it for long."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_SECONDS)
    # Objects that were loaded so far live as long as the process: no collection visits them. One
    # of all generations visits every event that is being written, and holds all up meanwhile.
    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECTIONS)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
        sys.setswitchinterval(before)
