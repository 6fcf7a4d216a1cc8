import numpy as np
import pytest

from bench.judge_training import train, train_groups
from penstock_jobs.rewards.followups.local_judge import (
    committed_model,
)


def test_the_committed_model_is_the_one_of_the_committed_examples() -> None:
    made, committed = train(train_groups()), committed_model()
    assert made.examples == committed.examples
    # Another order of additions may move a weight over the border between two steps.
    assert np.abs(made.weights.astype(int) - committed.weights.astype(int)).max() <= 1
    assert np.allclose(made.scale, committed.scale, rtol=1e-3)
    assert made.temperature == pytest.approx(committed.temperature, rel=0.05)
    assert made.calibration == pytest.approx(committed.calibration, abs=0.05)
