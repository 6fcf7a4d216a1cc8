"""The local judge of follow-ups: multinomial logistic regression over features of messages.

`bench/judge_training.py` trains its model."""

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from importlib.resources import as_file, files
from itertools import islice
from typing import Generic, TypeAlias, TypeVar

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from penstock_jobs.rewards.followups.features import CUES, SIGNS, FeatureRows, features
from penstock_jobs.rewards.followups.judge import DISSATISFIED, LABELS, Judgement, Label, Message

Matrix: TypeAlias = NDArray[np.float64]
MODEL_FILE, KIND_WORDS = "model.npz", "kinds.toml"
#: Grows whenever the same message gives other features. The digest of the judge covers weights and
#: word lists, but not the code of features.
_FEATURES_VERSION = 4
#: Probabilities nearer to 0 or 1 have no finite log odds.
_LEAST = 1e-6
_BATCH = 256
#: About 10 MB. Above that all are forgotten.
_ANSWERS_REMEMBERED = 1 << 16
_PACKAGE = files("penstock_jobs.rewards.followups")
#: The first sentence of a message that goes on. Where it surely complains of the work, it counts:
#: what follows is often the next request. A failure in it may be what the request is about.
_OPENING = re.compile(r"\s*([^.!?。！？\n]{2,80}[.!?。！？\n]+)\s+(?=\S.{15})", re.DOTALL)  # noqa: RUF001
_OPENING_SURE = 0.65
_TOLD_AT_ONCE: frozenset[Label] = DISSATISFIED - {"reports_failure"}
_DISSATISFIED = [LABELS.index(label) for label in LABELS if label in DISSATISFIED]


@dataclass(frozen=True, slots=True)
class LinearModel:
    #: A row for each feature, a column for each class, in steps of `scale`.
    weights: NDArray[np.int8]
    scale: NDArray[np.float32]
    #: Sharpens or flattens all probabilities, without changing the likeliest class.
    temperature: float

    def probabilities(self, rows: FeatureRows) -> Matrix:
        logits = rows.times(self.weights.astype(np.float32) * self.scale)
        return softmax(logits / self.temperature)


@dataclass(frozen=True, slots=True)
class Model:
    labels: LinearModel
    kinds: LinearModel
    #: A digest of the examples that it learned from.
    examples: str
    #: Slope and offset of the log odds of dissatisfied.
    calibration: tuple[float, float]

    def dissatisfied(self, probabilities: Matrix) -> NDArray[np.float64]:
        chance = probabilities[:, _DISSATISFIED].sum(axis=1)
        bounded = np.clip(chance, _LEAST, 1 - _LEAST)
        slope, offset = self.calibration
        odds = slope * np.log(bounded / (1 - bounded)) + offset
        calibrated: NDArray[np.float64] = 1 / (1 + np.exp(-odds))
        return calibrated


def softmax(logits: Matrix) -> Matrix:
    grown = np.exp(logits - logits.max(axis=1, keepdims=True))
    result: Matrix = grown / grown.sum(axis=1, keepdims=True)
    return result


AskedT = TypeVar("AskedT")
AnswerT = TypeVar("AnswerT")


class AnswerMemory(Generic[AskedT, AnswerT]):
    """Keeps answers by a hash of what was asked, and asks only about what is new.

    A session is computed again whenever a horizon matures, and its messages stay the same."""

    def __init__(self, answer: Callable[[Sequence[AskedT]], Sequence[AnswerT]]) -> None:
        self._answer = answer
        self._known: dict[bytes, AnswerT] = {}

    def answers(self, asked: Sequence[AskedT]) -> list[AnswerT]:
        keys = [blake2b(repr(each).encode(), digest_size=16).digest() for each in asked]
        known = self._known if len(self._known) < _ANSWERS_REMEMBERED else {}
        self._known = known
        new = {key: each for key, each in zip(keys, asked, strict=True) if key not in known}
        fresh = iter(new.items())
        while batch := dict(islice(fresh, _BATCH)):
            known |= zip(batch, self._answer(list(batch.values())), strict=True)
        return [known[key] for key in keys]


class LocalJudge:
    """A judge that knows words and shapes, not meaning. Quality: bench/pages/rewards.md."""

    name = "local"

    def __init__(self) -> None:
        self._model = model = committed_model()
        facts = hashlib.sha256(str((_FEATURES_VERSION, model.calibration)).encode())
        for linear in (model.labels, model.kinds):
            facts.update(linear.weights.tobytes() + linear.scale.tobytes())
            facts.update(str(linear.temperature).encode())
        for name in (CUES, SIGNS, KIND_WORDS):
            facts.update((_PACKAGE / name).read_bytes())
        self.version = facts.hexdigest()[:12]

        self._memory = AnswerMemory(self._judge)

    def judge(self, messages: Sequence[Message]) -> list[Judgement]:
        return self._memory.answers(messages)

    def _judge(self, messages: Sequence[Message]) -> list[Judgement]:
        whole = self._read(messages)
        openings = [
            (n, found[1]) for n, each in enumerate(messages) if (found := _OPENING.match(each.text))
        ]
        first = self._read([replace(messages[n], text=text) for n, text in openings])
        for (n, _), own in zip(openings, first, strict=True):
            told = own.label in _TOLD_AT_ONCE and own.dissatisfied >= _OPENING_SURE
            if told and own.dissatisfied > whole[n].dissatisfied:
                whole[n] = own
        return whole

    def _read(self, messages: Sequence[Message]) -> list[Judgement]:
        if not messages:
            return []
        chances = self._model.labels.probabilities(features(messages))
        sure = np.minimum(chances.max(axis=1), 1.0).tolist()
        displeased = self._model.dissatisfied(chances).tolist()
        best = (LABELS[label] for label in chances.argmax(axis=1))
        return list(map(Judgement, best, sure, displeased))


@cache
def committed_model() -> Model:
    with as_file(_PACKAGE / MODEL_FILE) as path, np.load(path, allow_pickle=False) as arrays:
        slope, offset = arrays["calibration"].tolist()
        labels, kinds = (
            LinearModel(
                arrays[f"{name}_weights"],
                arrays[f"{name}_scale"],
                float(arrays[f"{name}_temperature"]),
            )
            for name in ("label", "kind")
        )
        return Model(labels, kinds, arrays["examples"].tobytes().decode(), (slope, offset))


@cache
def local_judge() -> LocalJudge:
    return LocalJudge()
