"""Which engine answers at the upstream, and which weights it has: asked of itself."""

import asyncio
from contextlib import suppress

from penstock.proxy.engine import EngineKind, engine_of
from penstock.proxy.errors import UpstreamBroken, UpstreamUnreachable
from penstock.proxy.target import Headers
from penstock.proxy.upstream import Upstream
from penstock.proxy.versions import Weights, engine_weights

_ANSWER_SECONDS_MAX = 2.0
_ANSWER_BYTES_MAX = 1024 * 1024
#: After an answer that named no engine, or none at all.
_PAUSE_SECONDS = 30.0
_LOGINS = (b"authorization", b"x-api-key")
_WEIGHTS = {EngineKind.VLLM: b"/weight_info", EngineKind.SGLANG: b"/model_info"}


class KnownEngine:
    """Asked once, with the key of the first who asks for something else."""

    def __init__(self, upstream: Upstream, kind: EngineKind | None) -> None:
        """None: it is found out."""
        self._upstream = upstream
        self._kind = kind
        self._until_s = 0.0
        self._asking: asyncio.Task[None] | None = None
        self._login: Headers = []

    async def kind(self, headers: Headers) -> EngineKind:
        self._login = [each for each in headers if each[0] in _LOGINS]
        if self._kind is None and asyncio.get_running_loop().time() >= self._until_s:
            if self._asking is None or self._asking.done():
                self._asking = asyncio.create_task(self._find_out())
            await asyncio.shield(self._asking)
        return self._kind or EngineKind.NONE

    async def weights(self) -> Weights | None:
        path = _WEIGHTS.get(self._kind or EngineKind.NONE)
        answer = await self._asked(path) if path else None
        return engine_weights(answer) if answer is not None else None

    async def _find_out(self) -> None:
        answer = await self._asked(b"/v1/models")
        found = engine_of(answer) if answer is not None else EngineKind.NONE
        if found is not EngineKind.NONE:
            self._kind = found
        self._until_s = asyncio.get_running_loop().time() + _PAUSE_SECONDS

    async def _asked(self, path: bytes) -> bytes | None:
        """None where there is no such answer."""
        headers = [*self._login, (b"accept-encoding", b"identity")]
        with suppress(UpstreamUnreachable, UpstreamBroken, TimeoutError):
            async with asyncio.timeout(_ANSWER_SECONDS_MAX):
                connection = await self._upstream.request("GET", path, headers, b"")
                try:
                    status = (await connection.head()).status
                    body = b""
                    while (piece := await connection.read()) and len(body) < _ANSWER_BYTES_MAX:
                        body += piece
                    return body if status == 200 else None
                finally:
                    connection.release()
        return None
