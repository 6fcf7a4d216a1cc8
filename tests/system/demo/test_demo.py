"""The demonstration keeps what it promises: a real model learns from what users did, on the tokens
that it sampled, and the gate stops a hack."""

from pathlib import Path

import pytest
from sqlalchemy import select

from penstock.events.event import TENANT_DEFAULT
from penstock.lake.lake import open_existing
from penstock.registry.channels.channel import channel_state
from penstock.shards.tables import shard
from penstock_jobs.simulator.demo.player import CHANNEL
from penstock_jobs.simulator.demo.story import ACTS, Chapter
from tests.support.demo_cycles import play_story, sampled_by_engines, trained_calls
from tests.support.suite_factory import need_isolation


@pytest.mark.long
def test_it_learns_and_the_gate_stops_what_a_hole_in_the_reward_teaches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_isolation()
    story = play_story(tmp_path / "demo", ACTS[:2], monkeypatch)
    learned, hacked = story.chapters
    assert (learned.verdict, learned.outcome) == ("PASS", "promoted")
    assert (hacked.verdict, hacked.outcome) == ("FAIL", "refused")
    assert_better(learned.score, learned.score_before)
    assert_better(hacked.score_before, hacked.score)
    for chapter in story.chapters:
        assert_close(chapter)
    assert any("the verdict on demo-0002 is FAIL" in line for line in story.told)
    with open_existing(story.folders.data) as lake:
        serving = channel_state(lake.database, TENANT_DEFAULT, CHANNEL).checkpoint
        with lake.database.read() as connection:
            shards = connection.scalars(select(shard.c.id)).all()
    assert serving == learned.checkpoint == hacked.parent == "demo-0001"

    sampled = sampled_by_engines(story.folders)
    assert len(shards) == 2
    for each in shards:
        calls = trained_calls(story.folders.data, each)
        assert len(calls) > 180
        for prompt, tokens, logprobs in calls:
            assert (tokens, logprobs) in sampled[prompt]


def assert_better(one: float | None, other: float | None) -> None:
    assert one is not None
    assert other is not None
    assert one > other + 0.05


def assert_close(chapter: Chapter) -> None:
    """What is measured and what is true."""
    assert chapter.measured.kept == pytest.approx(chapter.known.kept, abs=0.03)
    # The judge alone is off by a tenth, as the demo says; labels correct the rate.
    assert chapter.measured.dissatisfied == pytest.approx(chapter.known.dissatisfied, abs=0.15)
