"""Recorded calls beside the engine's own log."""

from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.proxy.harnesses import Harness, working
from tests.support.recording_proxy import RecordingProxy, recording_proxy
from tests.support.servers.engine_process import EngineProcess, engine_process
from tests.support.waiting import eventually


def prove_exact(folder: Path, *, count: int, turns: int, restarts: int) -> None:
    """So many harnesses work at once while the engine is killed and started again: each recorded
    token is the engine's, and a session is one branch for each history."""
    with engine_process(folder) as engine, recording_proxy(engine.url, folder / "s") as proxy:
        with working(proxy.url, count, turns) as harnesses:
            for number in range(restarts):
                part = count * turns * 2 * (number + 1) // (restarts + 2)
                eventually(partial(_have_called, harnesses, part))
                engine.restart()
        calls = recorded_calls(proxy, sum(harness.calls for harness in harnesses))
        assert wrong_calls(calls, engine) == []
        assert branches(calls) == {harness.session: 2 for harness in harnesses}
        assert proxy.status()["unrecorded"] == 0


def _have_called(harnesses: list[Harness], count: int) -> bool:
    return sum(harness.calls for harness in harnesses) >= count


def recorded_calls(proxy: RecordingProxy, count: int) -> list[dict[str, Any]]:
    """Waits until so many whole calls are on disk; whole and broken ones, in their order."""

    def calls() -> list[dict[str, Any]]:
        return [each for each in proxy.recorded() if each["type"] == "model_call"]

    eventually(lambda: sum(not _is_broken(each) for each in calls()) >= count, 120)
    return calls()


def wrong_calls(calls: list[dict[str, Any]], engine: EngineProcess) -> list[str]:
    """Calls whose tokens are not those of the engine's log; a broken one has its first ones."""
    log, wrong = engine.sampled(), []
    for each in calls:
        payload = each["payload"]
        told, tokens = log[payload["call_id"]], payload.get("tokens")
        if tokens is None and _is_broken(each):
            continue
        length = len(tokens["completion_ids"]) if _is_broken(each) else len(told["ids"])
        expected = told["prompt_ids"], told["ids"][:length], told["logprobs"][:length]
        if (tokens["prompt_ids"], tokens["completion_ids"], tokens["logprobs"]) != expected:
            wrong.append(payload["call_id"])
    return wrong


def branches(calls: list[dict[str, Any]]) -> dict[str, int]:
    """Count the branches of each session, as a shard makes them. A prompt that was sent again
    replaces the answer that the engine's end kept from its harness."""
    ends: defaultdict[str, list[tuple[list[int], list[int]]]] = defaultdict(list)
    for each in calls:
        if not _is_broken(each):
            tokens, known = each["payload"]["tokens"], ends[each["session_id"]]
            prompt = tokens["prompt_ids"]
            again = [branch for branch in known if branch[0] == prompt]
            before = [branch for branch in known if prompt[: len(branch[1])] == branch[1]]
            if again or before:
                known.remove(max(again or before, key=lambda branch: len(branch[1])))
            known.append((prompt, prompt + tokens["completion_ids"]))
    return {session: len(known) for session, known in ends.items()}


def _is_broken(call: dict[str, Any]) -> bool:
    return bool(call["payload"].get("finish_reason") == "abort")
