import numpy as np
import pytest

from bench.judge_training import train, train_groups
from penstock_jobs.rewards.followups.local_judge import committed_model
from tests.support.labelled_messages import requests


def test_the_committed_model_is_the_one_of_the_committed_examples() -> None:
    made, committed = train(train_groups(), requests()), committed_model()
    assert made.examples == committed.examples
    for one, other in ((made.labels, committed.labels), (made.kinds, committed.kinds)):
        # Another order of additions may move a weight over the border between two steps.
        assert np.abs(one.weights.astype(int) - other.weights.astype(int)).max() <= 1
        assert np.allclose(one.scale, other.scale, rtol=1e-3)
        assert one.temperature == pytest.approx(other.temperature, rel=0.05)
    assert made.calibration == pytest.approx(committed.calibration, abs=0.05)
