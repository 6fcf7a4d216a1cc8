"""The rate of requests that left users dissatisfied, unbiased although the judge is biased.

Each message has a random place between 0 and 1, and people label in the order of places. A message
that ends a request counts for it: earlier messages of the request are labelled too, as far as its
verdict needs them. So each request is in the sample with the same chance, whatever the judge takes
for a request: the place of the first undecided message is the sampling rate. The rate is a ratio
of two prediction-powered estimates (Angelopoulos and others 2023), of dissatisfied requests and of
all: the judge's sum plus its mean error in the sample. The weight of the judge is fitted too
(PPI++).

Labels err too. Some messages are labelled twice: how often the two differ, times the labels of a
verdict, bounds how far errors can move a rate. Intervals are wider by that, in either direction.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Literal, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.lake.lake import Lake
from penstock_jobs.rewards.followups.labels import (
    EndedRequests,
    Flags,
    JudgedFollowUps,
    LabelledRequests,
    LabelRepeats,
    MessagePlace,
    StoredLabel,
    Values,
    by_people,
    current_labels,
    people_first,
)

#: With fewer drawn requests that labels decide the rate is unknown.
REQUESTS_MIN = 30
#: With fewer messages labelled twice, labels are taken as exact, and it is said.
REPEATS_MIN = 20
#: The chance that the share of differing labels exceeds its bound. Intervals hold the truth as
#: often as they say all the same, since all errors would have to be of one kind too.
_REPEATS_ALPHA = 0.4


@dataclass(frozen=True, eq=False)
class JudgedRequests:
    """Requests by the message or stop that ends them."""

    #: The number of its session, from 0 to `sessions` − 1; each session has a message or a stop.
    session: NDArray[np.int64]
    sessions: int
    judged: EndedRequests
    labelled: LabelledRequests
    #: A random place from 0 to 1 that never changes.
    place: Values
    #: A stop, which needs no label.
    known: Flags

    def sampled(self) -> tuple[Flags, float]:
        """Return the randomly drawn messages and the sampling rate."""
        waiting = self.place[np.isnan(self.labelled.ended.total)]
        rate = float(waiting.min()) if waiting.size else 1.0
        return ~self.known & (self.place < rate), rate


@dataclass(frozen=True, eq=False)
class CorrectedRate:
    """A corrected rate: the mean of `values`, one for each session."""

    values: Values
    judged: float
    #: The drawn requests that labels decide, and how many labels each took.
    requests: int
    read: float
    rate: float
    belief: float
    #: Added to the variance of the mean, since few labels seem to vary little.
    doubt: float
    repeats: LabelRepeats

    @property
    def flipped_max(self) -> float:
        """Bound half the share of requests that get another verdict when all is asked again."""
        asked, differing = self.repeats
        if asked < REPEATS_MIN:
            return 0.0
        if differing == asked:
            return 0.5
        from scipy.special import betaincinv

        share = float(betaincinv(differing + 1, asked - differing, 1 - _REPEATS_ALPHA))
        return min(share * self.read, 1.0) / 2

    @property
    def is_known(self) -> bool:
        return self.requests >= REQUESTS_MIN

    @property
    def value(self) -> float | None:
        return float(self.values.mean()) if self.requests else None

    @property
    def error(self) -> float:
        spread = float(self.values.var(ddof=1)) / self.values.size if self.values.size > 1 else 1.0
        return sqrt(spread + self.doubt)

    @property
    def bounds(self) -> tuple[float, float]:
        """Return bounds of a request's value for any label."""
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


def correct(groups: Sequence[JudgedRequests], repeats: LabelRepeats) -> list[CorrectedRate]:
    """Correct the judge in each group: it may flatter one checkpoint more than another."""
    samples = [group.sampled() for group in groups]
    belief = _belief(groups, [drawn for drawn, _ in samples])
    return [
        _corrected(group, drawn, rate, belief, repeats)
        for group, (drawn, rate) in zip(groups, samples, strict=True)
    ]


def interval(corrected: CorrectedRate, alpha: float) -> MeanInterval | None:
    if not corrected.is_known:
        return None
    flipped = corrected.flipped_max
    reach = t_quantile(alpha, corrected.requests - 2) * corrected.error
    value = float(corrected.values.mean())
    low, high = max(value - reach, 0.0), min(value + reach, 1.0)
    found = [_found_share(end, flipped) for end in (1 - low, high)]
    return MeanInterval(1 - min((1 - low) / found[0], 1.0), min(high / found[1], 1.0))


def _found_share(rate: float, flipped: float) -> float:
    """Return the share that a labeller finds at least, if all errors were misses.

    Two readings of a request agree on rate − flipped, and one alone finds `rate`. A labeller is
    taken to find half."""
    return max(1 - flipped / rate, 0.5) if rate else 1.0


def difference(before: CorrectedRate, after: CorrectedRate, alpha: float) -> MeanDifference | None:
    """Compare two rates. None if a side has too few labels.

    Equal errors of labellers make a difference smaller, never turn its sign: only the interval
    widens, not the p-value."""
    if not (before.is_known and after.is_known):
        return None
    value = float(after.values.mean() - before.values.mean())
    sides = ((before.error**2, before.requests - 2), (after.error**2, after.requests - 2))
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


def _belief(groups: Sequence[JudgedRequests], drawn: Sequence[Flags]) -> float:
    """Fit the slope of the truth over the judge within groups, between 0 and 1."""
    products = squares = 0.0
    for group, own in zip(groups, drawn, strict=True):
        ended = group.labelled.ended
        if own.sum() < 2:
            continue
        rate = float(ended.dissatisfied[own].sum() / max(ended.total[own].sum(), 1))
        judged, truth = (each.beyond(rate)[own] for each in (group.judged, ended))
        judged = judged - judged.mean()
        products += float(judged @ truth)
        squares += float(judged @ judged)
    return min(max(products / squares, 0.0), 1.0) if squares > 0 else 0.0


def _corrected(
    group: JudgedRequests, drawn: Flags, rate: float, belief: float, repeats: LabelRepeats
) -> CorrectedRate:
    ended, known = group.labelled.ended, group.known

    def expected(judged: Values, truth: Values) -> Values:
        missed = (truth - belief * judged)[drawn]
        means: Values = belief * judged + (missed.mean() if missed.size else 0.0)
        return np.where(known, truth, means)

    dissatisfied, count = (
        float(expected(*pair).sum()) for pair in zip(group.judged[::-1], ended[::-1], strict=True)
    )
    count = max(count, 1.0)
    share = dissatisfied / count
    truth = ended.beyond(share)
    means = expected(group.judged.beyond(share), truth)
    rest = np.where(drawn, truth - means, 0.0)
    requests = int(ended.total[drawn].sum())
    beyond = np.bincount(group.session, means + rest / rate, group.sessions)
    return CorrectedRate(
        share + beyond * group.sessions / count,
        judged=float(group.judged.dissatisfied.sum() / max(group.judged.total.sum(), 1)),
        requests=requests,
        read=float((group.labelled.read * ended.total)[drawn].sum()) / max(requests, 1),
        rate=rate,
        belief=belief,
        doubt=_doubt(rest[drawn], requests, share, rate) / count**2,
        repeats=repeats,
    )


def _doubt(rest: Values, requests: int, share: float, rate: float) -> float:
    """Return the extra variance of four more drawn requests, two dissatisfied and two not.

    Agresti and Coull's interval does the same."""
    if requests < 3:
        return 1.0 * len(rest) ** 2
    share = min(max(share, 0.0), 1.0)
    squares = float((rest**2).sum())
    pairs = 2 * ((1 - share) ** 2 + share**2)
    more = (squares + pairs) * requests / (requests - 2) - squares
    return more * (1 - rate) / rate**2


JUDGED = "judged_follow_up"
RATE = "dissatisfied"
TruthBy = Literal["people", "models", "nobody"]
Group = TypeVar("Group", bound=Hashable)


@dataclass(frozen=True, eq=False)
class Dissatisfaction:
    sessions: pa.Array
    rate: CorrectedRate
    #: Labels of its messages, drawn or not.
    labels: int
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
    groups: Mapping[Group, JudgedFollowUps], labels: Sequence[StoredLabel], repeats: LabelRepeats
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
    rates = correct([frame.requests for frame in frames.values()], repeats)
    return {
        name: Dissatisfaction(
            frame.sessions, rate, frame.labels, truth_by if frame.labels else "nobody", frame.later
        )
        for (name, frame), rate in zip(frames.items(), rates, strict=True)
    }


class _Frame(NamedTuple):
    sessions: pa.Array
    requests: JudgedRequests
    labels: int
    later: int = 0


def _frame(follow_ups: JudgedFollowUps, labels: Mapping[MessagePlace, StoredLabel]) -> _Frame:
    """Return requests of sessions that had ended when labelling began; later ones were not drawn.

    Of several such times, the one that decides the most requests counts."""
    own = [labels[place] for place in follow_ups.numbers_of(labels.keys())]
    untils = sorted({label.until_us for label in own if label.drawn})[-_TIMES_MAX:]
    everything = _requests(follow_ups, labels)
    frames: list[_Frame] = []
    for until_us in untils:
        covered = follow_ups.where(pc.less_equal(follow_ups.rows["last_us"], until_us))
        if covered:
            frame = _requests(covered, labels)
            later = len(everything.sessions) - len(frame.sessions)
            frames.append(frame._replace(later=later))
    most: _Frame = max(
        reversed(frames or [everything]), key=lambda frame: int(frame.requests.sampled()[0].sum())
    )
    return most


_TIMES_MAX = 20


def _requests(follow_ups: JudgedFollowUps, labels: Mapping[MessagePlace, StoredLabel]) -> _Frame:
    numbers, sessions = follow_ups.sessions()
    requests = JudgedRequests(
        session=numbers,
        sessions=len(sessions),
        judged=follow_ups.judged_requests(),
        labelled=follow_ups.labelled_requests(labels),
        place=follow_ups.column("drawn_at"),
        known=follow_ups.stops(),
    )
    return _Frame(sessions, requests, len(follow_ups.numbers_of(labels.keys())))
