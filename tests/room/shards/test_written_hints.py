"""Hints that a language model writes: one sentence, within a budget, kept with its session."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from penstock.access.privacy.erasure import carry_out, order_erasure
from penstock.access.privacy.orders import ErasureScope
from penstock.core.errors import InvalidInput
from penstock_jobs.rewards.tables import judge_answer
from penstock_jobs.shards.build import ShardBuild
from penstock_jobs.shards.recipe import load_recipe
from tests.support.engine_lake import built, rows_of
from tests.support.lakes import START_US, HandLake, hand_lake
from tests.support.rewards.followups.completions import Completions, running_completions
from tests.support.shards.hinted import faulty, write_recipe

HINTS = 'sources = ["written", "follow_up", "tool_error"]'
SENTENCE = "Look for the orders endpoint before you call one."


@pytest.fixture
def server() -> Iterator[Completions]:
    with running_completions() as running:
        running.reply = lambda _request: f" {SENTENCE}\n"
        yield running


@pytest.fixture
def lake(tmp_path: Path, server: Completions) -> Iterator[HandLake]:
    limits = {"judge_url": server.url, "judge_model": "m", "judge_requests_max": 3}
    with hand_lake(tmp_path / "data", **limits) as lake:
        lake.store(faulty().events)
        yield lake


def build(lake: HandLake, folder: Path, hints: str = HINTS) -> ShardBuild:
    return built(lake, load_recipe(write_recipe(folder / "recipes", hints)))


def test_the_model_reads_what_was_said_of_a_call_and_writes_a_sentence(
    lake: HandLake, tmp_path: Path, server: Completions
) -> None:
    shard = build(lake, tmp_path)
    assert {row["hint"] for row in rows_of(lake, shard)} == {SENTENCE}
    assert shard.manifest.counts.hints["written"] == 2
    assert (shard.manifest.hint_writer or "").startswith("m@")
    shown = [json.loads(request["messages"][1]["content"]) for request in server.requests]
    remark = "The user said of this answer: No, that is the wrong endpoint."
    assert {"remarks": [remark]} in shown
    assert build(lake, tmp_path).new is False
    assert len(server.requests) == 2  # the second build took what the first had paid for


def test_without_budget_the_next_source_counts(tmp_path: Path, server: Completions) -> None:
    limits: dict[str, Any] = {"judge_url": server.url, "judge_model": "m"}
    with hand_lake(tmp_path / "data", **limits, judge_requests_max=0) as lake:
        lake.store(faulty().events)
        counts = build(lake, tmp_path).manifest.counts.hints
    assert (counts["written_budget"], counts["follow_up"], counts["tool_error"]) == (2, 1, 1)
    assert server.requests == []


def test_what_it_wrote_is_erased_with_the_session(lake: HandLake, tmp_path: Path) -> None:
    build(lake, tmp_path)
    scope = ErasureScope("default", "session", "s", START_US + 10**12)
    carry_out(lake.lake, order_erasure(lake.lake, scope, reason="", by="tester"))
    with lake.lake.database.read() as connection:
        assert connection.execute(sa.select(judge_answer)).all() == []


def test_without_a_model_nothing_is_built(tmp_path: Path) -> None:
    with hand_lake(tmp_path / "data") as lake:
        with pytest.raises(InvalidInput, match="PENSTOCK_JUDGE_URL"):
            build(lake, tmp_path)
        assert not {one.name for one in lake.lake.store.list("shards")}
