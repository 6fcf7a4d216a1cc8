"""The engine at the upstream and the weights it has, as the engine itself says."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from penstock.doors.proxy.engine import EngineKind, engine_of
from penstock.doors.proxy.upstream import Headers, Upstream, UpstreamBroken, UpstreamUnreachable

_STATE_BYTES_MAX = 1024 * 1024


class Weights(NamedTuple):
    #: Of the channel; None if their name holds none.
    version: int | None
    checkpoint: str | None

    @classmethod
    def named(cls, name: str) -> "Weights":
        version, _, checkpoint = name.partition(":")
        if not version.isascii() or not version.isdecimal() or len(version) > 9:
            return cls(None, None)
        return cls(int(version), checkpoint or None)


class Sample(NamedTuple):
    """The weights at some moment after `asked_s`, by the event loop's clock."""

    asked_s: float
    weights: Weights | None


Ask = Callable[[], Awaitable[Weights | None]]


class WeightSamples:
    """Samples of the weights, taken at the end of answers; answers that end together share one.

    A sample also holds for the start of the calls that begin after it."""

    def __init__(self, ask: Ask | None) -> None:
        self._ask = ask
        self._last: Sample | None = None
        self._next: asyncio.Task[Sample] | None = None

    async def before(self) -> Sample | None:
        """The last sample, or the first one."""
        if self._ask is None:
            return None
        if self._last is None:
            await self._sample()
        return self._last

    async def of_answer(self, before: Sample | None) -> Weights | None:
        """The weights that made an answer. None if they changed meanwhile."""
        if before is None or before.weights is None:
            if self._ask is not None and before is not None:
                await self._sample()  # for the calls that begin from now on
            return None
        after = await self._sample()
        return after.weights if after.weights == before.weights else None

    async def _sample(self) -> Sample:
        now_s = asyncio.get_running_loop().time()
        while True:
            task = self._next
            if task is None or task.done():
                task = self._next = asyncio.create_task(self._asked())
            sample = await asyncio.shield(task)
            if sample.asked_s >= now_s:
                return sample

    async def _asked(self) -> Sample:
        asked_s = asyncio.get_running_loop().time()
        assert self._ask is not None
        self._last = Sample(asked_s, await self._ask())
        return self._last


def engine_weights(answer: bytes) -> Weights | None:
    with suppress(ValueError, AttributeError):
        name = msgspec.json.decode(answer).get("weight_version")
        return Weights.named(name) if isinstance(name, str) else None
    return None


async def loaded_weights(state: Path) -> Weights | None:
    with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
        # A file of a few lines on this machine.
        loaded = json.loads(state.read_bytes()[:_STATE_BYTES_MAX])["loaded"]  # noqa: ASYNC240
        return Weights(int(loaded["version"]), str(loaded["checkpoint"])) if loaded else None
    return None


_ANSWER_SECONDS_MAX = 2.0
_ANSWER_BYTES_MAX = 1024 * 1024
_PAUSE_SECONDS = 30.0
_LOGINS = (b"authorization", b"x-api-key")
_WEIGHTS = {EngineKind.VLLM: b"/weight_info", EngineKind.SGLANG: b"/model_info"}


class KnownEngine:
    """The engine at the upstream, identified once, with the key of the first caller."""

    def __init__(self, upstream: Upstream, kind: EngineKind | None) -> None:
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
