"""The trainer of the demonstration learns what advantages say, and not further than it may."""

import importlib.util
import math
from types import ModuleType

import numpy as np
import pytest

from penstock_jobs.simulator.policy import STYLE_IDS, TASK_IDS
from tests.support.repository import ROOT

FILE = ROOT / "examples/demo/policy_gradient.py"


@pytest.fixture(scope="module")
def trainer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("policy_gradient", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def choices_of(*advantages: float) -> list[tuple[int, int, float, float]]:
    """All styles of both tasks, sampled evenly, with an advantage each."""
    sampled = -math.log(len(advantages))
    return [
        (task, style, sampled, advantage)
        for task in (0, 1)
        for style, advantage in enumerate(advantages)
    ]


def test_it_knows_the_tokens_of_the_simulator(trainer: ModuleType) -> None:
    assert trainer.TASKS == TASK_IDS
    assert min(STYLE_IDS.values()) == trainer.STYLES_FROM
    assert list(STYLE_IDS.values()) == [trainer.STYLES_FROM + at for at in range(len(STYLE_IDS))]


def test_what_was_better_than_the_rest_becomes_likelier(trainer: ModuleType) -> None:
    learned = trainer.train(np.zeros((2, 3)), choices_of(1.0, 0.0, -1.0), furthest=0.2)
    for policy in trainer.softmax(learned):
        assert policy[0] > 1 / 3 > policy[2]
        assert policy[0] > policy[1] > policy[2]


def test_it_goes_as_far_as_it_may(trainer: ModuleType) -> None:
    logits, tasks = np.zeros((2, 3)), np.array([0, 1])
    choices = choices_of(1.0, 0.0, -1.0)
    gone = [
        trainer.divergence(
            trainer.softmax(logits),
            trainer.softmax(trainer.train(logits, choices, furthest=furthest)),
            tasks,
        )
        for furthest in (0.05, 0.3)
    ]
    assert 0.05 <= gone[0] < 0.1
    assert 0.3 <= gone[1] < 0.4
