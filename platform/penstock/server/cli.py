"""`penstock serve`: the application on a socket, until a signal."""

import ctypes
import ipaddress
import os
import socket
import sys
from pathlib import Path
from typing import Annotated

import typer

from penstock.lake.lake import Lake, open_or_make
from penstock.server.errors import ServiceAddressTaken
from penstock.server.settings import ServerRole
from penstock.settings import load_settings
from penstock.terminal import options
from penstock.terminal.output import say, show_json_line, show_text, to_terminal

#: In the data directory.
_KEY_FILE = "first-admin-key"
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_KEPT_BYTES_MAX = 128 * 1024 * 1024
#: The largest that the C library accepts.
_FROM_HEAP_BYTES_MAX = 32 * 1024 * 1024
#: Threads share so many heaps, each of which keeps memory of its own.
_HEAPS_MAX = 2


def serve(
    data: options.Data = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="Port to listen on; 0 takes a free one.", min=0, max=65_535)
    ] = 8787,
    role: Annotated[
        ServerRole, typer.Option(help="Which part to run; all of them by default.")
    ] = "all",
    json: options.Json = False,
) -> None:
    """Take events in and answer queries, until SIGTERM or Ctrl-C.

    Example: penstock serve --data penstock-data
    """
    from penstock.logs import configure_logs
    from penstock.server.http_server import BACKLOG, run
    from penstock.server.service import Service
    from penstock.storage.errors import StoreUnreachable

    _keep_memory()
    settings = load_settings(data)
    configure_logs(settings.log_format)
    with open_or_make(settings) as lake:
        try:
            lake.store.check()
        except StoreUnreachable as error:
            if role != "gateway":  # which takes events in without a store
                raise
            say(str(error))
    bound = _bind(host, port, BACKLOG)
    service = Service(settings, role)
    service.start()
    key = _first_key(service.lake, host)
    address, port = bound.getsockname()[:2]
    url = f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"
    if json:
        show_json_line({"url": url, "key": key, "data": str(settings.data)})
    else:
        show_text(f"Penstock listens on {url}, with its data in {settings.data}")
        if key:
            _hand_over(key, settings.data)
    came_up = run(service, bound)
    if not service.ended:
        # Work that is under way is in the event log: nobody waits for it, and nothing is lost.
        sys.stderr.flush()  # noqa: TID251  # nothing is written
        os._exit(0)
    if not came_up:
        raise typer.Exit(1)


def _keep_memory() -> None:
    """Memory that one request or flush gave back is taken again by the next.

    Left alone, the C library returns each large buffer to the system at once and asks for it again
    a moment later; on virtual machines that costs more than the work on the buffer. Where it has no
    such setting nothing changes.
    """
    import pyarrow as pa

    try:
        set_option = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    set_option(_ARENA_MAX, _HEAPS_MAX)
    set_option(_TRIM_THRESHOLD, _KEPT_BYTES_MAX)
    set_option(_MMAP_THRESHOLD, _FROM_HEAP_BYTES_MAX)
    pa.set_memory_pool(pa.system_memory_pool())  # its own would give memory back early again


def _bind(host: str, port: int, backlog: int) -> socket.socket:
    """A listening socket; port 0 takes a free one. Raises ServiceAddressTaken."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        bound = socket.socket(family, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(backlog)
    except OSError as error:
        raise ServiceAddressTaken(host=host, port=port, why=error.strerror or error) from error
    return bound


def _first_key(lake: Lake, host: str) -> str | None:
    """An admin key for whoever starts the service on their own machine for the first time."""
    from penstock.access.keys import create_first_key, list_keys

    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = host == "localhost"
    if is_loopback:
        created = create_first_key(lake.database, "made at the first start")
        return created[1] if created else None
    if not list_keys(lake.database):
        say("There is no key yet, and none is made on a public address: penstock keys create")
    return None


def _hand_over(key: str, data: Path) -> None:
    """The first key is for a person: shown on a terminal, else in a file that nobody else reads.
    What goes into a pipe is kept by whatever keeps logs."""
    if to_terminal():
        show_text(f"Admin key, shown this once: {key}")
        return
    path = data / _KEY_FILE
    path.unlink(missing_ok=True)  # of a lake that was here before
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:  # noqa: PTH123
        file.write(f"{key}\n")
    show_text(f"Admin key: in {path}, for you alone; remove the file once you have it")
