"""Claude Code and Codex work through the proxy before an engine that remembers what it sampled: a
shard of their sessions has its tokens, and no others are trained.

It runs where HARNESSES names the folder that `make harnesses` installs them into."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.access.keys import create_key
from penstock.core.settings import load_settings
from penstock.lake.lake import open_or_make
from penstock_jobs.simulator.demo.server import running_server
from tests.study.harnesses.programs import FOLDER, HARNESSES, PROGRAM, Harness
from tests.support.commands import penstock
from tests.support.proxy.captured_shards import praise, shard_rows
from tests.support.recording_proxy import recording_proxy
from tests.support.servers.scripted_answers import Document, Sampled, ScriptedAnswer, answers_before
from tests.support.servers.scripted_engine import Kind, scripted_engine
from tests.support.waiting import eventually

pytestmark = pytest.mark.skipif(FOLDER is None, reason="HARNESSES is not set: `make harnesses`")


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
@pytest.mark.parametrize("harness", HARNESSES, ids=lambda harness: harness.name)
def test_what_is_trained_is_what_the_engine_sampled(
    harness: Harness, kind: Kind, tmp_path: Path
) -> None:
    data, work, home = (tmp_path / name for name in ("data", "work", "home"))
    for folder in (work, home):
        folder.mkdir()
    (work / "calc.py").write_text(PROGRAM)
    with open_or_make(load_settings(data, environment={})) as made:
        key = create_key(made.database, "admin", "default")[1]
    answers = harness.answers(work)

    def script(request: Document) -> ScriptedAnswer:
        return answers[min(answers_before(request), len(answers) - 1)]

    with (
        running_server(data) as server,
        scripted_engine(kind, script) as engine,
        recording_proxy(
            engine.url, tmp_path / "spool", "--consent", "train", service=server.url, key=key
        ) as proxy,
    ):
        session = harness.run(proxy.url, work, home)
        eventually(lambda: calls_in(data) == len(engine.sampled))
        praise(server.url, key, tmp_path / "own", session)
    assert "a+b" in (work / "calc.py").read_text().replace(" ", "")
    assert len(engine.sampled) >= 10
    rows = shard_rows(data, tmp_path)
    assert [row["session_id"] for row in rows] == [session]
    assert list(trained_calls(rows[0], engine.sampled)) == engine.sampled


def calls_in(data: Path) -> int:
    asked = "select count(*) as calls from events where type = 'model_call'"
    ran = penstock("query", asked, "--json", "--data", str(data))
    return int(json.loads(ran.stdout)[0]["calls"])


def trained_calls(row: dict[str, Any], sampled: list[Sampled]) -> Iterator[Sampled]:
    """The calls whose answers the row trains. Each trained token is in one of them."""
    ids, mask = row["input_ids"], row["loss_mask"]
    at = 0
    while at < len(ids):
        if not mask[at]:
            at += 1
            continue
        [call] = [
            call
            for call in sampled
            if call.prompt_ids == ids[:at] and call.ids == ids[at : at + len(call.ids)]
        ]
        end = at + len(call.ids)
        assert all(mask[at:end])
        assert row["rollout_logprobs"][at:end] == pytest.approx(call.logprobs)
        yield call
        at = end
