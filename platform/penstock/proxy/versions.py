"""Which weights made an answer, by what the engine or its sidecar said before and after it.

Versions of a channel only grow, rollbacks included. Weights that were the same before an answer
began and after it ended are therefore those of all its tokens."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

_STATE_BYTES_MAX = 1024 * 1024


class Weights(NamedTuple):
    #: Of the channel; None where their name has none.
    version: int | None
    checkpoint: str | None

    @classmethod
    def named(cls, name: str) -> "Weights":
        """By the name that the scripts in examples/serving give them, such as `7:ckpt-0013`."""
        version, _, checkpoint = name.partition(":")
        if not version.isascii() or not version.isdecimal() or len(version) > 9:
            return cls(None, None)
        return cls(int(version), checkpoint or None)


class Sample(NamedTuple):
    """What the weights were at some moment between these two, by the clock of the event loop."""

    asked_s: float
    told_s: float
    weights: Weights | None


Ask = Callable[[], Awaitable[Weights | None]]


class WeightSamples:
    """Asks at the end of answers, once for all that ended meanwhile. What was told at the end of
    one is what was before those that began since."""

    def __init__(self, ask: Ask | None) -> None:
        self._ask = ask
        self._last: Sample | None = None
        self._next: asyncio.Task[Sample] | None = None

    async def before(self) -> Sample | None:
        """Told before this moment; asked for once, at the first."""
        if self._ask is None:
            return None
        if self._last is None:
            await self._sample()
        return self._last

    async def of_answer(self, before: Sample | None) -> Weights | None:
        """Of an answer that ended just now. None: they changed meanwhile, or nobody said."""
        if before is None or before.weights is None:
            if self._ask is not None and before is not None:
                await self._sample()  # for those that begin from now on
            return None
        after = await self._sample()
        return after.weights if after.weights == before.weights else None

    async def _sample(self) -> Sample:
        """One that is asked for from now on."""
        now_s = asyncio.get_running_loop().time()
        while True:
            task = self._next
            if task is None or task.done():
                task = self._next = asyncio.create_task(self._asked())
            sample = await asyncio.shield(task)
            if sample.asked_s >= now_s:
                return sample

    async def _asked(self) -> Sample:
        loop = asyncio.get_running_loop()
        asked_s = loop.time()
        assert self._ask is not None
        weights = await self._ask()
        self._last = Sample(asked_s, loop.time(), weights)
        return self._last


def engine_weights(answer: bytes) -> Weights | None:
    """By what `/weight_info` of vLLM or `/model_info` of SGLang says."""
    with suppress(ValueError, AttributeError):
        name = msgspec.json.decode(answer).get("weight_version")
        return Weights.named(name) if isinstance(name, str) else None
    return None


async def loaded_weights(state: Path) -> Weights | None:
    """By the file in which `penstock channels follow` keeps what it loaded; None while it loads."""
    with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
        # A file of some lines, in a folder of this machine.
        loaded = json.loads(state.read_bytes()[:_STATE_BYTES_MAX])["loaded"]  # noqa: ASYNC240
        return Weights(int(loaded["version"]), str(loaded["checkpoint"])) if loaded else None
    return None
