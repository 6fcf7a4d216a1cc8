"""The plan of a run: the same for the same seed, and one that leaves everything healed."""

import pytest

from tests.study.faults.schedule import TOPIC, Fault, cards, schedule

GATEWAYS, WRITERS = ["gateway-0", "gateway-1"], ["writer-0", "writer-1", "writer-2"]
LEASE_SECONDS = 2.0
DECK = cards(GATEWAYS, WRITERS, LEASE_SECONDS)
SEEDS = range(20)


def going_on(faults: list[Fault], at_s: float) -> list[Fault]:
    return [one for one in faults if one.at_s <= at_s < one.at_s + one.for_s]


def test_a_seed_is_a_plan() -> None:
    assert schedule(7, 100, DECK) == schedule(7, 100, DECK)
    assert schedule(7, 100, DECK) != schedule(8, 100, DECK)


@pytest.mark.parametrize("seed", SEEDS)
def test_all_faults_are_over_in_time(seed: int) -> None:
    faults = schedule(seed, 60, DECK)
    assert all(one.at_s >= 0 and one.at_s + one.for_s < 60 for one in faults)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_target_has_one_fault_at_a_time_and_there_are_never_more_than_three(seed: int) -> None:
    faults = [one for one in schedule(seed, 300, DECK) if one.target != TOPIC]
    for one in faults:
        at_once = going_on(faults, one.at_s)
        assert len({other.target for other in at_once}) == len(at_once) <= 3


@pytest.mark.parametrize("seed", SEEDS)
def test_a_long_run_sees_every_fault(seed: int) -> None:
    seen = {one.kind for one in schedule(seed, 300, DECK)}
    assert seen == {card.kind for card in DECK} | {"add a partition"}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_paused_writer_loses_its_lease(seed: int) -> None:
    pauses = [
        one for one in schedule(seed, 300, DECK) if one.kind == "pause" and one.target in WRITERS
    ]
    assert pauses
    assert all(one.for_s > LEASE_SECONDS for one in pauses)
