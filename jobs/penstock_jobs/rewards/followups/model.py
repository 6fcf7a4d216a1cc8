"""Multinomial logistic regression: numbers in, probabilities of the labels out."""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from penstock_jobs.rewards.followups.features import Rows
from penstock_jobs.rewards.followups.labels import LABELS

Matrix: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Model:
    #: One row a column of the features, one column a label, as whole steps of `scale`.
    weights: NDArray[np.int8]
    scale: NDArray[np.float32]
    #: Sharpens or flattens all probabilities; does not change which label is the likeliest.
    temperature: float
    #: Of the examples that it was trained on.
    examples: str

    def probabilities(self, rows: Rows) -> Matrix:
        logits = rows.times(self.weights.astype(np.float32) * self.scale)
        return softmax(logits / self.temperature)

    def to_bytes(self) -> bytes:
        target = io.BytesIO()
        np.savez_compressed(
            target,
            weights=self.weights,
            scale=self.scale,
            temperature=np.float64(self.temperature),
            examples=np.frombuffer(self.examples.encode(), np.uint8),
        )
        return target.getvalue()

    @classmethod
    def load(cls, path: Path) -> "Model":
        with np.load(path, allow_pickle=False) as found:
            return cls(
                found["weights"],
                found["scale"],
                float(found["temperature"]),
                found["examples"].tobytes().decode(),
            )


def quantised(weights: Matrix, temperature: float, examples: str) -> Model:
    """Each label's weights in steps of 1/127 of the greatest."""
    scale = np.abs(weights).max(axis=0) / 127
    steps = np.rint(weights / scale).astype(np.int8)
    return Model(steps, scale.astype(np.float32), temperature, examples)


def fit(kernel: Matrix, labels: NDArray[np.intp], penalty: float, rounds: int = 600) -> Matrix:
    """Coefficients of the examples: the weights are their features times these.

    Weights that minimise the cross entropy plus `penalty`/2 times their squared length lie in the
    span of the examples, so that the inner products of the examples are all that is needed.
    Accelerated gradient descent from zero: the same examples give the same result.
    """
    wanted = np.eye(len(LABELS))[labels]
    step = 1 / (np.linalg.eigvalsh(kernel)[-1] / 2 + penalty)
    current = ahead = np.zeros_like(wanted)
    for number in range(rounds):
        wrong = softmax(kernel @ ahead) - wanted
        before, current = current, ahead - step * (wrong + penalty * ahead)
        ahead = current + number / (number + 3) * (current - before)
    return current


def softmax(logits: Matrix) -> Matrix:
    grown = np.exp(logits - logits.max(axis=1, keepdims=True))
    result: Matrix = grown / grown.sum(axis=1, keepdims=True)
    return result
