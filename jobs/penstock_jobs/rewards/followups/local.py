"""The judge that needs nothing but this package: features and a small model."""

import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import as_file, files

from penstock_jobs.rewards.followups.features import features
from penstock_jobs.rewards.followups.judging import Judgement, Message
from penstock_jobs.rewards.followups.labels import DISSATISFIED, LABELS
from penstock_jobs.rewards.followups.model import Model

#: Goes up whenever `features`, `prose` or `cues` see a message differently: their code is not in
#: the digest, the weights and the lexicon are.
FEATURES_VERSION = 1
#: Bounds the memory of the features, whatever the number of messages.
_BATCH = 2_048

_PACKAGE = files("penstock_jobs.rewards.followups")
_DISSATISFIED = [LABELS.index(label) for label in LABELS if label in DISSATISFIED]


class LocalJudge:
    """Deterministic, and as quick as its features.

    It knows words and shapes, not meaning: what is said plainly it finds, what is only implied it
    guesses. On messages that were written after it was fixed about seven in ten that it calls
    dissatisfied are, and it finds about seven in ten of those. Where that is not enough, use `llm`.

    Its probabilities fit messages worded like the examples; on others they are too sure by about
    15 percentage points. And they are those of the examples, where every label is about as
    frequent as any other. In production far more follow-ups move on than complain: there, its
    probability of dissatisfied is too high wherever it is unsure.
    """

    name = "local"

    def __init__(self, model: Model | None = None) -> None:
        self._model = model or committed_model()
        self.version = _version_of(self._model)

    def judge(self, messages: Sequence[Message]) -> list[Judgement]:
        found: list[Judgement] = []
        for start in range(0, len(messages), _BATCH):
            found += self._judge_batch(messages[start : start + _BATCH])
        return found

    def _judge_batch(self, messages: Sequence[Message]) -> list[Judgement]:
        probabilities = self._model.probabilities(features(messages))
        best = probabilities.argmax(axis=1)
        dissatisfied = probabilities[:, _DISSATISFIED].sum(axis=1)
        judge = f"{self.name}@{self.version}"
        return [
            Judgement(
                judge=judge,
                label=LABELS[label],
                confidence=confidence,
                dissatisfied=min(displeased, 1.0),
            )
            for label, confidence, displeased in zip(
                best.tolist(),
                probabilities.max(axis=1).tolist(),
                dissatisfied.tolist(),
                strict=True,
            )
        ]


@cache
def committed_model() -> Model:
    """The one that `train` made from the examples; it lies beside this file."""
    with as_file(_PACKAGE / "model.npz") as path:
        return Model.load(path)


def _version_of(model: Model) -> str:
    found = hashlib.sha256(model.weights.tobytes())
    found.update(model.scale.tobytes())
    found.update(str((FEATURES_VERSION, model.temperature)).encode())
    found.update((_PACKAGE / "cues.toml").read_bytes())
    return found.hexdigest()[:12]
