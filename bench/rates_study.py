"""How often the intervals of corrected rates hold the truth: `python -m bench.rates_study`.

Sessions differ in how often their users are dissatisfied. Users go on in one message of a request,
or complain, ask and answer in several. A judge sees each message through noise and a bias, also
where requests begin; people label some. Exit 1 where intervals hold the truth less often than they
must, or a canary that is no worse is rolled back or let through more often than it may."""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import numpy as np

from bench.figures import Figure, show
from penstock.registry.gate.sequential import Arm, ArmRequest, UserResult, compare_arms
from penstock_jobs.rewards.followups.dissatisfaction import (
    REQUESTS_MIN,
    JudgedRequests,
    correct,
    difference,
    interval,
)
from penstock_jobs.rewards.followups.labels import (
    EndedRequests,
    Flags,
    LabelledRequests,
    LabelRepeats,
    Numbers,
    Values,
    ended_requests,
)

_ALPHA = 0.05
#: Standard errors that are luck in 999 of 1,000 studies.
_LUCK = 3.09
#: What lies below the stated coverage and is accepted, with exact labels and with wrong ones: the
#: intervals are asymptotic, and the labellers' errors are known from a few repeats.
_LEAST, _LEAST_WRONG = 0.93, 0.90
Random = np.random.Generator
#: What a message does. With the last two a request goes on, and they say nothing of the work.
_FINE, _BEGINS, _COMPLAINS, _ASKS = range(4)


@dataclass(frozen=True)
class World:
    """`sharpness` is how far apart the judge sees kinds of messages, in deviations of its noise;
    `bias` moves what it says of users. `rate` is of those who are dissatisfied with a request."""

    rate: float
    sharpness: float
    bias: float = 0.0
    sessions: int = 1_000
    #: Messages drawn by chance; those before them are labelled too, where they are needed.
    drawn: int = 150
    #: The shares of other messages that a labeller takes for complaints, of complaints that a
    #: labeller misses, and of all that are taken for anything else.
    errors: tuple[float, float, float] = (0.0, 0.0, 0.0)
    repeats: int = 0

    def name(self) -> str:
        wrong = ", ".join(f"{share:.0%}" for share in self.errors)
        return (
            f"rate {self.rate:.2f}, sharpness {self.sharpness:g}, bias {self.bias:g},"
            f" {self.drawn} drawn"
            + (f", {wrong} wrong, {self.repeats} twice" if self.repeats else "")
        )


class Messages(NamedTuple):
    """What users do, message by message, and in which session."""

    kinds: Numbers
    session: Numbers
    lasts: Flags

    def ended(self, kinds: Numbers) -> EndedRequests:
        complaints = (kinds == _COMPLAINS).astype(np.float64)
        verdicts = np.where(kinds == _ASKS, -1.0, complaints)
        return ended_requests(self.lasts, kinds == _BEGINS, verdicts)

    def read(self, kinds: Numbers) -> Values:
        """Count labels back to where the request began, or to a complaint."""
        at = np.arange(kinds.size)
        opens = np.append(0, at[:-1] * self.lasts[:-1] + self.lasts[:-1])
        starts = np.maximum.accumulate(np.append(0, (at * (kinds == _BEGINS))[:-1]))
        complaints = np.maximum.accumulate(np.where(kinds == _COMPLAINS, at, 0))
        back = np.maximum(np.maximum(starts, complaints), np.maximum.accumulate(opens))
        return np.asarray(at - back + 1, np.float64)


def lived(world: World, random: Random) -> Messages:
    """Let users want one thing or several in each session, and say what they think of some."""
    wanted = 1 + random.poisson(0.7, world.sessions)
    session = np.repeat(np.arange(world.sessions), wanted)
    is_last = np.append(session[1:] != session[:-1], True)
    moods = random.beta(3 * world.rate, 3 * (1 - world.rate), world.sessions)
    complaints = (random.random(session.size) < moods[session]) * (
        1 + random.poisson(0.4, session.size)
    )
    said = (
        complaints,
        random.poisson(0.4, session.size),
        is_last & (random.random(session.size) < 0.4),
    )
    counts = np.stack([*said, ~is_last], axis=1).astype(np.int64)
    kinds = np.repeat(np.tile([_COMPLAINS, _ASKS, _FINE, _BEGINS], session.size), counts.ravel())
    _, session = np.unique(np.repeat(session, counts.sum(axis=1)), return_inverse=True)
    return Messages(kinds, session, np.append(session[1:] != session[:-1], True))


@cache
def true_rate(rate: float) -> float:
    """The share of dissatisfied requests, of those on which somebody had a word to say."""
    messages = lived(World(rate, 0.0, sessions=1_000_000), np.random.default_rng(1))
    ended = messages.ended(messages.kinds)
    return float(ended.dissatisfied.sum() / ended.total.sum())


def drawn(world: World, random: Random) -> tuple[JudgedRequests, LabelRepeats]:
    messages = lived(world, random)
    kinds, session, _ = messages

    def seen(kind: int) -> Values:
        noise: Values = random.normal(0, 1, kinds.size)
        return noise + world.sharpness * np.where(kinds == kind, 1.0, -1.0)

    judged = 1 / (1 + np.exp(-1.5 * (seen(_COMPLAINS) + world.bias)))
    begins = (judged < 0.5) & (seen(_BEGINS) > 0)
    neutral = (judged < 0.5) & ~begins & (seen(_ASKS) > 0)
    place = random.random(kinds.size)
    labels = _labelled(kinds, world, random)
    waiting = np.argsort(np.argsort(place)) >= world.drawn
    ended, read = messages.ended(labels), messages.read(labels)
    for each in ended:
        each[waiting] = np.nan
    requests = JudgedRequests(
        session,
        int(session[-1]) + 1,
        judged=ended_requests(messages.lasts, begins, np.where(neutral, -1.0, judged)),
        labelled=LabelledRequests(ended, read, np.where(waiting, 0, -1)),
        place=place,
        known=np.zeros(kinds.size, bool),
    )
    again = _labelled(kinds, world, random)
    asked = np.flatnonzero(~waiting)[: world.repeats]
    differ = (labels[asked] == _COMPLAINS) != (again[asked] == _COMPLAINS)
    return requests, LabelRepeats(asked.size, int(differ.sum()))


def _labelled(kinds: Numbers, world: World, random: Random) -> Numbers:
    alarms, misses, others = world.errors
    complains, chance = kinds == _COMPLAINS, random.random(kinds.size)
    labels = np.where(~complains & (chance < alarms), _COMPLAINS, kinds)
    labels = np.where(complains & (chance < misses), _FINE, labels)
    other = (kinds + random.integers(1, 4, kinds.size)) % 4
    found: Numbers = np.where(random.random(kinds.size) < others, other, labels)
    return found


class Coverage(NamedTuple):
    #: The share of intervals that hold the truth, and how wide they are.
    share: float
    width: float


def covered(world: World, samples: int, seed: int) -> Coverage:
    random = np.random.default_rng(seed)
    held, widths = 0, []
    for _ in range(samples):
        requests, repeats = drawn(world, random)
        found = interval(correct([requests], repeats)[0], _ALPHA)
        assert found is not None
        held += found.low <= true_rate(world.rate) <= found.high
        widths.append(found.high - found.low)
    return Coverage(held / samples, float(np.mean(widths)))


def differences_covered(before: World, after: World, samples: int, seed: int) -> Coverage:
    random = np.random.default_rng(seed)
    held, widths = 0, []
    for _ in range(samples):
        (first, repeats), (second, _) = drawn(before, random), drawn(after, random)
        one, other = correct([first, second], repeats)
        found = difference(one, other, _ALPHA)
        assert found is not None
        low, high = found.interval
        held += low <= true_rate(after.rate) - true_rate(before.rate) <= high
        widths.append(high - low)
    return Coverage(held / samples, float(np.mean(widths)))


class CanaryErrors(NamedTuple):
    breaches: float
    passes: float


def canary_errors(
    canary: World, current: World, margin: float, samples: int, seed: int
) -> CanaryErrors:
    """How often a canary is ever rolled back, and ever let through, over growing looks."""
    random = np.random.default_rng(seed)
    question = ArmRequest(direction="min", margin=margin, alpha=_ALPHA)
    breaches = passes = 0
    for _ in range(samples):
        worlds: dict[Arm, JudgedRequests] = {
            "canary": drawn(canary, random)[0],
            "current": drawn(current, random)[0],
        }
        outcomes = set()
        for share in (0.3, 0.6, 1.0):
            outcomes.add(_looked_at(worlds, share, question))
        breaches += "breach" in outcomes
        passes += "pass" in outcomes
    return CanaryErrors(breaches / samples, passes / samples)


def _looked_at(worlds: dict[Arm, JudgedRequests], share: float, request: ArmRequest) -> str:
    """After that share of the labels was given."""
    parts = []
    for requests in worlds.values():
        labelled = requests.labelled
        last = np.nanquantile(requests.place[labelled.missing < 0], share)
        known = (np.where(requests.place <= last, each, np.nan) for each in labelled.ended)
        parts.append(replace(requests, labelled=replace(labelled, ended=EndedRequests(*known))))
    rates = dict(zip(worlds, correct(parts, LabelRepeats(0, 0)), strict=True))
    if min(rate.requests for rate in rates.values()) < REQUESTS_MIN:
        return "undecided"
    least = min(rate.bounds[0] for rate in rates.values())
    greatest = max(rate.bounds[1] for rate in rates.values())
    cells = [
        UserResult(0, arm, f"{arm} {number}", 1, value)
        for arm, rate in rates.items()
        for number, value in enumerate(rate.values.tolist())
    ]
    return compare_arms(cells, replace(request, bounds=(least, greatest))).outcome


#: A tenth of the labels is wrong: false alarms alone, misses alone, anything for anything.
_LABEL_ERRORS = ((0.1, 0.0, 0.0), (0.0, 0.3, 0.0), (0.0, 0.0, 0.1))
#: A good judge, a biased one, one that guesses.
_JUDGES = ((1.5, 0.0), (0.5, 0.8), (0.0, 0.0))
_RATES = (0.05, 0.2, 0.5)


def _figures(samples: int, seed: int) -> Iterator[Figure]:
    for rate in _RATES:
        for judge in _JUDGES:
            for messages in (120, 250, 600):
                yield _covering(World(rate, *judge, drawn=messages), samples, seed)
            for errors in _LABEL_ERRORS:
                world = World(rate, *judge, drawn=300, errors=errors, repeats=30)
                yield _covering(world, samples, seed)
    for sharpness, bias in _JUDGES:
        flattered = World(0.2, sharpness, bias - 1.0)
        share, width = differences_covered(World(0.2, sharpness, bias), flattered, samples, seed)
        what = f"equal checkpoints, one flattered, sharpness {sharpness:g}"
        yield _held(what, share, width, _LEAST, samples)
    for errors in _LABEL_ERRORS:
        before, after = (
            World(rate, *_JUDGES[0], drawn=300, errors=errors, repeats=30) for rate in (0.5, 0.2)
        )
        share, width = differences_covered(before, after, samples, seed)
        what = f"{before.name()} against {after.rate:.2f}"
        yield _held(what, share, width, _LEAST_WRONG, samples)
    most = _ALPHA + _LUCK * (_ALPHA * (1 - _ALPHA) / samples) ** 0.5
    for sharpness, bias in _JUDGES:
        current = World(0.2, sharpness, bias, drawn=600)
        same = replace(current, bias=bias + 1.0)
        worse = replace(current, rate=0.35, bias=bias - 1.0)
        found = canary_errors(same, current, 0.1, samples, seed).breaches
        yield Figure(
            f"an equal canary that the judge dislikes, sharpness {sharpness:g}: rolled back",
            f"{found:.3f}", f"≤ {most:.3f}", found <= most,
        )  # fmt: skip
        found = canary_errors(worse, current, 0.1, samples, seed).passes
        yield Figure(
            f"a bad canary that the judge likes, sharpness {sharpness:g}: let through",
            f"{found:.3f}", f"≤ {most:.3f}", found <= most,
        )  # fmt: skip


def _covering(world: World, samples: int, seed: int) -> Figure:
    least = _LEAST_WRONG if any(world.errors) else _LEAST
    return _held(world.name(), *covered(world, samples, seed), least, samples)


def _held(what: str, share: float, width: float, least: float, samples: int) -> Figure:
    least -= _LUCK * (least * (1 - least) / samples) ** 0.5
    text = f"{what}: intervals of {width:.3f} that hold the truth"
    return Figure(text, f"{share:.3f}", f"≥ {least:.3f}", share >= least)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.rates_study", description=__doc__)
    parser.add_argument("--samples", type=int, default=1_000, help="for each case")
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    sys.exit(0 if show(list(_figures(options.samples, options.seed))) else 1)


if __name__ == "__main__":
    main()
