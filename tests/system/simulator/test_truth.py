"""What rewards say of simulated sessions, and what is true of them. `make simulator-study` does the
same with many more."""

from itertools import chain, pairwise
from pathlib import Path

import numpy as np
import pytest

from penstock_jobs.simulator.journal import SimulatedSession
from penstock_jobs.simulator.production import CHECKPOINTS, Production
from penstock_jobs.simulator.truth import EditTruth
from tests.support.simulator.agreement import HORIZON_S, Measured, Pair, errors, measure

SESSIONS = 450


@pytest.fixture(scope="module")
def lived() -> list[SimulatedSession]:
    return list(chain.from_iterable(Production(7).sessions(SESSIONS)))


@pytest.fixture(scope="module")
def measured(lived: list[SimulatedSession], tmp_path_factory: pytest.TempPathFactory) -> Measured:
    return measure(tmp_path_factory.mktemp("simulated") / "lake", lived)


def test_persistence_is_what_survived(lived: list[SimulatedSession], measured: Measured) -> None:
    wrong = np.abs(errors(measured, lived))
    assert wrong.size > 1_500
    assert wrong.mean() <= 0.02
    assert np.quantile(wrong, 0.99) <= 0.1


def test_lines_survive_as_the_simulator_counts_them(
    lived: list[SimulatedSession], measured: Measured
) -> None:
    wrong = [
        abs(value - true[1])
        for one, edit, horizon_s, true in survivals(lived)
        for _, value, _ in [measured.lines[one, edit.edit_id, horizon_s]]
        if value is not None
    ]
    assert np.mean(wrong) <= 0.01


def test_what_somebody_looked_at_is_scored(
    lived: list[SimulatedSession], measured: Measured
) -> None:
    states = [
        measured.edits[one, edit.edit_id, horizon_s][0]
        for one, edit, horizon_s, _ in survivals(lived)
        if horizon_s in edit.looked
    ]
    assert states.count("scored") >= 0.99 * len(states)


def survivals(
    lived: list[SimulatedSession],
) -> list[tuple[str, EditTruth, int, tuple[float, float]]]:
    return [
        (one.truth.session_id, edit, horizon_s, true)
        for one in lived
        for edit in one.truth.edits
        for horizon_s, true in edit.survival.items()
        if true is not None
    ]


def test_outcomes_are_those_of_the_truth(lived: list[SimulatedSession], measured: Measured) -> None:
    """The judge may take small talk for an opinion, and an opinion for small talk."""
    agree = [
        kind == one.truth.outcome and one.truth.reason in (None, reason)
        for one in lived
        for kind, reason in [measured.outcomes[one.truth.session_id]]
    ]
    assert np.mean(agree) > 0.95


def test_the_judge_is_mostly_right_about_dissatisfaction(
    lived: list[SimulatedSession], measured: Measured
) -> None:
    """It is a small model: what it must do is tell the two apart."""
    found: dict[bool, list[bool]] = {True: [], False: []}
    for one in lived:
        for request in one.truth.requests:
            said = measured.dissatisfied.get((one.truth.session_id, str(request.request)))
            if said is not None and request.dissatisfied is not None:
                found[request.dissatisfied].append(said > 0.5)
    assert np.mean(found[True]) > 0.75
    assert np.mean(found[False]) < 0.2


def test_checkpoints_rank_as_they_are_worth(
    lived: list[SimulatedSession], measured: Measured
) -> None:
    worth: list[float] = []
    reward: list[float] = []
    persistence: list[float] = []
    for checkpoint in CHECKPOINTS:
        those = [one for one in lived if one.truth.checkpoint == checkpoint.name]
        ids = [one.truth.session_id for one in those]
        worth.append(float(np.mean([one.truth.worth for one in those])))
        reward.append(float(np.mean([measured.worth[one] for one in ids if one in measured.worth])))
        known = [measured.sessions.get((one, HORIZON_S)) for one in ids]
        persistence.append(float(np.mean([one for one in known if one is not None])))
    for values in (worth, reward, persistence):
        assert all(one < other for one, other in pairwise(values))


def test_intervals_of_a_difference_hold_the_truth_as_often_as_they_say(tmp_path: Path) -> None:
    """Of 40 seeds 38 should; fewer than 34 happens by chance in 1 of 300."""
    pair = Pair.of("weak", "good", 2_500)
    found = list(pair.tried(tmp_path / "lake", range(40), 50))
    assert sum(one.persistence for one in found) >= 34
    assert sum(one.negative for one in found) >= 34
