"""The server process: socket, HTTPS, memory and signals around the application."""

import asyncio
import atexit
import gc
import ipaddress
import os
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import FrameType

import msgspec
import structlog
import typer
import uvicorn

from penstock.access.keys import create_first_key, list_keys
from penstock.backends.http.address import EgressPolicy, is_loopback
from penstock.backends.storage.object_store import StoreUnreachable
from penstock.backends.terminal.interruption import (
    call_off_abort,
    listening_to_ctrl_c,
    on_end_signal,
)
from penstock.backends.terminal.output import show_json_line, show_text, stdout_is_terminal
from penstock.core.errors import PenstockError, SettingInvalid, one_line
from penstock.core.logs import configure_logs, log_everything
from penstock.core.settings import Settings
from penstock.doors.console.sign_in import operator_key
from penstock.doors.server.app import make_app
from penstock.doors.server.processes import Processes
from penstock.doors.server.service import Service
from penstock.doors.server.wire import (
    BACKLOG,
    ConnectionCounts,
    bounded_protocol,
    listen,
    listening_url,
    make_room_for,
)
from penstock.doors.settings import ServerRole, ServerSettings
from penstock.lake.lake import Lake, open_or_make
from penstock.registry.checkpoints.artifact_roots import ArtifactRoots


class CertificateUnfit(PenstockError, exit_status=2):
    """The certificate {certificate!r} with the key {key!r} cannot be used: {why}. Set
    PENSTOCK_TLS_CERTIFICATE_FILE and PENSTOCK_TLS_KEY_FILE to PEM files, the key without a
    passphrase."""


log_line = structlog.get_logger()


class ServerTls(msgspec.Struct, frozen=True):
    """The server's certificate. Connections that began before a renewal keep the old one."""

    context: ssl.SSLContext
    certificate_file: str
    key_file: str

    def renew(self) -> None:
        """Read the files again. Raises CertificateUnfit and keeps the old certificate."""
        probe = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        for context in (probe, self.context):
            try:
                # The empty passphrase keeps OpenSSL from asking for one on the terminal.
                context.load_cert_chain(self.certificate_file, self.key_file, password=lambda: "")
            except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
                files = {"certificate": self.certificate_file, "key": self.key_file}
                raise CertificateUnfit(**files, why=str(error)) from error

    @contextmanager
    def renewed_on_hangup(self) -> Iterator[None]:
        """Renew on SIGHUP within the block."""

        def renew(*_: object) -> None:
            try:
                self.renew()
            except CertificateUnfit as error:
                log_line.error("the old certificate stays in use", why=str(error))
            else:
                log_line.info("the certificate was read again", file=self.certificate_file)

        before = signal.signal(signal.SIGHUP, renew)
        try:
            yield
        finally:
            signal.signal(signal.SIGHUP, before)


def open_tls(settings: ServerSettings) -> ServerTls | None:
    """Load the certificate that the settings name, if any. Raises CertificateUnfit."""
    certificate, key = settings.tls_certificate_file, settings.tls_key_file
    if not certificate and not key:
        return None
    if not certificate or not key:
        raise CertificateUnfit(certificate=certificate, key=key, why="one of them is not set")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    tls = ServerTls(context, certificate, key)
    tls.renew()
    return tls


#: Name in the data directory.
_KEY_FILE = "first-admin-key"
_REPORT_SECONDS = 0.5
#: Threads that write to the log take the interpreter several times for each append. By default they
#: wait 5 ms each time while the event loop has work.
_SWITCH_SECONDS = 0.0002


def run_server(settings: Settings, role: ServerRole, *, json: bool) -> None:
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
            if role != "gateway":  # a gateway takes events in without a store
                raise
            log_line.warning(one_line(error))
    listening = settings.room(ServerSettings)
    _refuse_unfit(settings)
    tls = open_tls(listening)
    bound = listen(listening.host, listening.port)
    _share_memory()
    if role != "all":
        _serve_requests(Service(settings, role), bound, tls, json=json)
        return
    processes = Processes(settings.data, patience_s=settings.shutdown_seconds_max / 2)
    processes.divide(*[signal.SIGHUP] * (tls is not None))
    with listening_to_ctrl_c():
        service = Service(settings, processes.part, processes)
        if processes.part == "gateway":
            _serve_requests(service, bound, tls, json=json)
        else:
            bound.close()
            _write(service, processes)


def _refuse_unfit(settings: Settings) -> None:
    """Refuse settings before anything is forked. Raises SettingInvalid."""
    proxy_networks(settings.room(ServerSettings).trusted_proxies)
    ArtifactRoots.of(settings)
    EgressPolicy.for_tenants(settings)


def _serve_requests(
    service: Service, bound: socket.socket, tls: ServerTls | None, *, json: bool
) -> None:
    processes = service.processes
    sys.setswitchinterval(_SWITCH_SECONDS)
    service.start()
    if processes is None or not processes.own_restarts:
        _greet(service, bound, json=json, secure=tls is not None)
    elif tls is not None:
        with suppress(CertificateUnfit):  # it was renewed since the supervisor read it
            tls.renew()
    came_up = _run(service, bound, tls)
    _exit_unless_ended(service)
    if not came_up:
        raise typer.Exit(1)


def _write(service: Service, processes: Processes) -> None:
    """Run the writer beside a gateway until SIGTERM, which comes once the gateway has ended."""
    ending = threading.Event()

    async def work() -> None:
        async with service.running():
            while not ending.is_set():
                if service.writer is not None:
                    processes.report(service.report(service.writer))
                await asyncio.to_thread(ending.wait, _REPORT_SECONDS)

    with on_end_signal(ending.set):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C on a terminal reaches all processes
        asyncio.run(work())
    _exit_unless_ended(service)


def _exit_unless_ended(service: Service) -> None:
    """Exit at once if a thread still works: what is unfinished is in the event log."""
    if not service.ended:
        sys.stderr.flush()  # noqa: TID251  # nothing is written
        os._exit(0)


def _greet(service: Service, bound: socket.socket, *, json: bool, secure: bool) -> None:
    settings = service.settings
    listening = settings.room(ServerSettings)
    key = _first_key(service.lake, listening.host)
    url = listening_url(bound, secure=secure)
    sign_in = _sign_in_link(service, listening.host)
    if json:
        link = url + sign_in if sign_in else None
        show_json_line({"url": url, "key": key, "data": str(settings.data), "sign_in": link})
    else:
        as_log = settings.log_format == "json"
        # The key is in place before anyone reads that the service listens.
        handed_over = _hand_over(key, settings.data, as_log=as_log) if key else None
        _announce(f"Penstock listens on {url}, with its data in {settings.data}", as_log=as_log)
        if handed_over is not None:
            _announce(handed_over, as_log=as_log)
        # Only on a terminal: log collectors keep what goes into a pipe.
        link = sign_in if stdout_is_terminal() and not as_log else None
        once = " (signs one browser in, once)" if link else ""
        _announce(f"The console: {url}{link or '/'}{once}", as_log=as_log)


def _sign_in_link(service: Service, host: str) -> str | None:
    """A link that signs in the person who starts the service on their own machine."""
    if not is_loopback(host):
        return None
    key = operator_key(service.lake.database, service.clock.now_us())
    return service.console.links.make(key) if key else None


def _first_key(lake: Lake, host: str) -> str | None:
    """Create an admin key at the first start, if the service listens on loopback only."""
    if is_loopback(host):
        created = create_first_key(lake.database, "made at the first start")
        return created[1] if created else None
    if not list_keys(lake.database):
        why = "none is created for a public address: run penstock keys create"
        log_line.warning("there is no key yet", why=why)
    return None


def _announce(text: str, *, as_log: bool) -> None:
    log_line.info(text) if as_log else show_text(text)


def _hand_over(key: str, data: Path, *, as_log: bool) -> str:
    """Show the first key on a terminal, else write it to a private file.

    Log collectors keep what goes into a pipe."""
    if stdout_is_terminal() and not as_log:
        return f"Admin key, shown only once: {key}"
    path = data / _KEY_FILE
    path.unlink(missing_ok=True)  # left by an earlier lake
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:  # noqa: PTH123
        file.write(f"{key}\n")
    return f"Admin key: in {path}, readable by you alone; delete the file once you have the key"


def _run(service: Service, bound: socket.socket, tls: ServerTls | None) -> bool:
    """Serve until SIGTERM or SIGINT. Returns False if the server never came up."""
    limits = service.settings.room(ServerSettings)
    connections_max = make_room_for(limits.connections_max)
    if connections_max < limits.connections_max:
        log_line.warning(
            "the limit of open files allows fewer connections than PENSTOCK_CONNECTIONS_MAX: "
            "raise it (ulimit -n)",
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
        log_config=None,  # its lines go into our log, as other libraries' lines do
        log_level="error",  # lower levels log every request that is not HTTP
        access_log=False,
        backlog=BACKLOG,
        ssl_context_factory=(lambda *_: tls.context) if tls is not None else None,
        # Without proxies, a local client could claim any address.
        proxy_headers=bool(proxies),
        forwarded_allow_ips=proxies,
        timeout_graceful_shutdown=round(service.settings.shutdown_seconds_max),
    )
    server = _Server(service.end_soon, config)

    def stop() -> None:
        server.should_exit = True

    # uvicorn raises the signal again when it ends, which a supervisor takes for a failure. This
    # also handles a signal that comes before it listens.
    renewing = tls.renewed_on_hangup() if tls is not None else nullcontext()
    with on_end_signal(stop), renewing:
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
        """Answer waiting requests first: uvicorn waits until all have ended."""
        call_off_abort()
        self._end_soon()
        super().handle_exit(sig, frame)


def _share_memory() -> None:
    """Take what is loaded so far from the garbage collector, which would write into its memory."""
    # Each process would load these for itself.
    import cryptography.hazmat.primitives.serialization  # noqa: F401

    import penstock.backends.eventlog.local  # noqa: F401

    gc.freeze()
    atexit.register(gc.unfreeze)
