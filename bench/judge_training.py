"""Trains the local judge: `python -m bench.judge_training`.

Multinomial logistic regression over features of messages, once for the labels of follow-ups and
once for the kinds of requests. It writes the committed `model.npz` beside the judge; with the same
examples it is the same model.

The examples come in groups that were written in different ways. Probabilities are fitted on each
group by a model that learned from the others alone: so they say how sure the judge can be of
wording that it does not know.
"""

import hashlib
from collections.abc import Sequence
from importlib.resources import as_file, files
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import csr_matrix

from penstock_jobs.rewards.followups.features import FeatureRows, columns, features
from penstock_jobs.rewards.followups.judge import (
    DISSATISFIED,
    LABELS,
    Example,
    Message,
    all_examples,
)
from penstock_jobs.rewards.followups.local_judge import (
    MODEL_FILE,
    LinearModel,
    Matrix,
    Model,
    softmax,
)
from penstock_jobs.rewards.followups.request_kinds import KINDS, kind_columns, kind_features
from tests.support.labelled_messages import (
    SPOKEN,
    TRAINING,
    OpeningRequest,
    labelled_messages,
    requests,
)

Numbers = NDArray[np.intp]
Shares = NDArray[np.float64]

#: Chosen by cross-validation on the train examples, with the weights of the features' blocks.
PENALTY = 0.3
KIND_PENALTY = 0.3
_KIND_PARTS = 5
_ROUNDS_MAX = 120
_LEAST = 1e-12
_SPOKEN_GROUPS = 4
#: There are many spoken messages, and they are short.
_SPOKEN_WEIGHT = 0.5
#: Fewer follow-ups than not are dissatisfied.
_DISSATISFIED_SHARE = 0.4
_TEMPERATURES = np.geomspace(0.3, 4, 60)
_DISSATISFIED = np.array([label in DISSATISFIED for label in LABELS])


def train_groups() -> list[list[Example]]:
    """Return the examples in groups. Opening requests are what a user goes on to. Spoken
    messages come in parts: with one left out, the rest still knows their way of writing."""
    shipped = [example for example in all_examples() if not example.held_out]
    openings = [
        Example(Message(text=each.text, agent="Done.", edited=True), "moves_on", each.language)
        for each in requests()
    ]
    spoken: list[list[Example]] = [[] for _ in range(_SPOKEN_GROUPS)]
    for each in labelled_messages(SPOKEN):
        spoken[crc32(each.message.text.encode()) % _SPOKEN_GROUPS].append(each)
    written = (list(labelled_messages(name)) for name in TRAINING)
    return [shipped, *written, openings, *spoken]


def train(groups: Sequence[Sequence[Example]], asked: Sequence[OpeningRequest]) -> Model:
    examples = [example for group in groups for example in group]
    group_of = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    rows = _sparse(features([example.message for example in examples]), columns())
    labels = np.array([LABELS.index(example.label) for example in examples])
    weight = np.where(group_of < len(groups) - _SPOKEN_GROUPS, 1.0, _SPOKEN_WEIGHT)
    logits = _of_others(rows, labels, group_of, PENALTY, weight)
    # Each group counts the same, and in it the dissatisfied have one share: how often they occur is
    # a matter of who writes examples, not of how messages read.
    cell = 2 * group_of + _DISSATISFIED[labels]
    side = np.where(_DISSATISFIED[labels], _DISSATISFIED_SHARE, 1 - _DISSATISFIED_SHARE)
    shares = side / np.bincount(cell)[cell] / len(groups)
    temperature = _temperature(logits, labels, shares)
    chance = softmax(logits / temperature)[:, _DISSATISFIED].sum(axis=1)
    digest = hashlib.sha256("".join(map(repr, (*examples, *asked))).encode()).hexdigest()
    return Model(
        _quantized(fit(rows, labels, PENALTY, weight), temperature),
        _train_kinds(asked),
        digest,
        _calibration(chance, _DISSATISFIED[labels], shares),
    )


def _train_kinds(asked: Sequence[OpeningRequest]) -> LinearModel:
    rows = _sparse(kind_features([each.text for each in asked]), kind_columns())
    kinds = np.array([KINDS.index(each.kind) for each in asked])
    parts, weight = np.arange(len(asked)) % _KIND_PARTS, np.ones(len(asked))
    logits = _of_others(rows, kinds, parts, KIND_PENALTY, weight)
    temperature = _temperature(logits, kinds, weight / len(asked))
    return _quantized(fit(rows, kinds, KIND_PENALTY, weight), temperature)


def _quantized(weights: Matrix, temperature: float) -> LinearModel:
    """Store each class's weights in steps of 1/127 of the greatest."""
    scale = np.abs(weights).max(axis=0) / 127
    steps = np.rint(weights / scale).astype(np.int8)
    return LinearModel(steps, scale.astype(np.float32), temperature)


def fit(rows: csr_matrix, classes: Numbers, penalty: float, weight: Shares) -> Matrix:
    """The weights that minimise the cross entropy, weighted, plus `penalty`/2 times their squared
    length. There is one minimum: the same examples give the same result."""
    target = np.eye(int(classes.max()) + 1)[classes]
    shape = (rows.shape[1], target.shape[1])

    def loss(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        weights = flat.reshape(shape)
        chances = softmax(rows @ weights)
        surprise = -(weight @ np.log(np.maximum((chances * target).sum(axis=1), _LEAST)))
        slope = rows.T @ (weight[:, None] * (chances - target)) + penalty * weights
        return float(surprise + penalty / 2 * (flat @ flat)), slope.ravel()

    options = {"maxiter": _ROUNDS_MAX, "ftol": 1e-8, "gtol": 1e-3}
    found = minimize(loss, np.zeros(shape).ravel(), jac=True, method="L-BFGS-B", options=options)
    weights: Matrix = found.x.reshape(shape)
    return weights


def _temperature(logits: Matrix, classes: Numbers, shares: Shares) -> float:
    """Under which the right classes are the least surprising."""
    own = np.arange(len(classes))
    surprise = [
        -(shares * np.log(softmax(logits / temperature)[own, classes])).sum()
        for temperature in _TEMPERATURES
    ]
    return float(_TEMPERATURES[int(np.argmin(surprise))])


def _calibration(chance: Shares, true: NDArray[np.bool_], shares: Shares) -> tuple[float, float]:
    """Platt's: the slope and offset of the log odds that surprise least. In three decimals, so that
    it is the same everywhere."""
    bounded = np.clip(chance, 1e-6, 1 - 1e-6)
    odds = np.log(bounded / (1 - bounded))
    sign = np.where(true, -1.0, 1.0)

    def surprise(numbers: NDArray[np.float64]) -> float:
        return float((shares * np.logaddexp(0, sign * (numbers[0] * odds + numbers[1]))).sum())

    slope, offset = minimize(surprise, np.array([1.0, 0.0]), method="Nelder-Mead").x
    return round(float(slope), 3), round(float(offset), 3)


def _sparse(rows: FeatureRows, width: int) -> csr_matrix:
    cells = rows.value.astype(np.float64), (rows.row, rows.column)
    return csr_matrix(cells, (rows.count, width))


def _of_others(
    rows: csr_matrix, classes: Numbers, group_of: Numbers, penalty: float, weight: Shares
) -> Matrix:
    """The logits of each example by a model that learned from the other groups alone."""
    logits = np.zeros((len(classes), int(classes.max()) + 1))
    for number in range(int(group_of.max()) + 1):
        out, rest = group_of == number, group_of != number
        logits[out] = rows[out] @ fit(rows[rest], classes[rest], penalty, weight[rest])
    return logits


if __name__ == "__main__":
    model = train(train_groups(), requests())
    package = files("penstock_jobs.rewards.followups")
    arrays: dict[str, Any] = {
        f"{name}_{part}": np.asarray(getattr(linear, part))
        for name, linear in (("label", model.labels), ("kind", model.kinds))
        for part in ("weights", "scale", "temperature")
    }
    with as_file(package / MODEL_FILE) as target:
        np.savez_compressed(
            target,
            **arrays,
            calibration=np.array(model.calibration),
            examples=np.frombuffer(model.examples.encode(), np.uint8),
        )
    temperatures = f"{model.labels.temperature:.2f}, {model.kinds.temperature:.2f}"
    print(f"wrote {target.name}: temperatures {temperatures}, calibration {model.calibration}")
