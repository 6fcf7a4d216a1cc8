"""The proxy as an application, served on a socket until a signal."""

import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import structlog
import uvicorn

from penstock.backends.http.address import HttpAddress
from penstock.backends.terminal.interruption import on_end_signal
from penstock.doors.proxy.dialogue import Labels, target_of
from penstock.doors.proxy.engine import EngineKind
from penstock.doors.proxy.exchange import Exchange, Exchanges, Receive, Scope, Send, send_json
from penstock.doors.proxy.known_engine import KnownEngine, WeightSamples, loaded_weights
from penstock.doors.proxy.transcription_process import RecordingPlan, TranscriptionProcess
from penstock.doors.proxy.upstream import Upstream
from penstock.doors.server.wire import BACKLOG, ConnectionCounts, bounded_protocol, make_room_for

log_line = structlog.get_logger()

#: The proxy's own path; all others are the upstream's.
STATUS_PATH = "/penstock/status"
_CONNECTIONS_MAX = 8_192
_END_SECONDS = 10
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))


class ProxyPlan(msgspec.Struct, frozen=True, kw_only=True):
    upstream: HttpAddress
    engine: EngineKind | None = None
    labels: Labels = msgspec.field(default_factory=Labels)
    #: File in which `penstock channels follow` names what it loaded.
    serving_state: Path | None = None
    #: Sampling by default, where the engine does not tell it.
    sampling: Mapping[str, float] = msgspec.field(default_factory=dict)


class ProxyApp:
    def __init__(self, plan: ProxyPlan, recording: RecordingPlan) -> None:
        self._plan = plan
        self._upstream = Upstream(plan.upstream)
        engine = KnownEngine(self._upstream, plan.engine, plan.sampling)
        state = plan.serving_state
        ask = engine.weights if state is None else lambda: loaded_weights(state)
        self.transcription = TranscriptionProcess(recording)
        self._shared = Exchanges(self._upstream, engine, self.transcription, WeightSamples(ask))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, query = scope["raw_path"], scope["query_string"]
        if scope["method"] not in _METHODS:
            await send_json(
                send, 405, {"error": {"message": "the proxy does not pass this method"}}
            )
            return
        if scope["path"] == STATUS_PATH:
            await send_json(send, 200, self.status())
            return
        target = target_of(scope["method"], path, query, scope["headers"], self._plan.labels)
        await Exchange(self._shared, target, scope, receive, send).run()

    def status(self) -> dict[str, Any]:
        return {
            "open": self._shared.open,
            "calls": self._shared.calls,
            "unrecorded": self._shared.unrecorded + self.transcription.dropped,
            "new_branches": dict(self._shared.continuations.reasons),
            "waiting_bytes": self.transcription.waiting_bytes,
            "events": self.transcription.counts,
        }

    async def close(self) -> None:
        self._upstream.close()
        await self.transcription.close()


def serve_proxy(
    plan: ProxyPlan, recording: RecordingPlan, bound: socket.socket, ready: Callable[[], None]
) -> dict[str, Any]:
    app = ProxyApp(plan, recording)
    room = make_room_for(2 * _CONNECTIONS_MAX) // 2
    config = uvicorn.Config(
        app,
        http=bounded_protocol(ConnectionCounts(room, room)),
        ws="none",
        loop="uvloop",
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        backlog=BACKLOG,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_END_SECONDS,
    )
    server = _ProxyServer(config, app, ready)

    def stop() -> None:
        server.should_exit = True

    with on_end_signal(stop):
        server.run(sockets=[bound])
    return app.status()


class _ProxyServer(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, app: ProxyApp, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._app, self._ready = app, ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self._app.transcription.start()
        await super().startup(sockets=sockets)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets=sockets)
        await self._app.close()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.should_exit = True
