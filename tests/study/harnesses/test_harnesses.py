"""Claude Code and Codex work through the proxy before an engine that remembers what it sampled: a
shard of their sessions has its tokens, and no others are trained.

It runs where HARNESSES names the folder that `make harnesses` installs them into."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

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
from tests.support.servers.scripted_engine import Kind, Script, scripted_engine
from tests.support.waiting import eventually

pytestmark = pytest.mark.skipif(FOLDER is None, reason="HARNESSES is not set: `make harnesses`")


class Recorded(NamedTuple):
    """What the harness called its session, what the engine sampled, and the shard's rows."""

    session: str
    sampled: list[Sampled]
    rows: list[dict[str, Any]]


def recorded(harness: Harness, kind: Kind, script: Script, here: Path, **limits: int) -> Recorded:
    """Let the harness work through the proxy."""
    data, work, home = (here / name for name in ("data", "work", "home"))
    (work / "calc.py").write_text(PROGRAM)
    home.mkdir()
    with open_or_make(load_settings(data, environment={})) as made:
        key = create_key(made.database, "admin", "default")[1]
    with (
        running_server(data) as server,
        scripted_engine(kind, script) as engine,
        recording_proxy(
            engine.url, here / "spool", "--consent", "train", service=server.url, key=key
        ) as proxy,
    ):
        session = harness.run(proxy.url, work, home, **limits)
        eventually(lambda: calls_in(data) == len(engine.sampled))
        praise(server.url, key, here / "own", session)
    assert "a+b" in (work / "calc.py").read_text().replace(" ", "")
    return Recorded(session, engine.sampled, shard_rows(data, here))


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
@pytest.mark.parametrize("harness", HARNESSES, ids=lambda harness: harness.name)
def test_what_is_trained_is_what_the_engine_sampled(
    harness: Harness, kind: Kind, tmp_path: Path, work: Path
) -> None:
    answers = harness.answers(work)

    def script(request: Document) -> ScriptedAnswer:
        return answers[min(answers_before(request), len(answers) - 1)]

    found = recorded(harness, kind, script, tmp_path)
    assert len(found.sampled) >= 10
    assert [row["session_id"] for row in found.rows] == [found.session]
    assert list(trained_calls(found.rows[0], found.sampled)) == found.sampled


@pytest.mark.parametrize("harness", HARNESSES, ids=lambda harness: harness.name)
def test_a_compaction_costs_at_most_two_branches(
    harness: Harness, tmp_path: Path, work: Path
) -> None:
    answers = harness.answers(work)
    # Enough for a compaction, by the bytes that this engine takes for tokens.
    answers[5:5] = [harness.shell(f"seq {start} {start + 3000}") for start in (1000, 5000)]
    left, summaries = iter(answers), []

    def script(request: Document) -> ScriptedAnswer:
        if harness.compaction in str(request["messages"][-1]):
            summaries.append(request)
            return ScriptedAnswer("<summary>It adds.</summary>")
        return next(left)

    found = recorded(harness, "vllm", script, tmp_path, tokens_max=40_000)
    assert summaries
    trained = [call for row in found.rows for call in trained_calls(row, found.sampled)]
    assert len(trained) == len(found.sampled)
    # Claude Code leaves the last exchange out where it asks for a summary.
    assert len(found.rows) <= 2 * len(summaries)


def calls_in(data: Path) -> int:
    """The engine's. What a harness repeats behind a compaction is a call without tokens."""
    own = "json_extract_string(payload, '$.call_id') like 'chatcmpl-%'"
    asked = f"select count(*) as calls from events where type = 'model_call' and {own}"
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
