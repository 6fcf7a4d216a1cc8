"""A conversation of an agent that knows nothing of it becomes a shard with the engine's tokens, by
each protocol, also where harness and template write the model's answers anew."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.access.keys import create_key
from penstock.core.settings import load_settings
from penstock.lake.lake import open_or_make
from penstock_jobs.simulator.demo.server import running_server
from tests.support.proxy.captured_shards import shard_rows, stored
from tests.support.proxy.conversations import chat, setting_of
from tests.support.proxy.harnesses import ClaudeCode, Codex, Harness
from tests.support.servers.scripted_engine import Kind, ScriptedEngine


def _by_chat(url: str, session: str, stream: bool) -> None:
    chat(url, f"/s/{session}/v1/chat/completions", stream=stream)


def _by_claude_code(url: str, session: str, stream: bool) -> None:
    _work(ClaudeCode(url, session, stream))


def _by_codex(url: str, session: str, stream: bool) -> None:
    _work(Codex(url, session, stream))


def _work(harness: Harness) -> None:
    harness.turn("the streaming is broken")
    harness.turn("and now 0")


@pytest.mark.parametrize(
    ("kind", "converse", "events"),
    [
        pytest.param("vllm", _by_chat, 20, marks=pytest.mark.smoke),
        ("sglang", _by_chat, 20),
        ("vllm", _by_claude_code, 22),
        ("sglang", _by_claude_code, 22),
        ("vllm", _by_codex, 20),
    ],
)
def test_a_shard_has_what_the_engine_sampled(
    tmp_path: Path, kind: Kind, converse: Callable[[str, str, bool], None], events: int
) -> None:
    data = tmp_path / "data"
    with open_or_make(load_settings(data, environment={})) as made:
        key = create_key(made.database, "admin", "default")[1]
    with (
        running_server(data) as server,
        setting_of(
            kind, tmp_path / "spool", "--consent", "train", service=server.url, key=key
        ) as setting,
    ):
        setting.engine.writes_anew = kind == "vllm" and converse is not _by_chat
        for session, stream in (("streamed", True), ("whole", False)):
            converse(setting.proxy.url, session, stream)
        stored(setting.proxy, events, server.url, key, tmp_path / "own")
        sampled = setting.engine
    rows = shard_rows(data, tmp_path)
    assert len(rows) == 2
    for row, first in zip(rows, (0, 4), strict=True):
        _compare(row, sampled, first)


def _compare(row: dict[str, Any], engine: ScriptedEngine, first: int) -> None:
    """One branch: the last prompt and the last answer hold all that came before."""
    calls = engine.sampled[first : first + 4]
    assert row["input_ids"] == calls[-1].prompt_ids + calls[-1].ids
    trained = [at for at, is_trained in enumerate(row["loss_mask"]) if is_trained]
    assert [row["input_ids"][at] for at in trained] == [token for c in calls for token in c.ids]
    logprobs = [row["rollout_logprobs"][at] for at in trained]
    assert logprobs == pytest.approx([value for c in calls for value in c.logprobs])
    assert row["min_policy_version"] == row["max_policy_version"] == 7
    assert row["token_source"] == "engine"
