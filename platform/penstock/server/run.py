"""Running the application on a socket until a signal, in a process that keeps its memory."""

import ctypes
import gc
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import pyarrow as pa
import uvicorn
from litestar import Litestar

from penstock.server.errors import ServiceAddressTaken
from penstock.settings import Settings
from penstock.terminal.long_commands import on_end_signal

_BACKLOG = 2048
_SWITCH_SECONDS = 0.0002
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_KEPT_BYTES_MAX = 128 * 1024 * 1024
#: The largest that the C library accepts.
_FROM_HEAP_BYTES_MAX = 32 * 1024 * 1024
#: Threads share so many heaps, each of which keeps memory of its own.
_HEAPS_MAX = 2


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one. Raises ServiceAddressTaken."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        bound = socket.socket(family, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(_BACKLOG)
    except OSError as error:
        raise ServiceAddressTaken(host=host, port=port, why=error.strerror or error) from error
    return bound


def run(
    app: Litestar,
    bound: socket.socket,
    settings: Settings,
    end_soon: Callable[[], None] = lambda: None,
) -> bool:
    """Serves until SIGTERM or SIGINT, and calls `end_soon` as soon as one comes; whether it had
    come up."""
    server = _Server(
        end_soon,
        uvicorn.Config(
            app,
            http="httptools",
            loop="uvloop",
            lifespan="on",
            log_level="warning",
            access_log=False,
            backlog=_BACKLOG,
            timeout_graceful_shutdown=round(settings.shutdown_seconds_max),
        ),
    )

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
        """uvicorn waits for requests that are under way; who only waits is to be answered now."""
        self._end_soon()
        super().handle_exit(sig, frame)


@contextmanager
def _short_pauses() -> Iterator[None]:
    """Requests share the interpreter with the writer: let neither hold it for long."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_SECONDS)
    # What was loaded so far lives as long as the process: collections need not look at it.
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        sys.setswitchinterval(before)


def keep_memory() -> None:
    """What one request or flush gave back, the next takes again.

    Left alone, the C library returns each large buffer to the system at once and asks for it again
    a moment later; on virtual machines that costs more than the work on the buffer. Where it has no
    such setting nothing changes.
    """
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    set_option(_ARENA_MAX, _HEAPS_MAX)
    set_option(_TRIM_THRESHOLD, _KEPT_BYTES_MAX)
    set_option(_MMAP_THRESHOLD, _FROM_HEAP_BYTES_MAX)
    pa.set_memory_pool(pa.system_memory_pool())  # its own would give memory back early again
