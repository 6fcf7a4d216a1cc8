"""The truth of the live comparison: how often it errs when somebody looks after every session.

Streams of sessions with a known difference: users come again and again (a few of them very often),
their sessions resemble each other, and an arm belongs to a user.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np
from numpy.random import Generator

from penstock.backends.terminal.output import say, show_table
from penstock.registry.gate.policy import Direction
from penstock.registry.gate.sequential import (
    ArmRequest,
    PhaseUsers,
    bound_distances,
    check_sample_ratio,
    missing_variance,
)

ALPHA = 0.05
RATIO_ALPHA = 0.05
#: Standard errors that a rate may lie above alpha.
_ERRORS = 3.0

Draw = Callable[[Generator, Any, Any], Any]


@dataclass(frozen=True)
class Stream:
    """`draw` makes the values of sessions from their user and how much more their arm shows."""

    name: str
    draw: Draw
    margin: float
    direction: Direction = "max"
    bounds: tuple[float, float] | None = (0.0, 1.0)
    users: int = 1500
    activity: float = 1.2
    share: float = 0.5
    sessions: int = 5000

    @property
    def question(self) -> ArmRequest:
        return ArmRequest(
            direction=self.direction, margin=self.margin, bounds=self.bounds, alpha=ALPHA
        )


def persistence(random: Generator, user: Any, worse: Any) -> Any:
    """Much near 1, some at 0; users differ."""
    level = 2 * random.beta(4, 2, user.max() + 1)[user]
    value = random.beta(np.maximum(level, 0.05) * 2, 1.0)
    return np.where(random.random(len(user)) < 0.12, 0.0, value) - worse


def dissatisfied(rate: float, like: float = 3.0) -> Draw:
    """A rare yes or no; users differ."""

    def draw(random: Generator, user: Any, worse: Any) -> Any:
        own = random.beta(rate * like, (1 - rate) * like, user.max() + 1)[user]
        # An arm that is worse by w moves each user's rate so that the mean moves by w.
        moved = own + worse / (1 - rate) * (1 - own)
        return (random.random(len(user)) < moved).astype(float)

    return draw


def latency(tail: float) -> Draw:
    """Logarithms of a lognormal latency with a Pareto tail: the values as `on_log_scale` gives
    them."""

    def draw(random: Generator, user: Any, worse: Any) -> Any:
        own = random.normal(0, 0.5, user.max() + 1)[user]
        slow = random.random(len(user)) < 0.1
        return (
            7
            + own
            + random.normal(0, 0.8, len(user))
            + slow * random.exponential(tail, len(user))
            + worse
        )

    return draw


def walk(random: Generator, stream: Stream, worse: float) -> tuple[Any, ...]:
    """Sessions in the order in which they come: user, arm, value."""
    weights = random.pareto(stream.activity, stream.users) + 0.2
    user = random.choice(stream.users, stream.sessions, p=weights / weights.sum())
    canary = (random.random(stream.users) < stream.share)[user]
    return user, canary, stream.draw(random, user, canary * worse)


def every_look(user: Any, canary: Any, value: Any, request: ArmRequest) -> tuple[Any, Any, Any]:
    """After each session: the difference, its variance, and the users of the smaller arm. The same
    as `compare` of one phase, for all looks at once (a test holds them together)."""
    order = np.argsort(user, kind="stable")
    first = np.r_[True, user[order][1:] != user[order][:-1]]
    start = np.maximum.accumulate(np.where(first, np.arange(len(user)), 0))
    rank = np.arange(len(user)) - start + 1
    total = np.cumsum(value[order])
    total -= (total - value[order])[start]
    mean = total / rank
    before = np.where(first, 0.0, np.r_[0.0, mean[:-1]])
    steps = np.empty((3, len(user)))
    steps[:, order] = [first, mean - before, mean**2 - before**2]
    counts = np.stack([np.cumsum(steps * arm, axis=1) for arm in (~canary, canary)])[:, :, None]
    users, sum1, sum2 = counts[:, 0], counts[:, 1], counts[:, 2]
    means = sum1 / np.maximum(users, 1)
    spreads = np.maximum(sum2 - users * means**2, 0) / np.maximum(users - 1, 1)
    variance = spreads / np.maximum(users, 1) + missing_variance(users, means, spreads, request)
    return (means[1] - means[0])[0], variance.sum(axis=0)[0], users.min(axis=0)[0]


def first_answers(random: Generator, stream: Stream, worse: float) -> tuple[int, int]:
    """After how many sessions it passes and breaches first; all of them where it never does."""
    question = stream.question
    user, canary, value = walk(random, stream, worse)
    difference, variance, fewest = every_look(user, canary, value, question)
    gain = difference if question.direction == "max" else -difference
    below, above = bound_distances(variance, question)
    enough = fewest >= question.min_clusters
    return (
        _first(enough & (gain - below > -question.margin)),
        _first(enough & (gain + above < -question.margin)),
    )


def _first(hits: Any) -> int:
    return int(hits.argmax()) if hits.any() else len(hits)


_CROWD: dict[str, Any] = {"users": 20_000, "activity": 3.0}
#: Many sessions of few users and few of many; halves, and small canaries; rare and skewed metrics.
STREAMS = (
    Stream("persistence", persistence, 0.05),
    Stream("persistence", persistence, 0.15, share=0.05),
    Stream("persistence", persistence, 0.1, users=80, activity=1.0),
    Stream("dissatisfied 10 %", dissatisfied(0.1), 0.03, "min", **_CROWD),
    Stream("dissatisfied 10 %", dissatisfied(0.1), 0.1, "min", share=0.05, **_CROWD),
    Stream("dissatisfied 5 %", dissatisfied(0.05), 0.05, "min", share=0.25, **_CROWD),
    Stream("dissatisfied 5 %", dissatisfied(0.05), 0.05, "min", share=0.1),
    Stream("dissatisfied 2 %", dissatisfied(0.02), 0.02, "min"),
    Stream("dissatisfied 0.5 %", dissatisfied(0.005), 0.02, "min", share=0.1, **_CROWD),
    Stream("dissatisfied 0.05 %", dissatisfied(0.0005), 0.05, "min", **_CROWD),
    Stream("latency", latency(0.5), log(1.1), "min", bounds=None),
    Stream("latency, heavy tail", latency(2.0), log(1.5), "min", bounds=None, share=0.05),
    Stream(
        "latency, heavier tail", latency(3.0), log(3.0), "min", bounds=None, share=0.05, **_CROWD
    ),
)


def study(samples: int, seed: int) -> bool:
    """Prints its tables; whether no comparison erred more often than alpha, within sampling
    error."""
    found = [_rates(stream, samples, seed) for stream in STREAMS]
    say("Somebody looks after each of 5,000 sessions, and stops at the first answer.")
    say(f"Truth: worse by just the margin. At most {ALPHA:.0%} may ever pass, or ever breach.")
    say("Then: how often an equal canary passes and one worse by four margins breaches, and")
    say("after how many sessions half of them do.")
    columns = ["metric", "margin", "share", "users", "passed", "breached", "equal", "", "worse", ""]
    show_table([*columns, ""], [one.row for one in found])
    ratios = _show_sample_ratio(samples, seed)
    return ratios and not any(one.exceeded for one in found)


@dataclass(frozen=True)
class _Rates:
    stream: Stream
    samples: int
    passed: float
    breached: float
    equal: tuple[float, float]
    worse: tuple[float, float]

    @property
    def exceeded(self) -> bool:
        return exceeds(max(self.passed, self.breached), ALPHA, self.samples)

    @property
    def row(self) -> list[object]:
        stream = self.stream
        return [
            stream.name, f"{stream.margin:.3f}", stream.share, stream.users,
            f"{self.passed:.4f}", f"{self.breached:.4f}",
            f"{self.equal[0]:.2f}", f"{self.equal[1]:.0f}",
            f"{self.worse[0]:.2f}", f"{self.worse[1]:.0f}", "EXCEEDED" if self.exceeded else "",
        ]  # fmt: skip


def _rates(stream: Stream, samples: int, seed: int) -> _Rates:
    random = np.random.default_rng([seed, *repr(stream.name).encode()])
    at_margin, equal, worse = (
        np.array([first_answers(random, stream, stream.margin * times) for _ in range(number)])
        for times, number in ((1, samples), (0, samples // 8), (4, samples // 8))
    )
    answered = (at_margin < stream.sessions).mean(axis=0)
    return _Rates(
        stream,
        samples,
        float(answered[0]),
        float(answered[1]),
        _power(equal[:, 0], stream.sessions),
        _power(worse[:, 1], stream.sessions),
    )


def _power(sessions: Any, of: int) -> tuple[float, float]:
    return float((sessions < of).mean()), float(np.median(sessions))


def exceeds(rate: float, alpha: float, samples: int) -> bool:
    return bool(rate > alpha + _ERRORS * (alpha * (1 - alpha) / samples) ** 0.5)


def mismatch(random: Generator, shares: Sequence[float], loss: float, users: int) -> int:
    """After how many users a canary is found out that loses this part of its users; all where it
    never is. The share grows in steps of as many users. Looks after each 5."""
    seen: list[PhaseUsers] = []
    done = 0
    for share in shares:
        canary = random.random(users) < share
        stays = ~canary | (random.random(users) >= loss)
        for upto in range(5, users + 1, 5):
            now = PhaseUsers(
                share, int((canary & stays)[:upto].sum()), int((~canary & stays)[:upto].sum())
            )
            if check_sample_ratio([*seen, now], RATIO_ALPHA).outcome == "mismatch":
                return done + upto
        seen.append(now)
        done += users
    return done + 1


def _show_sample_ratio(samples: int, seed: int) -> bool:
    """As many samples are too many here: it is exact."""
    random = np.random.default_rng([seed, 1])
    steps, users = (0.05, 0.25, 0.5), 1_000
    rows, well = [], True
    for loss, number in ((0.0, samples // 4), (0.1, samples // 16), (0.3, samples // 16)):
        after = np.array([mismatch(random, steps, loss, users) for _ in range(number)])
        found = float((after <= users * len(steps)).mean())
        well = well and (loss > 0 or not exceeds(found, RATIO_ALPHA, number))
        rows.append([f"{loss:.0%}", f"{found:.4f}", f"{np.median(after):.0f}"])
    say(f"The sample ratio at alpha {RATIO_ALPHA:.0%}, shares 5, 25 and 50 % for 1,000 users each:")
    show_table(["users lost by the canary", "found", "after users (median)"], rows)
    return well
