"""What the proxy learns from the engine beside the answer: defaults, versions, experts, choices."""

import base64
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.proxy.conversations import setting_of
from tests.support.recording_proxy import RecordingProxy, ask, recording_proxy
from tests.support.servers.scripted_answers import Document, ScriptedAnswer, experts_of
from tests.support.servers.scripted_engine import Kind, scripted_engine

_CHAT = "/v1/chat/completions"
_NEUTRAL = {"top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}


def said(session: str, proxy: RecordingProxy, calls: int = 1, **more: Any) -> list[Document]:
    """Asks once; the model calls that are recorded of the session."""
    request = {"model": "m", "messages": [{"role": "user", "content": "hi"}]} | more
    assert ask(proxy.url, f"/s/{session}{_CHAT}", request)[0] == 200
    events = proxy.until(session, "model_call", calls)
    return [each for each in events if each["type"] == "model_call"]


@pytest.mark.parametrize(
    ("kind", "told"),
    [("vllm", {"temperature": 0.6, "top_k": 20}), ("sglang", {"temperature": 1.0})],
)
def test_sampling_is_the_client_s_else_the_engine_s(
    tmp_path: Path, kind: Kind, told: dict[str, float]
) -> None:
    with setting_of(kind, tmp_path) as setting:
        [call] = said("silent", setting.proxy)
        assert call["payload"]["sampling"] == _NEUTRAL | told
        [call] = said("own", setting.proxy, temperature=0.2, max_tokens=99)
        assert call["payload"]["sampling"] == _NEUTRAL | told | {
            "temperature": 0.2,
            "max_tokens": 99,
        }


def test_an_operator_says_what_the_engine_does_not(tmp_path: Path) -> None:
    with setting_of("vllm", tmp_path, "--temperature", "0.9") as setting:
        [call] = said("told", setting.proxy)
        assert call["payload"]["sampling"]["temperature"] == 0.6
    with (
        scripted_engine("vllm", lambda _request: ScriptedAnswer("ok")) as engine,
        recording_proxy(engine.url, tmp_path, "--temperature", "0.9") as proxy,
    ):
        engine.defaults = None
        [call] = said("untold", proxy)
        assert call["payload"]["sampling"] == {"temperature": 0.9}


@pytest.mark.parametrize(
    ("kind", "new", "place"), [("vllm", 8, 4), ("sglang", 8, -1), ("sglang", 6, -1)]
)
def test_a_call_under_way_at_a_change_of_weights_has_both_versions(
    tmp_path: Path, kind: Kind, new: int, place: int
) -> None:
    """vLLM says where the new ones begin. Else the higher version has the last token alone."""
    text = "It streams while its weights change."
    answers = iter(
        [ScriptedAnswer(text, new_weights=(4, f"{new}:ckpt-0014")), ScriptedAnswer(text)]
    )
    with (
        scripted_engine(kind, lambda _request: next(answers)) as engine,
        recording_proxy(engine.url, tmp_path) as proxy,
    ):
        [changed] = said("changed", proxy, stream=True)
        ids = changed["payload"]["tokens"]["completion_ids"]
        runs = changed["payload"]["tokens"]["policy_version_runs"]
        assert runs == [[0, min(7, new)], [place % len(ids), max(7, new)]]
        assert changed["checkpoint"] == "ckpt-0013"
        [after] = said("after", proxy)
        assert after["payload"]["tokens"]["policy_version_runs"] == [[0, new]]
        assert after["checkpoint"] == "ckpt-0014"


def test_experts_are_kept_as_one_array(tmp_path: Path) -> None:
    with (
        scripted_engine("vllm", lambda _: ScriptedAnswer("ok then", experts=True)) as engine,
        recording_proxy(engine.url, tmp_path) as proxy,
    ):
        [call] = said("s", proxy)
        found = call["payload"]["tokens"]["routed_experts"]
        expected = experts_of(engine.sampled[0])
        array = np.frombuffer(base64.b64decode(found["data"]), found["dtype"])
        assert np.array_equal(array.reshape(found["shape"]), expected)


def test_each_choice_is_a_call_of_its_own(tmp_path: Path) -> None:
    """Also where two say the same."""
    answers = iter([ScriptedAnswer(text) for text in ("four", "five", "four")])
    with (
        scripted_engine("vllm", lambda _request: next(answers)) as engine,
        recording_proxy(engine.url, tmp_path) as proxy,
    ):
        calls = said("s", proxy, 3, n=3)
        names = [each["payload"]["call_id"] for each in calls]
        assert names == [f"chatcmpl-1:{number}" for number in range(3)]
        assert len({each["event_id"] for each in calls}) == 3
        for each, sampled in zip(calls, engine.sampled, strict=True):
            tokens = each["payload"]["tokens"]
            assert tokens["prompt_ids"] == sampled.prompt_ids
            assert tokens["completion_ids"] == sampled.ids
