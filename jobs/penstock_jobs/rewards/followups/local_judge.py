"""The judge that needs nothing but this package: features and multinomial logistic regression.

Its model lies beside this file; `bench/judge_training.py` makes it from the train examples.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import as_file, files
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

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
    #: The digest of the examples that it learned from.
    examples: str

    def probabilities(self, rows: FeatureRows) -> Matrix:
        logits = rows.times(self.weights.astype(np.float32) * self.scale)
        return softmax(logits / self.temperature)


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
            best, confidence = probabilities.argmax(axis=1), probabilities.max(axis=1)
            dissatisfied = probabilities[:, _DISSATISFIED].sum(axis=1)
            columns = (best.tolist(), confidence.tolist(), np.minimum(dissatisfied, 1.0).tolist())
            for label, sure, displeased in zip(*columns, strict=True):
                judgements.append(Judgement(LABELS[label], sure, displeased))
        return judgements


@cache
def committed_model() -> Model:
    with as_file(_PACKAGE / "model.npz") as path, np.load(path, allow_pickle=False) as arrays:
        temperature, examples = float(arrays["temperature"]), arrays["examples"].tobytes()
        return Model(arrays["weights"], arrays["scale"], temperature, examples.decode())
