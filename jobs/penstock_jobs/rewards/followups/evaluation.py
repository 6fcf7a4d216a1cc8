"""How good a judge is on labelled examples, and which of them no judge may learn from.

They were written for this project, one JSON object a line, a file for each label in `examples/`.
Their author had seen most of them when the words of `cues.toml` were chosen, so that the quarter
that is held out of them flatters the local judge. `fresh.jsonl` was written after features, words
and model were fixed, and nothing was changed because of it: its figures are the honest ones. An
edit of `cues.toml` that has it in mind would end that."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from penstock_jobs.rewards.followups.judge import (
    DISSATISFIED,
    LABELS,
    Judge,
    Judgement,
    Label,
    Message,
)

#: Chosen once, before anything was trained, so that each label has about a quarter held out in
#: English and in the other languages. An example never changes sides: its text alone decides.
_SALT = 97
_HELD_OUT_SHARE = 0.25
_FRESH = "fresh"


@dataclass(frozen=True, slots=True)
class Example:
    message: Message
    label: Label
    #: ISO 639-1.
    language: str
    #: Written after the local judge was fixed.
    fresh: bool = False

    @property
    def held_out(self) -> bool:
        """Whether it is kept for evaluation. Nothing may learn from it."""
        if self.fresh:
            return True
        digest = hashlib.sha256(f"{_SALT}:{self.message.text}".encode()).digest()
        return int.from_bytes(digest[:4]) < _HELD_OUT_SHARE * 2**32


@cache
def all_examples() -> tuple[Example, ...]:
    """In a fixed order: by label, and as they stand in the file; the fresh ones at the end."""
    return tuple(one for name in (*LABELS, _FRESH) for one in _read(name))


def train_examples() -> tuple[Example, ...]:
    return tuple(one for one in all_examples() if not one.held_out)


def held_out_examples() -> tuple[Example, ...]:
    """The fresh ones too."""
    return tuple(one for one in all_examples() if one.held_out)


def fresh_examples() -> tuple[Example, ...]:
    return tuple(one for one in all_examples() if one.fresh)


def digest_of(examples: Iterable[Example]) -> str:
    """Changes with any of them."""
    found = hashlib.sha256()
    for one in examples:
        found.update(repr(one).encode())
    return found.hexdigest()


def _read(name: str) -> list[Example]:
    source = files("penstock_jobs.rewards.followups") / "examples" / f"{name}.jsonl"
    lines = source.read_text(encoding="utf-8").splitlines()
    return [_example(json.loads(line), fresh=name == _FRESH) for line in lines]


def _example(row: dict[str, Any], *, fresh: bool) -> Example:
    message = Message(
        text=row["text"],
        agent=row["agent"],
        previous=row.get("previous", ""),
        edited=row["edited"],
        tests=row["tests"],
    )
    return Example(message, row["label"], row["language"], fresh)


#: From this probability on a follow-up counts as dissatisfied.
THRESHOLD = 0.5
_BINS = 10


@dataclass(frozen=True, slots=True)
class Quality:
    """None where there is nothing to divide by: nothing was labelled so, or nothing was so."""

    precision: float | None
    recall: float | None
    f1: float | None
    #: How many examples are so.
    support: int


@dataclass(frozen=True, slots=True)
class Bin:
    """The predictions whose probability lies from `low` to below `high`."""

    low: float
    high: float
    count: int
    #: What the judge said on average, and what was true.
    predicted: float
    observed: float


@dataclass(frozen=True, slots=True)
class Evaluation:
    judge: str
    examples: int
    #: By reason. They count as neither right nor wrong.
    unjudged: dict[str, int]
    #: The share of judged examples whose label was found.
    accuracy: float
    labels: dict[Label, Quality]
    dissatisfied: Quality
    #: Mean distance between what was predicted and what was observed, weighted by the bins'
    #: counts: for the confidence in the label, and for the probability of dissatisfied.
    label_calibration_error: float
    dissatisfied_calibration_error: float
    label_reliability: tuple[Bin, ...]
    dissatisfied_reliability: tuple[Bin, ...]
    #: [true label][found label], how often.
    confusion: dict[Label, dict[Label, int]]


def evaluate(judge: Judge, examples: Sequence[Example]) -> Evaluation:
    """Judge the examples, and compare. Only the held-out ones say something about a judge that
    learned from the others."""
    judgements = judge.judge([one.message for one in examples])
    unjudged: dict[str, int] = {}
    for one in judgements:
        if one.unjudged:
            unjudged[one.unjudged] = unjudged.get(one.unjudged, 0) + 1
    pairs = [
        (example.label, judgement)
        for example, judgement in zip(examples, judgements, strict=True)
        if judgement.label is not None
    ]
    sure = [(found.confidence, found.label == true) for true, found in pairs]
    displeased = [(found.dissatisfied, true in DISSATISFIED) for true, found in pairs]
    return Evaluation(
        judge=f"{judge.name}@{judge.version}",
        examples=len(examples),
        unjudged=unjudged,
        accuracy=sum(right for _, right in sure) / max(len(pairs), 1),
        labels={
            label: _quality([(found.label == label, true == label) for true, found in pairs])
            for label in LABELS
        },
        dissatisfied=_quality([(chance >= THRESHOLD, true) for chance, true in displeased]),
        label_calibration_error=_calibration_error(reliability(sure)),
        dissatisfied_calibration_error=_calibration_error(reliability(displeased)),
        label_reliability=reliability(sure),
        dissatisfied_reliability=reliability(displeased),
        confusion=_confusion(pairs),
    )


def reliability(predictions: Sequence[tuple[float, bool]]) -> tuple[Bin, ...]:
    """Ten bins of the same width; the empty ones are left out."""
    bins: dict[int, list[tuple[float, bool]]] = {}
    for chance, true in predictions:
        bins.setdefault(min(int(chance * _BINS), _BINS - 1), []).append((chance, true))
    return tuple(
        Bin(
            low=number / _BINS,
            high=(number + 1) / _BINS,
            count=len(held),
            predicted=sum(chance for chance, _ in held) / len(held),
            observed=sum(true for _, true in held) / len(held),
        )
        for number, held in sorted(bins.items())
    )


def _calibration_error(bins: Sequence[Bin]) -> float:
    total = sum(one.count for one in bins)
    return sum(one.count * abs(one.predicted - one.observed) for one in bins) / max(total, 1)


def _quality(pairs: Sequence[tuple[bool, bool]]) -> Quality:
    """Of (found, true)."""
    found = sum(found for found, _ in pairs)
    support = sum(true for _, true in pairs)
    right = sum(found and true for found, true in pairs)
    return Quality(
        precision=right / found if found else None,
        recall=right / support if support else None,
        f1=2 * right / (found + support) if found + support else None,
        support=support,
    )


def _confusion(pairs: Sequence[tuple[Label, Judgement]]) -> dict[Label, dict[Label, int]]:
    table: dict[Label, dict[Label, int]] = {true: dict.fromkeys(LABELS, 0) for true in LABELS}
    for true, found in pairs:
        if found.label is not None:
            table[true][found.label] += 1
    return table
