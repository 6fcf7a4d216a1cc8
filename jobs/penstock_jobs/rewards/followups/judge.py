"""Judges of follow-ups, their ten labels, and their quality on labelled examples.

The user, by label:

- moves_on: wants the next thing: a new request begins, perhaps after praise.
- accepts: thanks, praises, commits, confirms, answers the agent's question; wants nothing new.
- refines: wishes something more or different, without saying that the work is wrong.
- incomplete: misses a part of what was asked, or asks for it again, in whatever words.
- corrects: says that the agent did not do what was asked, and what it should do.
- reports_failure: shows that it does not work, by a stack trace, a failing test or a bug.
- reverts: wants the agent's work undone, or says that they undid it.
- complains: is displeased, without anything to act upon; sarcasm too.
- asks: wants to know something about the work.
- abandons: stops, since it is no longer needed, given up, or done by hand.

If two labels fit, the one that says most about the previous work counts: praise and then a
correction is corrects, a question that is a reproach is complains. A new task that mentions a
failure elsewhere is moves_on."""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from math import sqrt
from typing import Annotated, Literal, Protocol, get_args

import msgspec

Label = Literal[
    "moves_on", "accepts", "refines", "incomplete", "corrects", "reports_failure", "reverts",
    "complains", "asks", "abandons",
]  # fmt: skip
LABELS: tuple[Label, ...] = get_args(Label)

#: Labels that say that the work was not what the user wanted. abandons is not among them: a user
#: who stops may have got it.
DISSATISFIED: frozenset[Label] = frozenset({
    "incomplete", "corrects", "reports_failure", "reverts", "complains",
})  # fmt: skip
Unjudged = Literal["budget", "unreachable", "unreadable_answer"]
Tests = Literal["passed", "failed"]


class Message(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    agent: str = ""
    previous: str = ""
    edited: bool = False
    tests: Tests | None = None


Chance = Annotated[float, msgspec.Meta(ge=0, le=1)]


class Judgement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    label: Label
    confidence: Chance
    dissatisfied: Chance


class Judge(Protocol):
    """Labels messages. Answers come in the order of the messages, one for each."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    def judge(self, messages: Sequence[Message]) -> Sequence[Judgement | Unjudged]: ...


#: Chosen once, before any training, so that about a quarter of each label is held out.
_SALT = 97
_HELD_OUT_SHARE = 0.25
_FRESH = "fresh"


class Example(msgspec.Struct, frozen=True):
    """A labelled message of `examples/`.

    The words of `cues.toml` were chosen with most examples in view, so even held-out ones flatter
    the local judge. `fresh.jsonl` was written afterwards. It stays honest as long as nobody changes
    `cues.toml` because of it."""

    message: Message
    label: Label
    language: str
    fresh: bool = False

    @property
    def held_out(self) -> bool:
        if self.fresh:
            return True
        digest = hashlib.sha256(f"{_SALT}:{self.message.text}".encode()).digest()
        return int.from_bytes(digest[:4]) < _HELD_OUT_SHARE * 2**32


@cache
def all_examples() -> tuple[Example, ...]:
    """Load all examples, by label and in the order of the files, fresh ones last."""
    folder = files("penstock_jobs.rewards.followups") / "examples"
    examples = []
    for name in (*LABELS, _FRESH):
        for line in (folder / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            label, language = row.pop("label"), row.pop("language")
            examples.append(Example(Message(**row), label, language, fresh=name == _FRESH))
    return tuple(examples)


def held_out_examples() -> tuple[Example, ...]:
    return tuple(example for example in all_examples() if example.held_out)


def fresh_examples() -> tuple[Example, ...]:
    return tuple(example for example in all_examples() if example.fresh)


#: From this probability on a follow-up counts as dissatisfied.
THRESHOLD = 0.5
_BINS = 10


class Quality(msgspec.Struct, frozen=True):
    """The quality for a label. A figure is None if its divisor is 0."""

    precision: float | None
    recall: float | None
    f1: float | None
    support: int
    intervals: Mapping[str, tuple[float, float]] = msgspec.field(default_factory=dict)


class Bin(msgspec.Struct, frozen=True):
    low: float
    high: float
    count: int
    predicted: float
    observed: float


class Evaluation(msgspec.Struct, frozen=True):
    judge: str
    examples: int
    unjudged: dict[str, int]
    accuracy: float
    labels: dict[Label, Quality]
    dissatisfied: Quality
    #: Mean distance between prediction and truth, weighted by the counts of bins.
    dissatisfied_calibration_error: float
    #: Mean squared distance between the probability of dissatisfied and the truth.
    brier: float
    dissatisfied_reliability: tuple[Bin, ...]
    confusion: dict[Label, dict[Label, int]]


def evaluate(judge: Judge, examples: Sequence[Example]) -> Evaluation:
    judgements = judge.judge([example.message for example in examples])
    labelled = zip((example.label for example in examples), judgements, strict=True)
    pairs = [(true, judgement) for true, judgement in labelled if isinstance(judgement, Judgement)]
    displeased = [(judgement.dissatisfied, true in DISSATISFIED) for true, judgement in pairs]
    bins = reliability(displeased)
    counts = Counter((true, judgement.label) for true, judgement in pairs)
    return Evaluation(
        judge=f"{judge.name}@{judge.version}",
        examples=len(examples),
        unjudged=dict(Counter(reason for reason in judgements if isinstance(reason, str))),
        accuracy=sum(guess.label == true for true, guess in pairs) / max(len(pairs), 1),
        labels={
            label: _quality([(guess.label == label, true == label) for true, guess in pairs])
            for label in LABELS
        },
        dissatisfied=_quality([(chance >= THRESHOLD, true) for chance, true in displeased]),
        dissatisfied_calibration_error=sum(
            bin_.count * abs(bin_.predicted - bin_.observed) for bin_ in bins
        )
        / max(len(pairs), 1),
        brier=sum((chance - true) ** 2 for chance, true in displeased) / max(len(pairs), 1),
        dissatisfied_reliability=bins,
        confusion={true: {label: counts[true, label] for label in LABELS} for true in LABELS},
    )


def reliability(predictions: Sequence[tuple[float, bool]]) -> tuple[Bin, ...]:
    by_number: dict[int, list[tuple[float, bool]]] = {}
    for chance, true in predictions:
        by_number.setdefault(min(int(chance * _BINS), _BINS - 1), []).append((chance, true))
    bins = []
    for number, own in sorted(by_number.items()):
        predicted, observed = (sum(column) / len(own) for column in zip(*own, strict=True))
        low, high = number / _BINS, (number + 1) / _BINS
        bins.append(Bin(low, high, len(own), predicted, observed))
    return tuple(bins)


def _quality(pairs: Sequence[tuple[bool, bool]]) -> Quality:
    predicted, support = sum(called for called, _ in pairs), sum(true for _, true in pairs)
    right = sum(called and true for called, true in pairs)
    either = predicted + support - right
    intervals = {
        name: wilson(right, of)
        for name, of in (("precision", predicted), ("recall", support), ("f1", either))
        if of
    }
    if either:  # F1 grows with the share that is right of what is called so or is so
        low, high = intervals["f1"]
        intervals["f1"] = (2 * low / (1 + low), 2 * high / (1 + high))
    precision = right / predicted if predicted else None
    recall = right / support if support else None
    f1 = 2 * right / (predicted + support) if predicted + support else None
    return Quality(precision, recall, f1, support, intervals)


#: 95 % of a normal distribution lie within this many standard deviations.
_DEVIATIONS = 1.96


def wilson(hits: int, of: int) -> tuple[float, float]:
    """Return Wilson's interval of a share, with 95 % confidence."""
    share, squared = hits / of, _DEVIATIONS**2
    centre = (share + squared / (2 * of)) / (1 + squared / of)
    reach = (
        _DEVIATIONS * sqrt(share * (1 - share) / of + squared / (4 * of**2)) / (1 + squared / of)
    )
    return max(centre - reach, 0.0), min(centre + reach, 1.0)
