"""The rate of dissatisfied users, unbiased although the judge is biased.

Each message has a random place between 0 and 1, and people label in the order of places. So at any
moment the labelled messages are a random sample; the place of the first unlabelled message is the
sampling rate. Messages chosen because they are informative count only for themselves. The estimate
is prediction-powered (Angelopoulos and others 2023): the judge's mean plus the mean error in the
sample. The weight of the judge is fitted too (PPI++).

Labels err too. Some messages are labelled twice: how often the two differ bounds how far the
labellers' errors can move a rate, in either direction, and intervals are wider by that.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Literal, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.lake.lake import Lake
from penstock_jobs.rewards.followups.labels import (
    NO_REPEATS,
    JudgedFollowUps,
    LabelRepeats,
    MessagePlace,
    StoredLabel,
    by_people,
    current_labels,
    people_first,
)

Values = NDArray[np.float64]
Flags = NDArray[np.bool_]

#: With fewer randomly drawn labels the rate is unknown.
LABELS_MIN = 30
#: With fewer messages labelled twice, labels are taken as exact, and it is said.
REPEATS_MIN = 20
#: The chance that the share of differing labels exceeds its bound. Intervals hold the truth as
#: often as they say all the same, since all errors would have to be of one kind too.
_REPEATS_ALPHA = 0.2


@dataclass(frozen=True, eq=False)
class JudgedMessages:
    #: The number of its session, from 0 to `sessions` − 1; each session has a message.
    session: NDArray[np.int64]
    sessions: int
    judged: Values
    #: The truth, from 0 to 1; nan without a label.
    truth: Values
    #: A random place from 0 to 1 that never changes.
    place: Values
    #: Whether it was chosen as informative, not drawn in order.
    chosen: Flags

    def sampled(self) -> tuple[Flags, float]:
        """Return the randomly drawn messages and the sampling rate."""
        free = ~self.chosen | np.isnan(self.truth)
        waiting = self.place[free & np.isnan(self.truth)]
        rate = float(waiting.min()) if waiting.size else 1.0
        return free & (self.place < rate), rate

    def weights(self) -> Values:
        of_session = np.bincount(self.session, minlength=self.sessions)
        weights: Values = 1 / of_session[self.session]
        return weights


@dataclass(frozen=True, eq=False)
class CorrectedRate:
    """A corrected rate: the mean of `values`, one for each session."""

    values: Values
    judged: float
    labels: int
    chosen: int
    rate: float
    belief: float
    #: Added to the variance of the mean, since few labels seem to vary little.
    doubt: float
    repeats: LabelRepeats = NO_REPEATS

    @property
    def flipped_max(self) -> float:
        """Bound half the share of messages that get another label when they are asked again."""
        asked, differing = self.repeats
        if asked < REPEATS_MIN:
            return 0.0
        if differing == asked:
            return 0.5
        from scipy.special import betaincinv

        return float(betaincinv(differing + 1, asked - differing, 1 - _REPEATS_ALPHA)) / 2

    @property
    def is_known(self) -> bool:
        return self.labels >= LABELS_MIN

    @property
    def value(self) -> float | None:
        return float(self.values.mean()) if self.labels else None

    @property
    def error(self) -> float:
        spread = float(self.values.var(ddof=1)) / self.values.size if self.values.size > 1 else 1.0
        return sqrt(spread + self.doubt)

    @property
    def bounds(self) -> tuple[float, float]:
        """Return bounds of a session's value for any label."""
        return 1 - 1 / self.rate, 1 / self.rate


class MeanInterval(NamedTuple):
    low: float
    high: float


class MeanDifference(NamedTuple):
    value: float
    interval: tuple[float, float]
    p: float


def t_tails(t: float, degrees: float) -> float:
    from scipy.special import stdtr

    return float(2 * stdtr(degrees, -t))


def t_quantile(tails: float, degrees: float) -> float:
    from scipy.special import stdtrit

    return float(-stdtrit(degrees, tails / 2))


def correct(groups: Sequence[JudgedMessages]) -> list[CorrectedRate]:
    """Correct the judge in each group: it may flatter one checkpoint more than another."""
    samples = [group.sampled() for group in groups]
    belief = _belief(groups, [drawn for drawn, _ in samples])
    return [
        _corrected(group, drawn, rate, belief)
        for group, (drawn, rate) in zip(groups, samples, strict=True)
    ]


def interval(corrected: CorrectedRate, alpha: float) -> MeanInterval | None:
    if not corrected.is_known:
        return None
    flipped = corrected.flipped_max
    reach = t_quantile(alpha, corrected.labels - 2) * corrected.error
    value = float(corrected.values.mean())
    low, high = max(value - reach, 0.0), min(value + reach, 1.0)
    found = [_found_share(end, flipped) for end in (1 - low, high)]
    return MeanInterval(1 - min((1 - low) / found[0], 1.0), min(high / found[1], 1.0))


def _found_share(rate: float, flipped: float) -> float:
    """Return the share that a labeller finds at least, if all errors were misses.

    Both labels of a message agree on rate − flipped, and one alone finds `rate`. A labeller is
    taken to find half."""
    return max(1 - flipped / rate, 0.5) if rate else 1.0


def difference(before: CorrectedRate, after: CorrectedRate, alpha: float) -> MeanDifference | None:
    """Compare two rates. None if a side has too few labels.

    Equal errors of labellers make a difference smaller, never turn its sign: only the interval
    widens, not the p-value."""
    if not (before.is_known and after.is_known):
        return None
    value = float(after.values.mean() - before.values.mean())
    sides = ((before.error**2, before.labels - 2), (after.error**2, after.labels - 2))
    total = sum(square for square, _ in sides)
    degrees = total**2 / sum(square**2 / own for square, own in sides)
    reach = t_quantile(alpha, degrees) * sqrt(total)
    p = t_tails(abs(value) / sqrt(total), degrees)
    rates = np.clip([float(one.values.mean()) for one in (before, after)], 0.0, 1.0)
    rarest = float(min(rates.min(), 1 - rates.max()))
    flipped = max(before.flipped_max, after.flipped_max)
    found = _found_share(rarest, flipped)
    low, high = value - reach, value + reach
    return MeanDifference(
        value, (max(min(low, low / found), -1.0), min(max(high, high / found), 1.0)), p
    )


def _belief(groups: Sequence[JudgedMessages], drawn: Sequence[Flags]) -> float:
    """Fit the slope of the truth over the judge within groups, between 0 and 1."""
    products = squares = 0.0
    for group, own in zip(groups, drawn, strict=True):
        if own.sum() < 2:
            continue
        weight = group.weights()[own]
        weight = weight / weight.sum()
        judged = group.judged[own] - weight @ group.judged[own]
        truth = group.truth[own] - weight @ group.truth[own]
        products += float(own.sum() * (weight * judged) @ truth)
        squares += float(own.sum() * (weight * judged) @ judged)
    return min(max(products / squares, 0.0), 1.0) if squares > 0 else 0.0


def _corrected(group: JudgedMessages, drawn: Flags, rate: float, belief: float) -> CorrectedRate:
    weight, labels = group.weights(), int(drawn.sum())
    chosen = group.chosen & ~np.isnan(group.truth)
    missed = group.truth - belief * group.judged
    total = float(weight[drawn].sum())
    offset = float(weight[drawn] @ missed[drawn]) / total if total else 0.0
    expected = offset + belief * group.judged
    rest = np.where(drawn, group.truth - expected, 0.0)
    value = np.where(chosen, group.truth, expected + rest / rate)
    values = np.bincount(group.session, weights=weight * value, minlength=group.sessions)
    judged = np.bincount(group.session, weights=weight * group.judged, minlength=group.sessions)
    doubt = _doubt(rest[drawn], weight[drawn], expected, rate, group.sessions)
    return CorrectedRate(
        values.astype(np.float64),
        judged=float(judged.mean()),
        labels=labels,
        chosen=int(chosen.sum()),
        rate=rate,
        belief=belief,
        doubt=doubt,
    )


def _doubt(rest: Values, weight: Values, expected: Values, rate: float, sessions: int) -> float:
    """Return the extra variance of four more drawn messages, two true and two not.

    Agresti and Coull's interval does the same."""
    labels = len(rest)
    if labels < 3:
        return 1.0
    mean = float(np.clip(expected.mean(), 0, 1))
    typical = float((weight**2).mean())
    pairs = 2 * typical * ((1 - mean) ** 2 + mean**2)
    squares = float((weight**2 * rest**2).sum())
    more = (squares + pairs) * labels / (labels - 2) - squares
    return more * (1 - rate) / rate**2 / sessions**2


JUDGED = "judged_follow_up"
RATE = "dissatisfied"
TruthBy = Literal["people", "models", "nobody"]
Group = TypeVar("Group", bound=Hashable)


@dataclass(frozen=True, eq=False)
class Dissatisfaction:
    sessions: pa.Array
    rate: CorrectedRate
    truth_by: TruthBy
    #: Sessions that ended after the messages from which labels were drawn.
    later: int

    def interval(self, alpha: float = 0.05) -> MeanInterval | None:
        return interval(self.rate, alpha)


def read_dissatisfaction(
    lake: Lake, tenant: str, groups: Mapping[Group, JudgedFollowUps]
) -> dict[Group, Dissatisfaction]:
    labels = current_labels(lake.database, tenant)
    again = current_labels(lake.database, tenant, again=True)
    return dissatisfaction(groups, labels, LabelRepeats.of(labels, again))


def dissatisfaction(
    groups: Mapping[Group, JudgedFollowUps],
    labels: Sequence[StoredLabel],
    repeats: LabelRepeats = NO_REPEATS,
) -> dict[Group, Dissatisfaction]:
    """Correct rates by labels of people, or also of models if people labelled too few.

    All groups use the same labellers, or the comparison would be between judges."""
    people = _described(groups, by_people(labels), repeats, "people")
    models = _described(groups, people_first(labels), repeats, "models")
    known = [sum(each.rate.is_known for each in found.values()) for found in (people, models)]
    return people if known[0] >= known[1] else models


def _described(
    groups: Mapping[Group, JudgedFollowUps],
    labels: Sequence[StoredLabel],
    repeats: LabelRepeats,
    truth_by: TruthBy,
) -> dict[Group, Dissatisfaction]:
    by_place = {label.place: label for label in labels}
    frames = {
        name: _frame(follow_ups, by_place) for name, follow_ups in groups.items() if follow_ups
    }
    rates = [
        replace(rate, repeats=repeats)
        for rate in correct([frame.messages for frame in frames.values()])
    ]
    return {
        name: Dissatisfaction(
            frame.sessions, rate, truth_by if rate.labels else "nobody", frame.later
        )
        for (name, frame), rate in zip(frames.items(), rates, strict=True)
    }


class _Frame(NamedTuple):
    sessions: pa.Array
    messages: JudgedMessages
    later: int


def _frame(follow_ups: JudgedFollowUps, labels: Mapping[MessagePlace, StoredLabel]) -> _Frame:
    """Return messages of sessions that had ended when labelling began; later ones were not drawn.

    Of several such times, the one that keeps the most labels counts."""
    own = [labels[place] for place in follow_ups.numbers_of(labels.keys())]
    untils = sorted({label.until_us for label in own if label.drawn})[-_TIMES_MAX:]
    sessions, messages = _messages(follow_ups, labels)
    everything = _Frame(sessions, messages, 0)
    frames: list[_Frame] = []
    for until_us in untils:
        covered = follow_ups.where(pc.less_equal(follow_ups.rows["last_us"], until_us))
        if covered:
            sessions, messages = _messages(covered, labels)
            frames.append(_Frame(sessions, messages, len(everything.sessions) - len(sessions)))
    most: _Frame = max(
        reversed(frames or [everything]),
        key=lambda frame: int(frame.messages.sampled()[0].sum()),
    )
    return most


_TIMES_MAX = 20


def _messages(
    follow_ups: JudgedFollowUps, labels: Mapping[MessagePlace, StoredLabel]
) -> tuple[pa.Array, JudgedMessages]:
    numbers, sessions = follow_ups.sessions()
    truth = np.full(len(follow_ups), np.nan)
    chosen = np.zeros(len(follow_ups), bool)
    for place, number in follow_ups.numbers_of(labels.keys()).items():
        label = labels[place]
        truth[number] = np.nan if label.truth is None else label.truth
        chosen[number] = not label.drawn
    messages = JudgedMessages(
        session=numbers,
        sessions=len(sessions),
        judged=follow_ups.column("judged"),
        truth=truth,
        place=follow_ups.column("drawn_at"),
        chosen=chosen,
    )
    return sessions, messages
