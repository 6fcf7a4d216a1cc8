"""The engine at the upstream and the weights it has, as the engine itself says."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
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


#: What was asked more lately also holds for the start of a call.
_FRESH_SECONDS = 1.0
#: A call waits no longer: an engine that changes its weights may not answer.
_WAIT_SECONDS = 1.0


class WeightSamples:
    """Samples of the weights before and after calls; answers that end together share one."""

    def __init__(self, ask: Callable[[], Awaitable[Weights | None]]) -> None:
        self._ask = ask
        #: When they were asked for last, by the event loop's clock, and what is known since.
        self._asked_s = -_FRESH_SECONDS
        self._known: Weights | None = None
        self._next: asyncio.Task[tuple[float, Weights | None]] | None = None

    async def before(self) -> Weights | None:
        """Return the weights of this moment; of an engine that is slow to say, the last known."""
        if asyncio.get_running_loop().time() - self._asked_s > _FRESH_SECONDS:
            with suppress(TimeoutError):
                async with asyncio.timeout(_WAIT_SECONDS):
                    await self._sample()
        return self._known

    async def of_answer(self, before: Weights | None) -> list[Weights]:
        """Return the weights that made an answer; the old and the new if they changed meanwhile.

        Empty if they are unknown."""
        after = await self._sample()
        if before is None or after is None:
            return []
        return [before] if before == after else [before, after]

    async def _sample(self) -> Weights | None:
        now_s = asyncio.get_running_loop().time()
        while True:
            task = self._next
            if task is None or task.done():
                task = self._next = asyncio.create_task(self._asked())
            asked_s, weights = await asyncio.shield(task)
            if asked_s >= now_s:
                return weights

    async def _asked(self) -> tuple[float, Weights | None]:
        asked_s = asyncio.get_running_loop().time()
        weights = await self._ask()
        self._asked_s, self._known = asked_s, weights or self._known
        return asked_s, weights


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


#: Sampling that changes nothing, and all that is read of an engine's.
_NEUTRAL = {"temperature": 1.0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}
_READ = (*_NEUTRAL, "top_k", "presence_penalty", "frequency_penalty")


def default_sampling(kind: EngineKind, answer: bytes) -> dict[str, float]:
    """Read what an engine does where a request says nothing; nothing if it does not tell.

    vLLM shows how it reads an empty request, without what is neutral. SGLang tells only whether it
    goes by the model's generation_config.json, and not what stands there."""
    with suppress(ValueError, LookupError, TypeError):
        told = msgspec.json.decode(answer)
        if kind is EngineKind.VLLM:
            named = told[0]["sampling_params"].items()
            return _NEUTRAL | {name: value for name, value in named if name in _READ}
        if told["sampling_defaults"] == "openai":
            return _NEUTRAL
    return {}


_ANSWER_SECONDS_MAX = 2.0
#: Longer, since an engine that changes its weights says nothing; less than the proxy's end takes.
_WEIGHTS_SECONDS_MAX = 8.0
#: A prompt is made in the queue of all prompts.
_RENDER_SECONDS_MAX = 60.0
_ANSWER_BYTES_MAX = 16 * 1024 * 1024
_PAUSE_SECONDS = 30.0
_LOGINS = (b"authorization", b"x-api-key")
_WEIGHTS = {EngineKind.VLLM: b"/weight_info", EngineKind.SGLANG: b"/model_info"}


class KnownEngine:
    """The engine at the upstream, asked with the key of the last caller."""

    def __init__(
        self, upstream: Upstream, kind: EngineKind | None, sampling: Mapping[str, float]
    ) -> None:
        """`sampling` is the operator's word on what the engine does not tell."""
        self._upstream = upstream
        self._kind = kind
        #: Defaults of the engine.
        self.sampling = dict(sampling)
        self._until_s = 0.0
        self._asking: asyncio.Task[None] | None = None
        self._login: Headers = []

    async def kind(self, headers: Headers) -> EngineKind:
        self._login = [each for each in headers if each[0] in _LOGINS]
        is_due = asyncio.get_running_loop().time() >= self._until_s
        if self._kind is not EngineKind.NONE and is_due:
            if self._asking is None or self._asking.done():
                self._asking = asyncio.create_task(self._find_out())
            if self._kind is None or not self._until_s:
                await asyncio.shield(self._asking)
        return self._kind or EngineKind.NONE

    async def weights(self) -> Weights | None:
        path = _WEIGHTS.get(self._kind or EngineKind.NONE)
        answer = await self._asked(path, seconds=_WEIGHTS_SECONDS_MAX) if path else None
        return engine_weights(answer) if answer is not None else None

    async def _find_out(self) -> None:
        try:
            models = await self.ask(b"/v1/models", seconds=_ANSWER_SECONDS_MAX) or b""
        except (UpstreamUnreachable, UpstreamBroken):  # the next call asks again
            return
        found = engine_of(models)
        if self._kind is None and found is not EngineKind.NONE:
            self._kind = found
        answer: bytes | None = None
        if self._kind is EngineKind.VLLM:
            answer = await self._asked(b"/v1/completions/render", b'{"prompt": [0]}')
        elif self._kind is EngineKind.SGLANG:
            answer = await self._asked(b"/server_info")
        self.sampling |= default_sampling(self._kind or EngineKind.NONE, answer or b"")
        self._until_s = asyncio.get_running_loop().time() + _PAUSE_SECONDS

    async def _asked(
        self, path: bytes, body: bytes = b"", seconds: float = _ANSWER_SECONDS_MAX
    ) -> bytes | None:
        with suppress(UpstreamUnreachable, UpstreamBroken):
            return await self.ask(path, body, seconds)
        return None

    async def ask(
        self, path: bytes, body: bytes = b"", seconds: float = _RENDER_SECONDS_MAX
    ) -> bytes | None:
        """Put a question to the engine; None if it refuses.

        Raises UpstreamUnreachable and UpstreamBroken."""
        headers = [*self._login, (b"accept-encoding", b"identity")]
        if body:
            length = str(len(body)).encode()
            headers += [(b"content-type", b"application/json"), (b"content-length", length)]
        try:
            async with asyncio.timeout(seconds):
                method = "POST" if body else "GET"
                connection = await self._upstream.request(method, path, headers, body)
                try:
                    status = (await connection.head()).status
                    content = b""
                    while (piece := await connection.read()) and len(content) < _ANSWER_BYTES_MAX:
                        content += piece
                    return content if status == 200 else None
                finally:
                    connection.release()
        except TimeoutError:
            why = f"no answer within {seconds:g} s"
            raise UpstreamBroken(url=self._upstream.url, why=why) from None
