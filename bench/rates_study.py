"""How often the intervals of corrected rates hold the truth: `python -m bench.rates_study`.

Sessions differ in how often their users are dissatisfied. A judge sees each message through noise
and a bias; people label some. Exit 1 where intervals hold the truth less often than they say, or a
canary that is no worse is rolled back or let through more often than it may."""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.figures import Figure, show
from penstock.registry.gate.sequential import Arm, ArmRequest, UserResult, compare_arms
from penstock_jobs.rewards.followups.dissatisfaction import (
    LABELS_MIN,
    JudgedMessages,
    correct,
    difference,
    interval,
)
from penstock_jobs.rewards.followups.labels import LabelRepeats

_ALPHA = 0.05
#: Standard errors that are luck in 999 of 1,000 studies.
_LUCK = 3.09
#: What lies below the stated coverage and is accepted: the intervals are asymptotic.
_TOLERANCE = 0.01
Random = np.random.Generator
Values = NDArray[np.float64]


@dataclass(frozen=True)
class World:
    """`sharpness` is how far apart the judge sees the two kinds of messages, in deviations of its
    noise; `bias` moves all that it says."""

    rate: float
    sharpness: float
    bias: float = 0.0
    sessions: int = 1_000
    labels: int = 100
    chosen: int = 0
    #: The shares of satisfied and of dissatisfied messages that a labeller takes for the other.
    errors: tuple[float, float] = (0.0, 0.0)
    repeats: int = 0

    def name(self) -> str:
        wrong = ", ".join(f"{share:.0%}" for share in self.errors)
        return (
            f"rate {self.rate:.2f}, sharpness {self.sharpness:g}, bias {self.bias:g},"
            f" {self.labels} labels + {self.chosen} chosen"
            + (f", {wrong} wrong, {self.repeats} twice" if self.repeats else "")
        )


def drawn(world: World, random: Random) -> JudgedMessages:
    messages = 1 + random.poisson(1.0, world.sessions)
    session = np.repeat(np.arange(world.sessions), messages)
    moods = random.beta(3 * world.rate, 3 * (1 - world.rate), world.sessions)
    true = (random.random(session.size) < moods[session]).astype(np.float64)
    seen = world.sharpness * (2 * true - 1) + random.normal(0, 1, session.size) + world.bias
    judged = 1 / (1 + np.exp(-1.5 * seen))
    place = random.random(session.size)
    chosen = np.zeros(session.size, bool)
    chosen[np.argsort(np.abs(judged - 0.5))[: world.chosen]] = True
    by_place = np.argsort(place)
    labelled = chosen.copy()
    labelled[by_place[~chosen[by_place]][: world.labels]] = True
    truth = np.where(labelled, _labelled(true, world, random), np.nan)
    return JudgedMessages(session, world.sessions, judged, truth, place, chosen)


def _labelled(true: Values, world: World, random: Random) -> Values:
    wrong = random.random(true.size) < np.where(true == 1, world.errors[1], world.errors[0])
    labels: Values = np.where(wrong, 1 - true, true)
    return labels


def repeats(world: World, random: Random) -> LabelRepeats:
    true = (random.random(world.repeats) < world.rate).astype(np.float64)
    first, second = (_labelled(true, world, random) for _ in range(2))
    return LabelRepeats(world.repeats, int((first != second).sum()))


class Coverage(NamedTuple):
    #: The share of intervals that hold the truth, and how wide they are.
    share: float
    width: float


def covered(world: World, samples: int, seed: int) -> Coverage:
    random = np.random.default_rng(seed)
    held, widths = 0, []
    for _ in range(samples):
        [rate] = correct([drawn(world, random)])
        found = interval(replace(rate, repeats=repeats(world, random)), _ALPHA)
        assert found is not None
        held += found.low <= world.rate <= found.high
        widths.append(found.high - found.low)
    return Coverage(held / samples, float(np.mean(widths)))


def differences_covered(before: World, after: World, samples: int, seed: int) -> Coverage:
    random = np.random.default_rng(seed)
    held, widths = 0, []
    for _ in range(samples):
        asked = repeats(before, random)
        one, other = (
            replace(rate, repeats=asked)
            for rate in correct([drawn(before, random), drawn(after, random)])
        )
        found = difference(one, other, _ALPHA)
        assert found is not None
        low, high = found.interval
        held += low <= after.rate - before.rate <= high
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
        worlds: dict[Arm, JudgedMessages] = {
            "canary": drawn(canary, random),
            "current": drawn(current, random),
        }
        outcomes = set()
        for share in (0.3, 0.6, 1.0):
            outcomes.add(_looked_at(worlds, share, question))
        breaches += "breach" in outcomes
        passes += "pass" in outcomes
    return CanaryErrors(breaches / samples, passes / samples)


def _looked_at(worlds: dict[Arm, JudgedMessages], share: float, request: ArmRequest) -> str:
    """After that share of the labels was given."""
    parts = []
    for messages in worlds.values():
        free = ~np.isnan(messages.truth) & ~messages.chosen
        last = np.quantile(messages.place[free], share)
        truth = np.where(messages.chosen | (messages.place <= last), messages.truth, np.nan)
        parts.append(replace(messages, truth=truth))
    rates = dict(zip(worlds, correct(parts), strict=True))
    if min(rate.labels for rate in rates.values()) < LABELS_MIN:
        return "undecided"
    least = min(rate.bounds[0] for rate in rates.values())
    greatest = max(rate.bounds[1] for rate in rates.values())
    cells = [
        UserResult(0, arm, f"{arm} {number}", 1, value)
        for arm, rate in rates.items()
        for number, value in enumerate(rate.values.tolist())
    ]
    return compare_arms(cells, replace(request, bounds=(least, greatest))).outcome


#: A tenth of the labels is wrong: by chance, false alarms alone, misses alone.
_LABEL_ERRORS = ((0.1, 0.1), (0.1, 0.0), (0.0, 0.3))
_JUDGES = ((1.5, 0.0), (0.5, 0.8), (0.0, 0.0))


def _worlds() -> Iterator[World]:
    for rate in (0.05, 0.1, 0.3):
        for sharpness, bias in _JUDGES:
            for labels, chosen in ((LABELS_MIN, 0), (100, 0), (100, 100), (300, 0)):
                yield World(rate, sharpness, bias, labels=labels, chosen=chosen)
        for errors in _LABEL_ERRORS:
            yield World(rate, *_JUDGES[0], labels=300, errors=errors, repeats=30)


def _figures(samples: int, seed: int) -> Iterator[Figure]:
    least = 1 - _ALPHA - _TOLERANCE - _LUCK * (_ALPHA * (1 - _ALPHA) / samples) ** 0.5
    for number, world in enumerate(_worlds()):
        share, width = covered(world, samples, seed + number)
        what = f"{world.name()}: intervals of {width:.3f} that hold the truth"
        yield Figure(what, f"{share:.3f}", f"≥ {least:.3f}", share >= least)
    for sharpness, bias in _JUDGES:
        flattered = World(0.1, sharpness, bias - 1.0)
        share, width = differences_covered(World(0.1, sharpness, bias), flattered, samples, seed)
        what = (
            f"equal checkpoints, one flattered, sharpness {sharpness:g}: intervals of {width:.3f}"
        )
        yield Figure(what, f"{share:.3f}", f"≥ {least:.3f}", share >= least)
    for errors in _LABEL_ERRORS:
        before, after = (
            World(rate, *_JUDGES[0], labels=300, errors=errors, repeats=30) for rate in (0.3, 0.15)
        )
        share, width = differences_covered(before, after, samples, seed)
        what = f"{before.name()} against {after.rate:.2f}: intervals of {width:.3f} with the truth"
        yield Figure(what, f"{share:.3f}", f"≥ {least:.3f}", share >= least)
    most = _ALPHA + _LUCK * (_ALPHA * (1 - _ALPHA) / samples) ** 0.5
    for sharpness, bias in _JUDGES:
        current = World(0.1, sharpness, bias, labels=300)
        same = replace(current, bias=bias + 1.0)
        worse = replace(current, rate=0.2, bias=bias - 1.0)
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


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.rates_study", description=__doc__)
    parser.add_argument("--samples", type=int, default=1_000, help="for each case")
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    sys.exit(0 if show(list(_figures(options.samples, options.seed))) else 1)


if __name__ == "__main__":
    main()
