"""The judge that needs nothing but this package: features and multinomial logistic regression.

`python -m penstock_jobs.rewards.followups.local_judge` trains its model from the train examples and
writes `model.npz` beside this file; with the same examples it is the same model.
"""

import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from penstock.terminal.output import say
from penstock_jobs.rewards.followups.evaluation import Example, digest_of, train_examples
from penstock_jobs.rewards.followups.features import FeatureRows, features
from penstock_jobs.rewards.followups.judge import DISSATISFIED, LABELS, Judgement, Message

Matrix: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Model:
    #: One row a column of the features, one column a label, as whole steps of `scale`.
    weights: NDArray[np.int8]
    scale: NDArray[np.float32]
    #: Sharpens or flattens all probabilities; does not change which label is the likeliest.
    temperature: float
    examples: str

    def probabilities(self, rows: FeatureRows) -> Matrix:
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
        with np.load(path, allow_pickle=False) as arrays:
            return cls(
                arrays["weights"],
                arrays["scale"],
                float(arrays["temperature"]),
                arrays["examples"].tobytes().decode(),
            )


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


def softmax(logits: Matrix) -> Matrix:
    grown = np.exp(logits - logits.max(axis=1, keepdims=True))
    result: Matrix = grown / grown.sum(axis=1, keepdims=True)
    return result


#: Goes up whenever `features`, `prose` or `cues` see a message differently: their code is not in
#: the digest, the weights and the lexicon are.
FEATURES_VERSION = 1
#: Bounds the memory of the features, whatever the number of messages.
_BATCH = 2_048

_PACKAGE = files("penstock_jobs.rewards.followups")
_DISSATISFIED = [LABELS.index(label) for label in LABELS if label in DISSATISFIED]


class LocalJudge:
    """Deterministic, and as quick as its features.

    It knows words and shapes, not meaning. On messages that were written after it was fixed about
    seven in ten that it calls dissatisfied are, and it finds about seven in ten of those. Its
    probabilities fit the examples, where each label is about as frequent as any other; on other
    wording they are too sure by about 15 percentage points, and in production, where far more
    follow-ups move on, its probability of dissatisfied is too high wherever it is unsure.
    """

    name = "local"

    def __init__(self, model: Model | None = None) -> None:
        self._model = model or committed_model()
        facts = hashlib.sha256(self._model.weights.tobytes())
        facts.update(self._model.scale.tobytes())
        facts.update(str((FEATURES_VERSION, self._model.temperature)).encode())
        facts.update((_PACKAGE / "cues.toml").read_bytes())
        self.version = facts.hexdigest()[:12]

    def judge(self, messages: Sequence[Message]) -> list[Judgement]:
        judgements: list[Judgement] = []
        for start in range(0, len(messages), _BATCH):
            rows = features(messages[start : start + _BATCH])
            probabilities = self._model.probabilities(rows)
            best = probabilities.argmax(axis=1).tolist()
            dissatisfied = probabilities[:, _DISSATISFIED].sum(axis=1).tolist()
            judgements += [
                Judgement(LABELS[label], confidence, min(displeased, 1.0))
                for label, confidence, displeased in zip(
                    best, probabilities.max(axis=1).tolist(), dissatisfied, strict=True
                )
            ]
        return judgements


@cache
def committed_model() -> Model:
    """`train` made it from the examples; it lies beside this file."""
    with as_file(_PACKAGE / "model.npz") as path:
        return Model.load(path)


#: Chosen by cross-validation on the train examples, with the weights of the features' blocks.
PENALTY = 0.1
FOLDS = 5
_TEMPERATURES = np.geomspace(0.3, 4, 60)


def train(examples: Sequence[Example]) -> Model:
    """The order of the examples decides which fold they are in, and nothing else."""
    rows = features([example.message for example in examples]).dense()
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
    return Model(steps, scale.astype(np.float32), temperature, digest_of(examples))


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


def main() -> None:
    target = Path(__file__).with_name("model.npz")
    model = train(train_examples())
    target.write_bytes(model.to_bytes())
    say(f"wrote {target.name}: temperature {model.temperature:.2f}")


if __name__ == "__main__":
    main()
