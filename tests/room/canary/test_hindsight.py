"""Verdicts beside what users met."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.core.clock import SystemClock
from penstock.core.endpoint import Caller
from penstock.core.errors import InvalidInput
from penstock.registry.channels.promotion import gate_judge
from penstock_jobs.loop.hindsight import LOOK_BACK, HindsightAnswer, HindsightRequest
from tests.support.canary_traffic import (
    CHANNEL,
    MINUTE,
    NEW,
    POLICY,
    Behaviour,
    Plan,
    begin_canary,
    reward,
    sessions,
)
from tests.support.checkpoint_factory import TENANT, add, add_scores, promote, set_policy
from tests.support.commands import penstock
from tests.support.hindsight_world import serve_in_turn
from tests.support.lakes import HandLake, hand_lake
from tests.support.waiting import eventually

QUALITY = [0.1, 0.5, 0.3, 0.9, 0.4, 0.7, 0.2, 0.6, 0.95, 0.35, 0.8]
#: Says the least of the best ones and the most of some others, by no rule.
NOTHING = [0.5, 0.4, 0.5, 0.5, 0.7, 0.5, 0.6, 0.7, 0.5, 0.4, 0.5]


def look_back(lake: HandLake, **asked: Any) -> HindsightAnswer:
    request = HindsightRequest(**{"name": CHANNEL, "definition": "live"} | asked)
    return LOOK_BACK.work(lake.lake, Caller(TENANT, "ann"), request)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HandLake]:
    """A channel that promoted eleven checkpoints whatever the gate said."""
    with hand_lake(tmp_path_factory.mktemp("lake"), canary_settle_seconds=0.0) as lake:
        scores = {"telling": QUALITY, "blind": NOTHING}
        serve_in_turn(lake, pleased=QUALITY, scores=scores, users=40)
        yield lake


def test_a_suite_that_foretells_and_one_that_does_not_are_told_apart(served: HandLake) -> None:
    answer = look_back(served, metrics=["explicit_feedback"], margins=[0.05])
    names = [f"ckpt-{number:02}" for number in range(len(QUALITY))]
    pairs = [(pair.candidate, pair.incumbent) for pair in answer.pairs]
    assert pairs == list(zip(names[1:], names, strict=False))
    assert {pair.kind for pair in answer.pairs} == {"watch"}
    assert {pair.sessions and pair.sessions["canary"] for pair in answer.pairs} == {40}
    found = {each.offline.split()[0]: each for each in answer.metrics}
    assert found["telling"].foresight.conclusion == "foretells"
    assert found["blind"].foresight.conclusion == "not shown"
    [at] = found["telling"].margins
    assert (at.passed > 0, at.failed > 0) == (True, True)
    assert at.passed + at.undecided + at.failed == len(answer.pairs)
    assert at.passed_worse_shown == 0


def test_a_canary_is_compared_while_both_serve_and_no_longer(tmp_path: Path) -> None:
    with hand_lake(tmp_path, canary_settle_seconds=0.0) as lake:
        began = begin_canary(lake, POLICY)
        add_scores(lake.lake.database, {"ckpt-1": 0.8, NEW: 0.8})
        worse = {NEW: Behaviour(pleased=0.1, latency_ms=3_000.0)}
        lake.store(sessions(Plan(from_us=began, span_us=100_000, users=300, behaviours=worse)))
        eventually(lambda: SystemClock().now_us() > began + 200_000)
        judge = gate_judge(lake.lake.database, TENANT)
        whole = promote(lake.lake.database, NEW, judge, override=True).at
        # All users are with the new one by now, and pleased.
        after = Plan(from_us=whole + 1, span_us=10_000, users=300, prefix="later", share=1.0)
        lake.store(sessions(after))
        reward(lake, whole + MINUTE)
        answer = look_back(lake, metrics=["explicit_feedback", "latency_ms"])
    [pair] = answer.pairs
    assert pair.kind == "canary"
    assert pair.outcome == "INCONCLUSIVE"
    assert pair.sessions is not None
    assert sum(pair.sessions.values()) <= 300
    # More is better in both.
    assert pair.online["explicit_feedback"].shown == -1
    assert pair.online["latency_ms"].value == pytest.approx(-2 / 3, abs=0.1)
    [feedback, latency] = answer.metrics
    assert (feedback.online, latency.online) == ("explicit_feedback", "latency_ms")
    assert feedback.foresight.conclusion == "too few pairs"
    assert feedback.foresight.correlation is None


def test_what_the_gate_kept_out_has_no_outcome(tmp_path: Path) -> None:
    with hand_lake(tmp_path) as lake:
        add(lake.lake.database, "old", "new")
        set_policy(lake.lake.database)
        promote(lake.lake.database, "old")
        add_scores(lake.lake.database, {"old": 0.8, "new": 0.9})
        judge = gate_judge(lake.lake.database, TENANT)
        promote(lake.lake.database, "new", judge, override=True)
        answer = look_back(lake)
        with pytest.raises(InvalidInput, match="it has not run"):
            look_back(lake, metrics=["edit_persistance"])
    [pair] = answer.pairs
    assert (pair.candidate, pair.incumbent, dict(pair.online)) == ("new", "old", {})
    assert answer.metrics == []
    # No rewards have run, so their metrics are not known; columns of sessions are.
    [why] = answer.unknown
    assert "it has not run" in why


def test_the_command_shows_pairs_and_refuses_an_unknown_channel(
    served: HandLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_CANARY_SETTLE_SECONDS", "0")
    data = ("--data", str(served.lake.settings.data))
    asked = ("gate", "hindsight", "--metric", "explicit_feedback", *data)
    shown = penstock(*asked)
    assert shown.returncode == 0
    assert "10 pairs with a verdict" in shown.stderr
    assert "foretells" in shown.stdout
    unknown = penstock("gate", "hindsight", "--channel", "nowhere", *data)
    assert unknown.returncode == 2
    assert "nowhere" in unknown.stderr
