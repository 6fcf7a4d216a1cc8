"""Rates of outcomes and behaviour by checkpoint, and an alarm when a rate moves.

A rate of requests or calls is the mean of the sessions' own rates, since within a session they are
alike. Two checkpoints are compared by Welch's test. A 0 and a 1 are added to each side for the
variance (Agresti and Caffo), and Holm's method corrects the p-values: `alpha` bounds the chance of
any false alarm.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.backends.database.engine import Database
from penstock.core.errors import InvalidInput
from penstock.lake.lake import Lake
from penstock.lake.query.lake_query import OwnQuery
from penstock.registry.channels.change import CHANNEL_DEFAULT, ChannelUnknown
from penstock.registry.channels.channel import channel_state
from penstock_jobs.rewards import OutcomeKind
from penstock_jobs.rewards.followups.dissatisfaction import RATE as DISSATISFIED_RATE
from penstock_jobs.rewards.followups.dissatisfaction import (
    Dissatisfaction,
    MeanDifference,
    read_dissatisfaction,
    t_quantile,
    t_tails,
)
from penstock_jobs.rewards.followups.dissatisfaction import difference as corrected_difference
from penstock_jobs.rewards.followups.labels import read_follow_ups
from penstock_jobs.rewards.outcomes import Tally
from penstock_jobs.rewards.rows import encoded, sql_of

Values = NDArray[np.float64]

Verdict = Literal["moved", "steady", "unknown"]
Row = dict[str, Any]


class Share(NamedTuple):
    """`hits` out of `of`, for a session or for arrays of them. `of` 0 is not in the rate."""

    hits: Any
    of: Any


def _ended(kind: OutcomeKind) -> Callable[[Any], Share]:
    """Make the share of an outcome. Pending sessions do not count: they are merely young."""
    return lambda tally: Share(tally.outcome == kind, tally.outcome != "pending")


#: The watched rates, for a Tally or for columns with its names. Scored sessions are the remainder
#: of the first three.
RATES: Mapping[str, Callable[[Any], Share]] = {
    "negative_by_rule": _ended("negative_by_rule"),
    "censored": _ended("censored"),
    "excluded": _ended("excluded"),
    "edited_sessions": lambda tally: Share(tally.edited_requests > 0, tally.requests > 0),
    "edited_requests": lambda tally: Share(tally.edited_requests, tally.requests),
    "clarifying_questions": lambda tally: Share(tally.asking_requests, tally.answered_requests),
    "invalid_tool_calls": lambda tally: Share(tally.invalid_tool_calls, tally.tool_calls),
}


@dataclass(frozen=True, eq=False)
class Rate:
    """A rate. `values` are the rates of sessions, `value` their mean; None without sessions."""

    hits: int
    of: int
    values: Values

    @classmethod
    def of_sessions(cls, share: Share) -> "Rate":
        hits, of = (np.asarray(numbers, np.int64) for numbers in share)
        known = of != 0
        return cls(int(hits[known].sum()), int(of[known].sum()), hits[known] / of[known])

    @property
    def value(self) -> float | None:
        return float(self.values.mean()) if self.values.size else None


@dataclass(frozen=True)
class BoundedMean:
    """The mean of a reward over sessions, and its bounds if those that nobody knows count too.

    The lower bound takes each unknown one as the worst, the upper bound as the best."""

    name: str
    horizon_s: int | None
    known: int
    unknown: int
    value: float | None
    low: float
    high: float

    @classmethod
    def of(
        cls, name: str, horizon_s: int | None, known: int, total: float, unknown: int
    ) -> "BoundedMean":
        least, most = REWARD_RANGES[name]
        low, high = (total + unknown * end for end in (least, most))
        of = known + unknown
        return cls(
            name, horizon_s, known, unknown, total / known if known else None, low / of, high / of
        )


#: Rewards whose means are shown with bounds, and between which values each can be.
REWARD_RANGES: Mapping[str, tuple[float, float]] = {
    "reward": (-1.0, 1.0),
    "work_left": (0.0, 1.0),
    "dissatisfied_follow_up": (-1.0, 0.0),
    "edit_persistence": (0.0, 1.0),
}


@dataclass(frozen=True, eq=False)
class CheckpointRates:
    """Rates of a checkpoint; None for sessions with several or none."""

    checkpoint: str | None
    sessions: int
    outcomes: Mapping[tuple[OutcomeKind, str | None], int]
    rates: Mapping[str, Rate]
    dissatisfied: Dissatisfaction | None = None
    means: Sequence[BoundedMean] = ()


class Watch(msgspec.Struct, frozen=True):
    alpha: float = 0.01
    #: Smaller differences are no alarm, however significant.
    effect_min: float = 0.01
    #: With fewer sessions on a side the verdict is unknown.
    sessions_min: int = 30


class RateChange(msgspec.Struct, frozen=True):
    """A rate at two checkpoints.

    `interval` covers after − before with confidence 1 − alpha, for this rate alone. `p` is
    corrected for all watched rates."""

    rate: str
    verdict: Verdict
    before: float | None
    after: float | None
    interval: tuple[float, float] | None = None
    p: float | None = None
    lacking: str = "sessions"

    def sentence(self) -> str:
        if self.interval is None:
            return f"{self.rate}: unknown, too few {self.lacking}"
        low, high = self.interval
        return (
            f"{self.rate}: {self.verdict}, from {self.before:.3f} to {self.after:.3f}"
            f" (by {low:+.3f} to {high:+.3f}, p = {self.p:.2g})"
        )


def read_rates(
    lake: Lake, version: str, tenant: str, since_us: int | None = None
) -> list[CheckpointRates]:
    """Read rates of all checkpoints, by the median start of their sessions, then by name.

    Sessions of several checkpoints or none come last."""
    parameters = {"version": version, "since_us": since_us}
    rows = _query(lake, "rates.sql", "outcomes", parameters, tenant)
    rates = rates_of(rows)
    starts = rows.group_by("checkpoint").aggregate([("start_us", "list")])
    begun = {
        name: np.sort(each.values.to_numpy())[(len(each.values) - 1) // 2]  # the lower median
        for name, each in zip(
            starts["checkpoint"].to_pylist(), starts["start_us_list"], strict=True
        )
    }
    order = sorted(rates, key=lambda name: (name is None, begun[name], name or ""))
    groups = read_follow_ups(lake, version, tenant, since_us=since_us).by_checkpoint()
    found = read_dissatisfaction(lake, tenant, groups) if groups else {}
    means = _means(lake, parameters, tenant)
    return [replace(rates[name], dissatisfied=found.get(name), means=means[name]) for name in order]


def _means(
    lake: Lake, parameters: Mapping[str, object], tenant: str
) -> Mapping[str | None, list[BoundedMean]]:
    file, names = "bounded_means.sql", {"names": list(REWARD_RANGES)}
    query = OwnQuery(sql_of(file), frozenset({"rewards", "outcomes"}), {**parameters, **names})
    means: defaultdict[str | None, list[BoundedMean]] = defaultdict(list)
    for row in lake.query(query, tenant=tenant).arrow().to_pylist():
        if row["known"] + row["unknown"]:
            means[row.pop("checkpoint")].append(BoundedMean.of(**row))
    return means


def compare_definitions(lake: Lake, before: str, after: str, tenant: str) -> list[Row]:
    """Return a row for each reward and horizon, over sessions that both versions have.

    `bounds_…` is what the mean may be whatever the unknown sessions are worth, if that is known."""
    versions = {"before": before, "after": after}
    rows: list[Row] = _query(lake, "compare.sql", "rewards", versions, tenant).to_pylist()
    for row in rows:
        for side in ("before", "after"):
            total, known, unknown = row.pop(f"sums_{side}")
            row[f"bounds_{side}"] = None
            if row["name"] in REWARD_RANGES and known + unknown:
                counts = int(known), total or 0.0, int(unknown)
                mean = BoundedMean.of(row["name"], row["horizon_s"], *counts)
                row[f"bounds_{side}"] = [mean.low, mean.high]
    return rows


def _query(
    lake: Lake, file: str, view: str, parameters: Mapping[str, object], tenant: str
) -> pa.Table:
    query = OwnQuery(sql_of(file), frozenset({view}), parameters)
    return lake.query(query, tenant=tenant).arrow()


def rates_of(tallies: pa.Table) -> dict[str | None, CheckpointRates]:
    codes, names = encoded(tallies["checkpoint"])
    ends = tallies.group_by(["checkpoint", "outcome", "reason"], use_threads=False)
    outcomes: defaultdict[str | None, dict[tuple[OutcomeKind, str | None], int]] = defaultdict(dict)
    for row in ends.aggregate([([], "count_all")]).to_pylist():
        outcomes[row["checkpoint"]][row["outcome"], row["reason"]] = row["count_all"]
    columns = {name: tallies[name].to_numpy() for name in ("outcome", *Tally._fields[3:])}
    found = {}
    for number, name in enumerate(names.to_pylist()):
        own = codes == number
        tally = SimpleNamespace(**{column: values[own] for column, values in columns.items()})
        found[name] = CheckpointRates(
            name,
            sessions=int(own.sum()),
            outcomes=outcomes[name],
            rates={rate: Rate.of_sessions(share(tally)) for rate, share in RATES.items()},
        )
    return found


def served_pair(database: Database, tenant: str) -> tuple[str, str]:
    """The checkpoints to compare on the channel `production`: what serves with what served before,
    or a canary with what serves beside it. Empty names if there are no two."""
    try:
        channel = channel_state(database, tenant, CHANNEL_DEFAULT)
    except ChannelUnknown:
        return "", ""
    pair = channel.previous, channel.checkpoint
    if channel.canary is not None:
        pair = channel.checkpoint, channel.canary
    return pair[0] or "", pair[1] or ""


def checkpoint_pair(
    checkpoints: Iterable[CheckpointRates], before: str, after: str, served: tuple[str, str]
) -> tuple[CheckpointRates, CheckpointRates] | None:
    """Choose two checkpoints: the named ones, else the `served_pair`, else the two newest.

    Raises InvalidInput."""
    named = {rates.checkpoint: rates for rates in checkpoints if rates.checkpoint is not None}
    for name in (before, after):
        if name and name not in named:
            why = f"it has no sessions; known checkpoints: {', '.join(named) or 'none'}"
            raise InvalidInput(what=f"The checkpoint {name!r}", why=why)
    if not (before or after) and all(name in named for name in served):
        before, after = served
    order = list(named)
    after = after or next((name for name in reversed(order) if name != before), "")
    sooner = order[: order.index(after)] if after else []
    before = before or (sooner[-1] if sooner else "")
    return (named[before], named[after]) if before and after else None


def rate_changes(
    before: CheckpointRates, after: CheckpointRates, watch: Watch | None = None
) -> list[RateChange]:
    """Compare each rate, in the order of RATES.

    Sessions of both checkpoints must be independent and equally old."""
    watch = watch or Watch()
    pairs = {name: (before.rates[name], after.rates[name]) for name in RATES}
    tests = {
        name: welch(old.values, new.values, watch.alpha)
        for name, (old, new) in pairs.items()
        if min(old.values.size, new.values.size) >= max(watch.sessions_min, 1)
    }
    values = {name: (old.value, new.value) for name, (old, new) in pairs.items()}
    if before.dissatisfied is not None and after.dissatisfied is not None:
        old_rate, new_rate = before.dissatisfied.rate, after.dissatisfied.rate
        values[DISSATISFIED_RATE] = old_rate.value, new_rate.value
        if test := corrected_difference(old_rate, new_rate, watch.alpha):
            tests[DISSATISFIED_RATE] = test
    # Unknown rates count too, so that the correction does not depend on the data.
    p_values = holm({name: test.p for name, test in tests.items()}, len(values))
    changes = []
    for name, (old_value, new_value) in values.items():
        if name not in tests:
            lacking = "labels" if name == DISSATISFIED_RATE else "sessions"
            changes.append(RateChange(name, "unknown", old_value, new_value, lacking=lacking))
            continue
        change, p = tests[name], p_values[name]
        moved = p <= watch.alpha and abs(change.value) >= watch.effect_min
        verdict: Verdict = "moved" if moved else "steady"
        changes.append(RateChange(name, verdict, old_value, new_value, change.interval, p))
    return changes


def welch(before: Values, after: Values, alpha: float) -> MeanDifference:
    """Run Welch's two-sided test. Values lie in 0 to 1; each side has at least one."""
    difference = float(after.mean() - before.mean())
    padded = [np.append(values, (0.0, 1.0)) for values in (before, after)]
    parts = [float(values.var(ddof=1)) / values.size for values in padded]
    # At least the pooled error: a small side of equal values must not count as known exactly.
    pooled = float(np.concatenate(padded).var(ddof=1)) * sum(1 / values.size for values in padded)
    error = sqrt(max(sum(parts), pooled))
    sides = zip(parts, padded, strict=True)
    degrees = sum(parts) ** 2 / sum(part**2 / (values.size - 1) for part, values in sides)
    reach = t_quantile(alpha, degrees) * error
    interval = (max(difference - reach, -1.0), min(difference + reach, 1.0))
    return MeanDifference(difference, interval, t_tails(abs(difference) / error, degrees))


def holm(p_values: Mapping[str, float], count: int) -> dict[str, float]:
    """Correct p-values by Holm's method for `count` tests, including absent ones."""
    corrected: dict[str, float] = {}
    least = 0.0
    for rank, name in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        least = max(least, min(1.0, (count - rank) * p_values[name]))
        corrected[name] = least
    return corrected
