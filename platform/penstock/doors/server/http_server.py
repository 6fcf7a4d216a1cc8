"""The application on a socket, until a signal."""

import ctypes
import gc
import ipaddress
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType

import structlog
import typer
import uvicorn

from penstock.access.keys import create_first_key, list_keys
from penstock.backends.storage.object_store import StoreUnreachable
from penstock.backends.terminal.interruption import call_off_abort, on_end_signal
from penstock.backends.terminal.output import show_json_line, show_text, to_terminal
from penstock.core.errors import PenstockError, SettingInvalid, one_line
from penstock.core.logs import configure_logs, log_everything
from penstock.core.settings import Settings
from penstock.doors.console.sign_in import operator_key
from penstock.doors.server.app import make_app
from penstock.doors.server.service import Service
from penstock.doors.server.settings import ServerRole, ServerSettings
from penstock.doors.server.tls import ServerTls, ServiceAddressTaken, open_tls
from penstock.doors.server.wire import ConnectionCounts, bounded_protocol, make_room_for
from penstock.lake.lake import Lake, open_or_make

log_line = structlog.get_logger()

_BACKLOG = 2048
#: In the data directory.
_KEY_FILE = "first-admin-key"
_SWITCH_SECONDS = 0.0002
#: For the garbage collector: how often new and older objects are visited.
_COLLECTIONS = (20_000, 20, 100)
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_KEPT_BYTES_MAX = 128 * 1024 * 1024
#: The most that the C library accepts.
_FROM_HEAP_BYTES_MAX = 32 * 1024 * 1024
#: Heaps that threads share: each keeps memory of its own.
_HEAPS_MAX = 2


def run_server(settings: Settings, role: ServerRole, *, json: bool) -> None:
    _keep_memory()
    configure_logs(settings.log_format)
    log_everything()
    try:
        _serve(settings, role, json=json)
    except PenstockError as error:
        if settings.log_format == "text":
            raise
        log_line.error("penstock serve ends", why=one_line(error))
        raise typer.Exit(error.exit_status) from None


def _serve(settings: Settings, role: ServerRole, *, json: bool) -> None:
    with open_or_make(settings) as lake:
        try:
            lake.store.check()
        except StoreUnreachable as error:
            if role != "gateway":  # which takes events in without a store
                raise
            log_line.warning(one_line(error))
    listening = settings.room(ServerSettings)
    tls = open_tls(listening)
    bound = _bind(listening.host, listening.port)
    service = Service(settings, role)
    service.start()
    key = _first_key(service.lake, listening.host)
    address, port = bound.getsockname()[:2]
    scheme = "https" if tls is not None else "http"
    url = f"{scheme}://[{address}]:{port}" if ":" in address else f"{scheme}://{address}:{port}"
    sign_in = _sign_in_link(service, listening.host)
    if json:
        link = url + sign_in if sign_in else None
        show_json_line({"url": url, "key": key, "data": str(settings.data), "sign_in": link})
    else:
        as_log = settings.log_format == "json"
        # Whoever reads that it listens may look for the key at once.
        handed_over = _hand_over(key, settings.data, as_log=as_log) if key else None
        _announce(f"Penstock listens on {url}, with its data in {settings.data}", as_log=as_log)
        if handed_over is not None:
            _announce(handed_over, as_log=as_log)
        # On a terminal alone: what goes into a pipe is kept by whatever keeps logs.
        link = sign_in if to_terminal() and not as_log else None
        once = ", which signs one browser in, once" if link else ""
        _announce(f"The console: {url}{link or '/'}{once}", as_log=as_log)
    came_up = _run(service, bound, tls)
    if not service.ended:
        # Work that is under way is in the event log: nobody waits for it, and nothing is lost.
        sys.stderr.flush()  # noqa: TID251  # nothing is written
        os._exit(0)
    if not came_up:
        raise typer.Exit(1)


def _keep_memory() -> None:
    """Keep memory that one request or flush gave back for the next."""
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    set_option(_ARENA_MAX, _HEAPS_MAX)
    set_option(_TRIM_THRESHOLD, _KEPT_BYTES_MAX)
    set_option(_MMAP_THRESHOLD, _FROM_HEAP_BYTES_MAX)


def _bind(host: str, port: int) -> socket.socket:
    """Listen; port 0 takes a free one. Raises ServiceAddressTaken."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        bound = socket.socket(family, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(_BACKLOG)
    except (OSError, OverflowError) as error:  # the latter is of a port over 65535
        why = getattr(error, "strerror", None) or error
        raise ServiceAddressTaken(host=host, port=port, why=why) from error
    return bound


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _sign_in_link(service: Service, host: str) -> str | None:
    """A link into the console for whoever starts the service on their own machine."""
    if not _is_loopback(host):
        return None
    key = operator_key(service.lake.database, service.clock.now_us())
    return service.console.links.make(key) if key else None


def _first_key(lake: Lake, host: str) -> str | None:
    """Make an admin key for whoever starts the service on their own machine the first time."""
    if _is_loopback(host):
        created = create_first_key(lake.database, "made at the first start")
        return created[1] if created else None
    if not list_keys(lake.database):
        why = "none is made on a public address: penstock keys create"
        log_line.warning("there is no key yet", why=why)
    return None


def _announce(text: str, *, as_log: bool) -> None:
    """Tell whoever started the service: a person, or what collects its log."""
    log_line.info(text) if as_log else show_text(text)


def _hand_over(key: str, data: Path, *, as_log: bool) -> str:
    """Show the first key on a terminal, or keep it in a private file: what goes into a pipe is kept
    by whatever keeps logs."""
    if to_terminal() and not as_log:
        return f"Admin key, shown this once: {key}"
    path = data / _KEY_FILE
    path.unlink(missing_ok=True)  # of a lake that was here before
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:  # noqa: PTH123
        file.write(f"{key}\n")
    return f"Admin key: in {path}, for you alone; remove the file once you have it"


def _run(service: Service, bound: socket.socket, tls: ServerTls | None) -> bool:
    """Serve until SIGTERM or SIGINT. False where it never came up."""
    limits = service.settings.room(ServerSettings)
    connections_max = make_room_for(limits.connections_max)
    if connections_max < limits.connections_max:
        log_line.warning(
            "the system's limit of open files leaves room for fewer connections than "
            "PENSTOCK_CONNECTIONS_MAX: raise it (ulimit -n)",
            room=connections_max,
            wanted=limits.connections_max,
        )
    counts = ConnectionCounts(connections_max, limits.address_connections_max)
    proxies = proxy_networks(limits.trusted_proxies)
    config = uvicorn.Config(
        make_app(service),
        http=bounded_protocol(counts),
        loop="uvloop",
        lifespan="on",
        log_config=None,  # its lines go where those of other libraries go: into the log
        log_level="error",  # below that it logs a line for each request that is no HTTP
        access_log=False,
        backlog=_BACKLOG,
        ssl_context_factory=(lambda *_: tls.context) if tls is not None else None,
        # Otherwise whoever is on this machine could name any address as its own.
        proxy_headers=bool(proxies),
        forwarded_allow_ips=proxies,
        timeout_graceful_shutdown=round(service.settings.shutdown_seconds_max),
    )
    server = _Server(service.end_soon, config)

    def stop() -> None:
        server.should_exit = True

    # uvicorn sends itself the signal again when it is done, which to a supervisor is a failure. A
    # signal from before it listens is heard as well.
    renewing = tls.renewed_on_hangup() if tls is not None else nullcontext()
    with _short_pauses(), on_end_signal(stop), renewing:
        server.run(sockets=[bound])
    return server.started


def proxy_networks(text: str) -> list[str]:
    """Read the setting `trusted_proxies`. Raises SettingInvalid."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    try:
        return [str(ipaddress.ip_network(name)) for name in names]
    except ValueError as error:
        why = f"{error}; write 10.0.0.7 or 10.0.0.0/24, or several with commas"
        raise SettingInvalid(name="trusted_proxies", origin="the settings", why=why) from None


class _Server(uvicorn.Server):
    def __init__(self, end_soon: Callable[[], None], config: uvicorn.Config) -> None:
        super().__init__(config)
        self._end_soon = end_soon

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Answer requests that only wait: uvicorn waits for all that are under way."""
        call_off_abort()
        self._end_soon()
        super().handle_exit(sig, frame)


@contextmanager
def _short_pauses() -> Iterator[None]:
    """Let neither requests nor the writer hold the interpreter for long."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_SECONDS)
    # No collection visits what was loaded so far: one of all generations would visit every event
    # that is being written, and hold all up.
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
