"""Train the local judge's model: `python -m penstock_jobs.rewards.followups.train`.

Writes `model.npz` beside this file; with the same examples it is the same model. Reads the train
examples only.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from penstock_jobs.rewards.followups.examples import Example, digest_of, train_examples
from penstock_jobs.rewards.followups.features import features
from penstock_jobs.rewards.followups.labels import LABELS
from penstock_jobs.rewards.followups.model import Matrix, Model, fit, quantised, softmax

#: Chosen by cross-validation on the train examples, with the weights of the features' blocks.
PENALTY = 0.1
FOLDS = 5
_TEMPERATURES = np.geomspace(0.3, 4, 60)


def train(examples: Sequence[Example]) -> Model:
    """The order of the examples decides which fold they are in, and nothing else."""
    rows = features([one.message for one in examples]).dense()
    labels = np.array([LABELS.index(one.label) for one in examples])
    kernel = rows @ rows.T
    weights = rows.T @ fit(kernel, labels, PENALTY)
    temperature = _calibrated(_out_of_fold(kernel, labels), labels)
    return quantised(weights, temperature, digest_of(examples))


def _out_of_fold(kernel: Matrix, labels: NDArray[np.intp]) -> Matrix:
    """The logits of each example by a model that was not trained on it."""
    fold = np.empty(len(labels), dtype=np.intp)
    for label in range(len(LABELS)):
        mine = np.flatnonzero(labels == label)
        fold[mine] = np.arange(len(mine)) % FOLDS
    logits = np.zeros((len(labels), len(LABELS)))
    for number in range(FOLDS):
        out, rest = fold == number, fold != number
        coefficients = fit(kernel[np.ix_(rest, rest)], labels[rest], PENALTY)
        logits[out] = kernel[np.ix_(out, rest)] @ coefficients
    return logits


def _calibrated(logits: Matrix, labels: NDArray[np.intp]) -> float:
    """The temperature under which the right labels are the least surprising."""
    own = np.arange(len(labels))
    surprise = [
        -np.log(softmax(logits / temperature)[own, labels]).mean() for temperature in _TEMPERATURES
    ]
    return float(_TEMPERATURES[int(np.argmin(surprise))])


def main() -> None:
    target = Path(__file__).with_name("model.npz")
    model = train(train_examples())
    target.write_bytes(model.to_bytes())
    sys.stdout.write(f"wrote {target.name}: temperature {model.temperature:.2f}\n")


if __name__ == "__main__":
    main()
