"""The proxy before a vLLM, on the CPU: a conversation that it recorded becomes a shard whose tokens
are those that the engine says it sampled, and nobody notices that there is a proxy.

It runs where VLLM_PYTHON names the Python of an environment with vLLM, as `make engines` does.
"""

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from penstock.access.keys import create_key
from penstock.core.settings import load_settings
from penstock.lake.lake import open_or_make
from penstock_jobs.simulator.demo.server import running_server
from tests.study.fleet import vllm_server
from tests.support.proxy.captured_shards import shard_rows, stored
from tests.support.proxy.conversations import chat_message
from tests.support.proxy.harnesses import said_in_messages, said_in_responses
from tests.support.proxy.recorded_calls import recorded_calls
from tests.support.recording_proxy import ask, recording_proxy
from tests.support.servers.child import end_child, start_child
from tests.support.servers.ports import free_port
from tests.support.waiting import eventually

PYTHON = vllm_server.python()
pytestmark = pytest.mark.skipif(PYTHON is None, reason="VLLM_PYTHON is not set: `make engines`")
_START_SECONDS_MAX = 600
_CHAT = "/v1/chat/completions"
#: What differs between two answers to one request.
_OWN = re.compile(rb'"id":"[^"]*"|"created":\d+|"created_at":\d+|"[a-z]+_[0-9a-f]{16,}"')


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with _serving(tmp_path_factory.mktemp("engine"), words=512) as url:
        yield url


@pytest.fixture(scope="module")
def engine_of_turns(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with _serving(tmp_path_factory.mktemp("turns"), words=16) as url:
        yield url


@contextmanager
def _serving(here: Path, words: int) -> Iterator[str]:
    program = Path(__file__).with_name("tiny_chat_model.py")
    subprocess.run([str(PYTHON), str(program), str(here / "model"), str(words)], check=True)
    url = f"http://127.0.0.1:{free_port()}"
    settings = {
        "VLLM_SERVER_DEV_MODE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "VLLM_CACHE_ROOT": str(here / "cache"),
    }  # fmt: skip
    facts = {
        "--model": str(here / "model"), "--served-model-name": "m", "--host": "127.0.0.1",
        "--port": url.rpartition(":")[2], "--dtype": "float32", "--max-model-len": "512",
        "--max-num-seqs": "8", "--logprobs-mode": "processed_logprobs",
    }  # fmt: skip
    named = [f"{name}={value}" for name, value in settings.items()]
    options = [part for fact in facts.items() for part in fact]
    program_of = [str(PYTHON), "-m", "vllm.entrypoints.openai.api_server", "--enforce-eager"]
    log = here / "vllm.log"
    child = start_child(["env", *named, *program_of, *options], log=log)

    def is_up() -> bool:
        assert child.poll() is None, log.read_text(errors="replace")[-3_000:]
        try:
            return ask(url, "/v1/models", method="GET")[0] == 200
        except ConnectionError:
            return False

    try:
        eventually(is_up, _START_SECONDS_MAX)
        ask(url, "/update_weight_version", {"new_version": "3:ckpt-real"})
        yield url
    finally:
        end_child(child, signal.SIGTERM, 60)


def _request(messages: list[dict[str, Any]], *, stream: bool) -> dict[str, Any]:
    request: dict[str, Any] = {"model": "m", "messages": messages, "temperature": 0}
    request |= {"max_tokens": 12, "seed": 1}
    return request | ({"stream": True} if stream else {})


@pytest.mark.parametrize(
    ("path", "request_"),
    [
        (_CHAT, {"messages": [{"role": "user", "content": "t5 t6"}], "max_tokens": 9}),
        (_CHAT, {"messages": [{"role": "user", "content": "t5"}], "max_tokens": 3, "logprobs": 1}),
        ("/v1/completions", {"prompt": "t5 t6", "max_tokens": 9}),
        ("/v1/completions", {"prompt": [5, 6], "max_tokens": 9}),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_client_gets_what_the_engine_would_say_to_it_alone(
    engine: str, tmp_path: Path, path: str, request_: dict[str, Any], stream: bool
) -> None:
    body = {"model": "m", "temperature": 0} | request_ | ({"stream": True} if stream else {})
    with recording_proxy(engine, tmp_path) as proxy:
        there, here = ask(engine, path, body), ask(proxy.url, f"/s/bytes{path}", body)
    assert there[0] == here[0] == 200, here[2]
    assert _OWN.sub(b"", here[2]) == _OWN.sub(b"", there[2])


def test_a_shard_has_what_the_engine_sampled(engine: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with open_or_make(load_settings(data, environment={})) as made:
        key = create_key(made.database, "admin", "default")[1]
    said: list[tuple[list[int], list[int], list[float]]] = []
    with (
        running_server(data) as server,
        recording_proxy(
            engine, tmp_path / "spool", "--consent", "train", service=server.url, key=key
        ) as proxy,
    ):
        for session, stream in (("streamed", True), ("whole", False)):
            messages: list[dict[str, Any]] = []
            for turn in range(3):
                messages.append({"role": "user", "content": f"t{turn + 4} t9"})
                request = _request(messages, stream=stream)
                body = ask(proxy.url, f"/s/{session}{_CHAT}", request)[2]
                message = chat_message(body, stream=stream)
                if stream:
                    said.append(_sampled(engine, messages))
                messages.append({"role": "assistant", "content": message["content"]})
        stored(proxy, 14, server.url, key, tmp_path / "own")
    rows = shard_rows(data, tmp_path)
    assert len(rows) == 2
    prompt, ids, _ = said[-1]
    for row in rows:
        assert row["input_ids"] == prompt + ids
        trained = [at for at, is_trained in enumerate(row["loss_mask"]) if is_trained]
        assert [row["input_ids"][at] for at in trained] == [t for _, told, _ in said for t in told]
        logprobs = [row["rollout_logprobs"][at] for at in trained]
        assert logprobs == pytest.approx([v for _, _, values in said for v in values], abs=1e-3)
        assert row["min_policy_version"] == row["max_policy_version"] == 3
        assert row["checkpoint_id"] == "ckpt-real"


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_continues_what_the_engine_sampled(
    engine_of_turns: str, tmp_path: Path, stream: bool
) -> None:
    """By Claude Code's protocol and by Codex's; an answer that was cut off begins a branch."""
    with recording_proxy(engine_of_turns, tmp_path) as proxy:
        said: list[dict[str, Any]] = []
        items: list[dict[str, Any]] = []
        for turn in range(4):
            said.append({"role": "user", "content": f"t{turn + 4} t9"})
            body = {"model": "m", "max_tokens": 90, "system": "t6", "stream": stream}
            answer = ask(proxy.url, "/s/claude/v1/messages", body | {"messages": said})
            assert answer[0] == 200, answer[2]
            blocks = said_in_messages(answer[2], stream=stream)
            said.append({"role": "assistant", "content": blocks})
            items.append({"role": "user", "content": f"t{turn + 4} t9"})
            body = {"model": "m", "max_output_tokens": 90, "instructions": "t6", "stream": stream}
            answer = ask(proxy.url, "/s/codex/v1/responses", body | {"input": items})
            assert answer[0] == 200, answer[2]
            items += said_in_responses(answer[2], stream=stream)["output"]
        calls = recorded_calls(proxy, 8)
    for session in ("claude", "codex"):
        own = [each["payload"] for each in calls if each["session_id"] == session]
        for before, call in pairwise(own):
            known = before["tokens"]["prompt_ids"] + before["tokens"]["completion_ids"]
            goes_on = call["tokens"]["prompt_ids"][: len(known)] == known
            assert goes_on or before["finish_reason"] == "length" or not before.get("text")
            assert len(call["tokens"]["logprobs"]) == len(call["tokens"]["completion_ids"])


def _sampled(
    engine: str, messages: list[dict[str, Any]]
) -> tuple[list[int], list[int], list[float]]:
    """What the engine itself says of the same question."""
    asked = _request(messages, stream=False) | {"return_token_ids": True, "logprobs": True}
    told = json.loads(ask(engine, _CHAT, asked)[2])
    [choice] = told["choices"]
    logprobs = [each["logprob"] for each in choice["logprobs"]["content"]]
    return told["prompt_token_ids"], choice["token_ids"], logprobs
