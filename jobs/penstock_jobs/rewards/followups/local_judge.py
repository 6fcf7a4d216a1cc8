"""The judges that need nothing but this package: features and multinomial logistic regression.

There are two. The first is as it was, so that what it computed can be computed again. The second
judges what the user says without what they paste, by the clause that it comes down to, and its
probabilities were fitted on wording that it had not seen. Their models lie beside this file;
`bench/judge_training.py` makes the second's.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import as_file, files
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from penstock_jobs.rewards.followups import features, speech_features
from penstock_jobs.rewards.followups.features import FeatureRows
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
    #: Slope and offset of the log odds of dissatisfied; (1, 0) leaves them as they are.
    calibration: tuple[float, float] = (1.0, 0.0)

    def probabilities(self, rows: FeatureRows) -> Matrix:
        logits = rows.times(self.weights.astype(np.float32) * self.scale)
        return softmax(logits / self.temperature)

    def dissatisfied(self, probabilities: Matrix) -> NDArray[np.float64]:
        chance: NDArray[np.float64] = probabilities[:, _DISSATISFIED].sum(axis=1).clip(max=1.0)
        slope, offset = self.calibration
        if (slope, offset) == (1.0, 0.0):
            return chance
        bounded = np.clip(chance, _LEAST, 1 - _LEAST)
        odds = slope * np.log(bounded / (1 - bounded)) + offset
        calibrated: NDArray[np.float64] = 1 / (1 + np.exp(-odds))
        return calibrated


def softmax(logits: Matrix) -> Matrix:
    grown = np.exp(logits - logits.max(axis=1, keepdims=True))
    result: Matrix = grown / grown.sum(axis=1, keepdims=True)
    return result


#: Probabilities nearer to 0 or 1 have no finite log odds.
_LEAST = 1e-6
#: Bounds the memory of the features, whatever the number of messages.
_BATCH = 256

_PACKAGE = files("penstock_jobs.rewards.followups")
_DISSATISFIED = [LABELS.index(label) for label in LABELS if label in DISSATISFIED]


@dataclass(frozen=True)
class Generation:
    model_file: str
    features: Callable[[Sequence[Message]], FeatureRows]
    word_lists: tuple[str, ...]
    #: Goes up whenever the same message gives other features: their code is not in the digest of
    #: the judge, the weights and the lists of words are.
    features_version: int


GENERATIONS = (
    Generation("model_1.npz", features.features, (features.CUES,), 1),
    Generation("model_2.npz", speech_features.features, (features.CUES, speech_features.SIGNS), 3),
)
NEWEST = len(GENERATIONS)


class LocalJudge:
    """Deterministic, and as quick as its features. It knows words and shapes, not meaning: how
    good it is, docs/research/rewards.md says, and `penstock rewards judge` on a team's labels."""

    name = "local"

    def __init__(self, generation: int = NEWEST, model: Model | None = None) -> None:
        self._generation = GENERATIONS[generation - 1]
        self._model = model or committed_model(generation)
        facts = hashlib.sha256(self._model.weights.tobytes())
        facts.update(self._model.scale.tobytes())
        known = (self._generation.features_version, self._model.temperature)
        calibration = self._model.calibration
        facts.update(str(known if calibration == (1.0, 0.0) else (*known, calibration)).encode())
        for name in self._generation.word_lists:
            facts.update((_PACKAGE / name).read_bytes())
        self.version = facts.hexdigest()[:12]

    def judge(self, messages: Sequence[Message]) -> list[Judgement]:
        judgements: list[Judgement] = []
        for start in range(0, len(messages), _BATCH):
            rows = self._generation.features(messages[start : start + _BATCH])
            probabilities = self._model.probabilities(rows)
            best, confidence = probabilities.argmax(axis=1), probabilities.max(axis=1)
            dissatisfied = self._model.dissatisfied(probabilities)
            columns = (
                best.tolist(), np.minimum(confidence, 1.0).tolist(), dissatisfied.tolist()
            )  # fmt: skip
            for label, sure, displeased in zip(*columns, strict=True):
                judgements.append(Judgement(LABELS[label], sure, displeased))
        return judgements


@cache
def committed_model(generation: int = NEWEST) -> Model:
    file = GENERATIONS[generation - 1].model_file
    with as_file(_PACKAGE / file) as path, np.load(path, allow_pickle=False) as arrays:
        temperature, examples = float(arrays["temperature"]), arrays["examples"].tobytes()
        slope, offset = arrays["calibration"].tolist() if "calibration" in arrays else (1.0, 0.0)
        return Model(
            arrays["weights"], arrays["scale"], temperature, examples.decode(), (slope, offset)
        )


@cache
def judge_of_version(version: str) -> LocalJudge:
    """Raises ValueError, which names the versions that there are."""
    judges = [LocalJudge(generation) for generation in range(1, NEWEST + 1)]
    for judge in judges:
        if judge.version == version:
            return judge
    known = ", ".join(judge.version for judge in judges)
    raise ValueError(f"no local judge has version {version}: there are {known}; name one of these")
