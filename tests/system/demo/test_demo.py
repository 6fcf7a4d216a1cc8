"""The demonstration keeps what it promises: it learns, the gate stops a hack, a bad checkpoint is
taken back, and the same seed tells the same story."""

import os
import sys
from pathlib import Path

import pytest

from penstock.events.event import TENANT_DEFAULT
from penstock.lake.lake import open_existing
from penstock.registry.channels.channel import channel_state
from penstock_jobs.simulator.demo.player import CHANNEL, Player, make_folders
from penstock_jobs.simulator.demo.server import running_server
from penstock_jobs.simulator.demo.story import ACTS, Chapter
from tests.support.suite_factory import need_isolation


@pytest.mark.long
def test_it_learns_and_the_gate_stops_what_a_hole_in_the_reward_teaches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_isolation()
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    folders = make_folders(tmp_path / "demo")
    told: list[str] = []
    with (
        folders.log.open("wb") as log,
        running_server(folders.data, log=log) as server,
        open_existing(folders.data) as lake,
    ):
        player = Player(
            lake=lake, server=server, folders=folders, seed=11, sessions=220, tell=told.append
        )
        player.begin()
        learned, hacked = player.play(ACTS[:2], go_on=lambda: True)
        serving = channel_state(lake.database, TENANT_DEFAULT, CHANNEL).checkpoint
    assert (learned.verdict, learned.outcome) == ("PASS", "promoted")
    assert (hacked.verdict, hacked.outcome) == ("FAIL", "refused")
    assert serving == learned.checkpoint == hacked.parent == "demo-0001"
    assert_better(learned.score, learned.score_before)
    assert_better(hacked.score_before, hacked.score)
    for chapter in (learned, hacked):
        assert_close(chapter)
    assert any("the verdict on demo-0002 is FAIL" in line for line in told)


def assert_better(one: float | None, other: float | None) -> None:
    assert one is not None
    assert other is not None
    assert one > other + 0.05


def assert_close(chapter: Chapter) -> None:
    """What is measured and what is true."""
    assert chapter.measured.kept == pytest.approx(chapter.known.kept, abs=0.02)
    # The judge alone is off by a tenth, as the demo says; labels correct the rate.
    assert chapter.measured.dissatisfied == pytest.approx(chapter.known.dissatisfied, abs=0.15)
