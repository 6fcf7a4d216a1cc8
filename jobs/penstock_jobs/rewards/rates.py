"""How often sessions of a checkpoint end in which way, and an alarm when that moves.

A session is the unit: its turns and calls resemble each other, so that counting them as if they
were independent finds moves where there are none. A rate of turns or calls is the mean of the
sessions' own rates, over the sessions that have any; `hits` and `of` are the plain sums beside it.

The alarm compares two checkpoints by Welch's test on the sessions' rates. A 0 and a 1 are added to
either side for its variance (Agresti and Caffo's correction, also for rates between 0 and 1), and
the standard error is no less than that of all sessions taken together: so nothing is certain
because it was the same in the few sessions seen. The p-values of all watched rates are corrected
together, by Holm's way: `alpha` bounds how often any is called moved when none has."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files
from math import atan, erfc, exp, lgamma, log, pi, sqrt
from statistics import median_low
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.lake.lake import Lake
from penstock.lake.query import OwnQuery
from penstock_jobs.rewards.bucket import Bucket
from penstock_jobs.rewards.measures.asked_instead import asks
from penstock_jobs.rewards.outcomes import Kind, Outcome
from penstock_jobs.rewards.turn_scores import turn_facts

Values = NDArray[np.float64]
Verdict = Literal["moved", "steady", "unknown"]
#: With more degrees of freedom the t distribution is taken for the normal one.
_DEGREES_MAX = 1000.0
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(256)


class Tally(NamedTuple):
    """A session, counted. `asked` are the turns that end in a question and without an edit, as
    `asked_instead` has it."""

    checkpoint: str | None
    kind: Kind
    reason: str | None
    turns: int = 0
    edited: int = 0
    answered: int = 0
    asked: int = 0
    calls: int = 0
    invalid_calls: int = 0


class Share(NamedTuple):
    """Of a session: `hits` of `of`; one with `of` 0 is not in the rate."""

    hits: int
    of: int


def _ended(kind: Kind) -> Callable[[Tally], Share]:
    """Among the sessions that have ended: how many are pending only says how old they are."""
    return lambda one: Share(int(one.kind == kind), int(one.kind != "pending"))


#: What is watched, by name. Scored is what the three first leave.
RATES: Mapping[str, Callable[[Tally], Share]] = {
    "negative_by_rule": _ended("negative_by_rule"),
    "censored": _ended("censored"),
    "excluded": _ended("excluded"),
    "edited_sessions": lambda one: Share(int(one.edited > 0), int(one.turns > 0)),
    "edited_turns": lambda one: Share(one.edited, one.turns),
    "clarifying_questions": lambda one: Share(one.asked, one.answered),
    "invalid_tool_calls": lambda one: Share(one.invalid_calls, one.calls),
}


@dataclass(frozen=True, eq=False)
class Rate:
    """`values` are the sessions' own rates; `value`, their mean, is None where there are none."""

    hits: int
    of: int
    values: Values

    @property
    def value(self) -> float | None:
        return float(self.values.mean()) if self.values.size else None


@dataclass(frozen=True, eq=False)
class CheckpointRates:
    """Of all sessions of a checkpoint; None is for those that had several, or told none."""

    checkpoint: str | None
    sessions: int
    outcomes: Mapping[tuple[Kind, str | None], int]
    rates: Mapping[str, Rate]


@dataclass(frozen=True)
class Watch:
    """When a rate counts as moved."""

    #: How often anything may be called moved when nothing has.
    alpha: float = 0.01
    #: Smaller differences are no alarm, however sure.
    effect_min: float = 0.01
    #: With fewer sessions on either side, nobody can tell.
    sessions_min: int = 30


@dataclass(frozen=True)
class Change:
    """Of a rate, between two checkpoints. `interval` holds after − before with the confidence
    1 − alpha, for this rate alone; `p` is corrected for all that are watched. `unknown`: there
    were too few sessions, which is no good news."""

    rate: str
    verdict: Verdict
    before: float | None
    after: float | None
    interval: tuple[float, float] | None = None
    p: float | None = None

    def sentence(self) -> str:
        if self.interval is None:
            return f"{self.rate}: unknown, too few sessions"
        low, high = self.interval
        return (
            f"{self.rate}: {self.verdict}, from {self.before:.3f} to {self.after:.3f}"
            f" (by {low:+.3f} to {high:+.3f}, p = {self.p:.2g})"
        )


def tallies(bucket: Bucket, found: Iterable[Outcome]) -> list[Tally]:
    """One for each outcome. Turns are those in which the user asked for something, and those that
    the agent began by itself."""
    turns: dict[str, list[dict[str, Any]]] = {}
    for row in turn_facts(bucket):
        turns.setdefault(row["session_id"], []).append(row)
    return [_tally(one, turns.get(one.session_id, [])) for one in found]


def _tally(outcome: Outcome, turns: list[dict[str, Any]]) -> Tally:
    acted = [turn for turn in turns if turn["asked"] or _acted(turn)]
    answered = [turn for turn in acted if turn["edits"] or turn["final_text"] is not None]
    return Tally(
        outcome.checkpoint,
        outcome.kind,
        outcome.reason,
        turns=len(acted),
        edited=sum(turn["edits"] > 0 for turn in acted),
        answered=len(answered),
        asked=sum(not turn["edits"] and asks(turn["final_text"]) for turn in answered),
        calls=sum(turn["tool_calls"] for turn in acted),
        invalid_calls=sum(turn["invalid_tool_calls"] for turn in acted),
    )


def _acted(turn: Mapping[str, Any]) -> bool:
    return bool(turn["model_calls"] or turn["tool_calls"] or turn["edits"])


def checkpoint_rates(sessions: Iterable[Tally]) -> dict[str | None, CheckpointRates]:
    """By checkpoint; every tally is in one."""
    by_checkpoint: dict[str | None, list[Tally]] = {}
    for one in sessions:
        by_checkpoint.setdefault(one.checkpoint, []).append(one)
    return {
        checkpoint: CheckpointRates(
            checkpoint,
            sessions=len(those),
            outcomes=Counter((one.kind, one.reason) for one in those),
            rates={name: _rate(map(share, those)) for name, share in RATES.items()},
        )
        for checkpoint, those in by_checkpoint.items()
    }


def _rate(shares: Iterable[Share]) -> Rate:
    known = [one for one in shares if one.of]
    values = np.array([one.hits / one.of for one in known], np.float64)
    return Rate(sum(one.hits for one in known), sum(one.of for one in known), values)


def changes(
    before: CheckpointRates, after: CheckpointRates, watch: Watch | None = None
) -> list[Change]:
    """One for each rate, in the order of RATES. The sessions of both have to be independent, and
    to have had the same time to ripen."""
    watch = watch or Watch()
    pairs = {name: (before.rates[name], after.rates[name]) for name in RATES}
    tests = {
        name: welch(one.values, other.values, watch.alpha)
        for name, (one, other) in pairs.items()
        if min(one.values.size, other.values.size) >= max(watch.sessions_min, 1)
    }
    # Also what cannot be told is counted, so that the correction does not hang on the data.
    corrected = holm({name: test.p for name, test in tests.items()}, len(RATES))
    found = []
    for name, (one, other) in pairs.items():
        if name not in tests:
            found.append(Change(name, "unknown", one.value, other.value))
            continue
        test, p = tests[name], corrected[name]
        moved = p <= watch.alpha and abs(test.value) >= watch.effect_min
        verdict: Verdict = "moved" if moved else "steady"
        found.append(Change(name, verdict, one.value, other.value, test.interval, p))
    return found


class Difference(NamedTuple):
    """Of two means, after − before."""

    value: float
    interval: tuple[float, float]
    p: float


def welch(before: Values, after: Values, alpha: float) -> Difference:
    """Of values from 0 to 1, of which either side has one at least; two-sided."""
    difference = float(after.mean() - before.mean())
    padded = [np.append(values, (0.0, 1.0)) for values in (before, after)]
    parts = [float(values.var(ddof=1)) / values.size for values in padded]
    counts = [values.size for values in padded]
    # As if there were no difference. A small side that happens to be all alike would else pass
    # for one that is known exactly.
    together = float(np.concatenate(padded).var(ddof=1)) * sum(1 / count for count in counts)
    error = sqrt(max(sum(parts), together))
    by_count = zip(parts, counts, strict=True)
    degrees = sum(parts) ** 2 / sum(part**2 / (count - 1) for part, count in by_count)
    reach = t_quantile(alpha, degrees) * error
    interval = (max(difference - reach, -1.0), min(difference + reach, 1.0))
    return Difference(difference, interval, t_tails(abs(difference) / error, degrees))


def holm(p_values: Mapping[str, float], count: int) -> dict[str, float]:
    """Corrected for `count` tests, of which those that are not in `p_values` say nothing."""
    found: dict[str, float] = {}
    least = 0.0
    for rank, name in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        least = max(least, min(1.0, (count - rank) * p_values[name]))
        found[name] = least
    return found


def t_tails(t: float, degrees: float) -> float:
    """How likely Student's t is at least so far from 0, on either side.

    With t = √degrees · tan(angle) it is the integral of cos(angle)^(degrees − 1), by quadrature."""
    if degrees > _DEGREES_MAX:
        return erfc(t / sqrt(2))
    low = atan(t / sqrt(degrees))
    half = (pi / 2 - low) / 2
    angles = low + half * (_NODES + 1)
    area = half * float(_WEIGHTS @ np.cos(angles) ** (degrees - 1))
    whole = exp(log(pi) / 2 + lgamma(degrees / 2) - lgamma((degrees + 1) / 2)) / 2
    return min(area / whole, 1.0)


def t_quantile(tails: float, degrees: float) -> float:
    """The t of which `t_tails` is `tails`, between 0 and 1: by bisection."""
    low, high = 0.0, 1.0
    while t_tails(high, degrees) > tails:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if t_tails(middle, degrees) > tails else (low, middle)
    return high


_HERE = files("penstock_jobs.rewards")
Row = dict[str, Any]


def compare_definitions(lake: Lake, before: str, after: str, tenant: str) -> list[Row]:
    """A row a reward and horizon, over the sessions that both versions have computed."""
    parameters = {"before": before, "after": after}
    return _ask(lake, "compare.sql", frozenset({"rewards"}), parameters, tenant)


def read_rates(
    lake: Lake, version: str, tenant: str, since_us: int | None = None
) -> list[CheckpointRates]:
    """Of each checkpoint, in the order of the times when its sessions began, in the middle; of
    sessions that had several or told none last."""
    parameters = {"version": version, "since_us": since_us}
    rows = _ask(lake, "rates.sql", frozenset({"outcomes"}), parameters, tenant)
    began: defaultdict[str | None, list[datetime]] = defaultdict(list)
    for row in rows:
        began[row["checkpoint"]].append(row["first_ts"])
    middle = {name: median_low(times) for name, times in began.items()}
    found = checkpoint_rates(map(_tally_of_row, rows))
    return sorted(found.values(), key=lambda one: (one.checkpoint is None, middle[one.checkpoint]))


def _tally_of_row(row: Row) -> Tally:
    return Tally(
        row["checkpoint"],
        row["outcome"],
        row["reason"],
        turns=row["turns"],
        edited=row["edited_turns"],
        answered=row["answered_turns"],
        asked=row["asking_turns"],
        calls=row["tool_calls"],
        invalid_calls=row["invalid_tool_calls"],
    )


def _ask(
    lake: Lake, name: str, views: frozenset[str], parameters: Mapping[str, object], tenant: str
) -> list[Row]:
    sql = _HERE.joinpath(name).read_text(encoding="utf-8")
    found: list[Row] = (
        lake.query(OwnQuery(sql, views, parameters), tenant=tenant).arrow().to_pylist()
    )
    return found
