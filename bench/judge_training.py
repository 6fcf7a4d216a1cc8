"""Trains the local judge of follow-ups: `python -m bench.judge_training`.

Multinomial logistic regression over the features of the train examples. It writes the committed
`model.npz` beside the judge; with the same examples it is the same model.
"""

import hashlib
from collections.abc import Sequence
from importlib.resources import as_file, files

import numpy as np
from numpy.typing import NDArray

from penstock_jobs.rewards.followups.features import FeatureRows, columns, features
from penstock_jobs.rewards.followups.judge import LABELS, Example, all_examples
from penstock_jobs.rewards.followups.local_judge import Matrix, Model, softmax

#: Chosen by cross-validation on the train examples, with the weights of the features' blocks.
PENALTY = 0.1
FOLDS = 5
_TEMPERATURES = np.geomspace(0.3, 4, 60)


def train_examples() -> list[Example]:
    return [example for example in all_examples() if not example.held_out]


def train(examples: Sequence[Example]) -> Model:
    """The order of the examples decides which fold they are in, and nothing else."""
    rows = _dense(features([example.message for example in examples]))
    labels = np.array([LABELS.index(example.label) for example in examples])
    kernel = rows @ rows.T
    weights = rows.T @ fit(kernel, labels, PENALTY)
    # The temperature under which the right labels are the least surprising.
    logits, own = _out_of_fold(kernel, labels), np.arange(len(labels))
    surprise = [
        -np.log(softmax(logits / temperature)[own, labels]).mean() for temperature in _TEMPERATURES
    ]
    temperature = float(_TEMPERATURES[int(np.argmin(surprise))])
    # Each label's weights in steps of 1/127 of the greatest.
    scale = np.abs(weights).max(axis=0) / 127
    steps = np.rint(weights / scale).astype(np.int8)
    digest = hashlib.sha256("".join(map(repr, examples)).encode()).hexdigest()
    return Model(steps, scale.astype(np.float32), temperature, digest)


def fit(kernel: Matrix, labels: NDArray[np.intp], penalty: float, rounds: int = 600) -> Matrix:
    """Coefficients of the examples: the weights are their features times these.

    Weights that minimise the cross entropy plus `penalty`/2 times their squared length lie in the
    span of the examples, so that the inner products of the examples are all that is needed.
    Accelerated gradient descent from zero: the same examples give the same result.
    """
    target = np.eye(len(LABELS))[labels]
    step = 1 / (np.linalg.eigvalsh(kernel)[-1] / 2 + penalty)
    current = ahead = np.zeros_like(target)
    for number in range(rounds):
        wrong = softmax(kernel @ ahead) - target
        before, current = current, ahead - step * (wrong + penalty * ahead)
        ahead = current + number / (number + 3) * (current - before)
    return current


def _dense(rows: FeatureRows) -> Matrix:
    matrix = np.zeros((rows.count, columns()))
    np.add.at(matrix, (rows.row, rows.column), rows.value)
    return matrix


def _out_of_fold(kernel: Matrix, labels: NDArray[np.intp]) -> Matrix:
    """The logits of each example by a model that was not trained on it."""
    fold = np.empty(len(labels), dtype=np.intp)
    for label in range(len(LABELS)):
        own = np.flatnonzero(labels == label)
        fold[own] = np.arange(len(own)) % FOLDS
    logits = np.zeros((len(labels), len(LABELS)))
    for number in range(FOLDS):
        out, rest = fold == number, fold != number
        coefficients = fit(kernel[np.ix_(rest, rest)], labels[rest], PENALTY)
        logits[out] = kernel[np.ix_(out, rest)] @ coefficients
    return logits


if __name__ == "__main__":
    model = train(train_examples())
    with as_file(files("penstock_jobs.rewards.followups") / "model.npz") as target:
        np.savez_compressed(
            target,
            weights=model.weights,
            scale=model.scale,
            temperature=np.float64(model.temperature),
            examples=np.frombuffer(model.examples.encode(), np.uint8),
        )
    print(f"wrote {target.name}: temperature {model.temperature:.2f}")
