"""What engines say of themselves: weights before and after a call, and sampling by default."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from penstock.doors.proxy import known_engine
from penstock.doors.proxy.engine import EngineKind
from penstock.doors.proxy.known_engine import Weights, WeightSamples, default_sampling

OLD, NEW = Weights(7, "ckpt-7"), Weights(8, "ckpt-8")


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The loop's clock, by hand."""
    clock = [100.0]
    monkeypatch.setattr(asyncio.base_events.BaseEventLoop, "time", lambda _loop: clock[0])
    return clock


def asks(told: list[Weights | None]) -> Callable[[], Awaitable[Weights | None]]:
    async def ask() -> Weights | None:
        return told[-1]

    return ask


def test_a_call_under_way_at_a_change_has_both_and_the_next_one_the_new(now: list[float]) -> None:
    async def calls() -> list[list[Weights]]:
        told: list[Weights | None] = [OLD]
        samples, found = WeightSamples(asks(told)), []
        begun = [await samples.before(), await samples.before()]
        found.append(await samples.of_answer(begun[0]))
        told.append(NEW)
        found.append(await samples.of_answer(begun[1]))
        now[0] += 5
        found.append(await samples.of_answer(await samples.before()))
        return found

    assert asyncio.run(calls()) == [[OLD], [OLD, NEW], [NEW]]


def test_an_engine_that_says_nothing_for_a_while_keeps_no_call_waiting(
    now: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_engine, "_WAIT_SECONDS", 0.0)

    async def calls() -> tuple[Weights | None, list[Weights]]:
        asked = asyncio.Queue[asyncio.Future[Weights | None]]()

        async def ask() -> Weights | None:
            answer = asyncio.get_running_loop().create_future()
            asked.put_nowait(answer)
            told: Weights | None = await answer
            return told

        samples = WeightSamples(ask)
        first = asyncio.create_task(samples.before())
        (await asked.get()).set_result(OLD)
        await first
        now[0] += 5
        before = await samples.before()  # the engine is changing its weights
        after = asyncio.create_task(samples.of_answer(before))
        (await asked.get()).set_result(NEW)
        return before, await after

    assert asyncio.run(calls()) == (OLD, [OLD, NEW])


def test_who_never_says_it_leaves_it_unknown(now: list[float]) -> None:
    async def call() -> list[Weights]:
        samples = WeightSamples(asks([None]))
        return await samples.of_answer(await samples.before())

    assert asyncio.run(call()) == []


NEUTRAL = {"temperature": 1.0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}


@pytest.mark.parametrize(
    ("kind", "answer", "expected"),
    [
        ("vllm", [{"sampling_params": {}}], NEUTRAL),
        ("vllm", [{"sampling_params": {"temperature": 0.6, "top_k": 20, "seed": None, "n": 1}}],
         NEUTRAL | {"temperature": 0.6, "top_k": 20}),
        ("vllm", {"error": {"message": "no such route"}}, {}),
        ("sglang", {"sampling_defaults": "openai"}, NEUTRAL),
        ("sglang", {"sampling_defaults": "model"}, {}),
        ("sglang", {}, {}),
    ],
)  # fmt: skip
def test_defaults_are_what_the_engine_tells(
    kind: str, answer: Any, expected: dict[str, float]
) -> None:
    assert default_sampling(EngineKind(kind), json.dumps(answer).encode()) == expected
    assert default_sampling(EngineKind(kind), b"") == {}
