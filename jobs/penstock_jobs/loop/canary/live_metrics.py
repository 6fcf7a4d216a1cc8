"""Live metrics: what can be measured on the sessions of a trial, and how.

A share lies between known bounds and is compared directly; its margin is a difference. A quantity
with a heavy tail (tokens, seconds) is compared by its logarithm; its margin is a ratio (0.1: 10 %).

Events and rewards older than the trial are not read."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from math import isfinite
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.backends.database.engine import Database
from penstock.core.clock import SECOND_US
from penstock.core.errors import InvalidInput
from penstock.core.toml_document import unknown
from penstock.lake.lake import Lake
from penstock.lake.query.lake_query import OwnQuery
from penstock.registry.gate.policy import LiveRequirement
from penstock.registry.gate.sequential import Arm, PhaseUsers, UserResult, on_log_scale
from penstock_jobs.loop import CanarySettings
from penstock_jobs.loop.canary.trial import Trial
from penstock_jobs.rewards.definition import DEFAULT, parse_definition
from penstock_jobs.rewards.due_sessions import definition_known_as
from penstock_jobs.rewards.followups.dissatisfaction import JUDGED, read_dissatisfaction
from penstock_jobs.rewards.followups.dissatisfaction import RATE as DISSATISFIED_RATE
from penstock_jobs.rewards.followups.labels import read_follow_ups
from penstock_jobs.rewards.outcomes import Tally
from penstock_jobs.rewards.rates import RATES

Source = Literal["reward", "session", "any", "failed_calls", "call", "reported", "rate", "labels"]
#: What judges say alone. Where a rollback decides, labels correct them.
JUDGED_ALONE = ("dissatisfied_by_llm", "dissatisfied_follow_up", JUDGED)
#: The reward into which a definition combines all others.
WHOLE = "reward"


@dataclass(frozen=True)
class Scale:
    """The scale of a metric. With a `floor` it is logarithmic, and lower values count as it."""

    bounds: tuple[float, float] | None
    floor: float | None = None


_AMOUNT = Scale(None, 1.0)
_UNKNOWN = Scale(None)
_SHARE = Scale((0.0, 1.0))
_MINUS = Scale((-1.0, 0.0))
COLUMNS: Mapping[str, tuple[Source, Scale]] = {
    "completion_tokens": ("session", _AMOUNT),
    "prompt_tokens": ("session", _AMOUNT),
    "duration_s": ("session", _AMOUNT),
    "model_calls": ("session", _AMOUNT),
    "tool_calls": ("session", _AMOUNT),
    "user_messages": ("session", _AMOUNT),
    "errors": ("any", _SHARE),
    "feedback_negative": ("any", _SHARE),
    "feedback_positive": ("any", _SHARE),
    "interrupts": ("any", _SHARE),
    "failed_tool_calls": ("failed_calls", _SHARE),
    "latency_ms": ("call", _AMOUNT),
    "ttft_ms": ("call", _AMOUNT),
    # What agents report as metrics of OpenTelemetry.
    "reported_acceptance": ("reported", _SHARE),
    "reported_no_revert": ("reported", _SHARE),
    "reported_survival": ("reported", _SHARE),
    "reported_votes": ("reported", _SHARE),
    "reported_cost_usd": ("reported", Scale(None, 0.01)),
    "reported_tokens": ("reported", _AMOUNT),
    "reported_tool_calls": ("reported", _AMOUNT),
}
_REWARDS = {
    **dict.fromkeys(
        (
            "asked_instead", "edit_no_revert", "edit_persistence", "four_gram_presence",
            "four_gram_range", "line_survival", "self_rework", "tests_passing",
            "work_left",
        ),
        _SHARE,
    ),
    **dict.fromkeys(
        (
            "asked_again", "invalid_tool_calls", "only_terminal", "open_todos",
            "reasoning_in_comments", "taken_back", "tests_failing",
        ),
        _MINUS,
    ),
    "explicit_feedback": Scale((-1.0, 1.0)),
    "latency": Scale(None, 0.1),
}  # fmt: skip


@dataclass(frozen=True)
class Metric:
    name: str
    source: Source
    scale: Scale
    version: str | None = None
    horizon_s: int | None = None


def find_metric(database: Database, requirement: LiveRequirement) -> Metric:
    """Find a session column, or a reward or rate of a definition that has run."""
    name = requirement.metric

    def refused(why: str) -> InvalidInput:
        return InvalidInput(what=f"The live metric {name!r}", why=why)

    if requirement.definition is None and name in COLUMNS:
        if requirement.horizon_s is not None:
            raise refused("only rewards have a horizon")
        return Metric(name, *COLUMNS[name])
    if name in JUDGED_ALONE:
        why = "a judge errs more on some checkpoints than on others"
        raise refused(f"{why}; {DISSATISFIED_RATE} is its rate, corrected by labels on both sides")
    known = definition_known_as(database, requirement.definition or DEFAULT)
    definition = parse_definition(known.text, known.name)
    if name == WHOLE:
        return Metric(name, "reward", Scale(definition.clip), known.version)
    terms = {term.reward.name: term for term in definition.terms}
    if name in RATES and name not in terms:
        return Metric(name, "rate", _SHARE, known.version)
    if name == DISSATISFIED_RATE and name not in terms:
        if JUDGED not in terms:
            raise refused(f"the definition {known.name} does not name {JUDGED}")
        return Metric(name, "labels", _SHARE, known.version)
    if name not in terms:
        raise refused(unknown(name, [WHOLE, *terms, *RATES, DISSATISFIED_RATE, *COLUMNS]))
    own_s = requirement.horizon_s
    horizon_s = terms[name].horizon_s if own_s is None else own_s
    computed = getattr(terms[name].parameters, "horizons_s", None)
    if computed is None and horizon_s is not None:
        raise refused("it has no horizons")
    if computed is not None and horizon_s not in computed:
        horizons = ", ".join(map(str, computed))
        raise refused(f"horizon_s is {horizon_s}, and the definition computes {horizons}")
    return Metric(name, "reward", _REWARDS.get(name, _UNKNOWN), known.version, horizon_s)


#: Rewards are dated by the worker's clock, channel changes by the database's: allowed skew.
_CLOCKS_APART_US = 3_600 * SECOND_US
ARMS: tuple[Arm, ...] = ("canary", "current")
#: Values by session, and the sessions that will never have one. All others are pending.
_Values = tuple[dict[str, float], set[str]]


@dataclass(frozen=True, eq=False)
class TrialTraffic:
    rows: pa.Table
    arms: NDArray[np.bool_]
    #: The period of the trial in which a session began; −1 where it does not count.
    phases: NDArray[np.int64]
    left_out: Mapping[str, Mapping[Arm, int]]

    @property
    def counted(self) -> NDArray[np.int64]:
        return np.flatnonzero(self.phases >= 0)

    def sessions(self) -> dict[Arm, int]:
        return _by_arm(self.arms[self.counted])


@dataclass(frozen=True, eq=False)
class MetricMeasurement:
    """Values of the counted sessions. `pending` sessions get one later, `unknown` ones never."""

    cells: list[UserResult]
    scored: Mapping[Arm, int]
    pending: Mapping[Arm, int]
    unknown: Mapping[Arm, int]
    means: Mapping[Arm, float | None]
    #: For values corrected by labels: how many drawn requests they decide, and bounds of values.
    labels: Mapping[Arm, int] | None = None
    bounds: tuple[float, float] | None = None


def read_traffic(lake: Lake, trial: Trial, now_us: int) -> TrialTraffic:
    quiet_us = now_us - round(lake.settings.room(CanarySettings).canary_quiet_seconds * SECOND_US)
    times = {"from_us": trial.reads_from_us, "until_us": now_us, "quiet_us": quiet_us}
    pair = {"candidate": trial.candidate, "incumbent": trial.incumbent}
    split = trial.kind == "canary"
    return traffic_of(trial, _query(lake, trial, "sessions", split=split, **pair, **times))


def traffic_of(trial: Trial, rows: pa.Table) -> TrialTraffic:
    """Assign rows of `sessions.sql` to arms and periods, or to a reason to leave them out.

    A session that spans a change of the split is left out on both sides. Sessions that changed
    their checkpoint are left out anyway, so keeping the others would bias the comparison."""
    began, ended = (rows[name].to_numpy().astype(np.int64) for name in ("first_us", "last_us"))
    canary = np.array(rows["candidate"].to_pylist(), bool)
    why = np.array([reason or "" for reason in rows["left_out"].to_pylist()], object)
    phases = np.full(len(began), -1, np.int64)
    for of_arm, periods in ((canary, trial.candidate_periods), (~canary, trial.incumbent_periods)):
        for number, period in enumerate(periods):
            until_us = period.until_us or np.iinfo(np.int64).max
            phases[of_arm & (began >= period.from_us) & (began < until_us)] = number
    crossing = np.zeros(len(began), bool)
    for change_us in trial.split_us:
        crossing |= (began < change_us) & (ended >= change_us)
    why[(why == "") & crossing] = "went_on_after_a_change"
    why[(why == "") & (phases < 0)] = "outside"
    phases[why != ""] = -1
    left_out = {reason: _by_arm(canary[why == reason]) for reason in sorted(set(why) - {""})}
    return TrialTraffic(rows, canary, phases, left_out)


def _by_arm(canary: NDArray[np.bool_]) -> dict[Arm, int]:
    return {"canary": int(canary.sum()), "current": int((~canary).sum())}


def users_by_phase(trial: Trial, traffic: TrialTraffic) -> list[PhaseUsers]:
    first_rows: dict[str, int] = {}
    who = traffic.rows["who"].to_pylist()
    for row in traffic.counted:
        first_rows.setdefault(who[row], row)
    counts = Counter((int(traffic.phases[r]), bool(traffic.arms[r])) for r in first_rows.values())
    return [
        PhaseUsers(period.share, canary=counts[number, True], current=counts[number, False])
        for number, period in enumerate(trial.candidate_periods)
        if period.share is not None
    ]


def measure(lake: Lake, trial: Trial, traffic: TrialTraffic, metric: Metric) -> MetricMeasurement:
    if metric.source == "labels":
        return _corrected(lake, trial, traffic, metric)
    return measured_of(traffic, metric.scale, *_read_values(lake, trial, traffic, metric))


def measured_of(
    traffic: TrialTraffic, scale: Scale, values: Mapping[str, float], unknown: set[str]
) -> MetricMeasurement:
    """Add up values of sessions by user. Raises InvalidInput if a value is not finite."""
    counts: Counter[tuple[int, Arm, str]] = Counter()
    sums: defaultdict[tuple[int, Arm, str], float] = defaultdict(float)
    scored, pending, never = (dict[Arm, int].fromkeys(ARMS, 0) for _ in range(3))
    totals: dict[Arm, float] = dict.fromkeys(ARMS, 0.0)
    who = traffic.rows["who"].to_pylist()
    sessions = traffic.rows["session_id"].to_pylist()
    for row in traffic.counted:
        arm: Arm = "canary" if traffic.arms[row] else "current"
        value = values.get(sessions[row])
        if value is None:
            (never if sessions[row] in unknown else pending)[arm] += 1
            continue
        if not isfinite(value):
            why = f"the session {sessions[row]!r} has the value {value}"
            raise InvalidInput(what="A value of the metric", why=why)
        scored[arm] += 1
        totals[arm] += value
        user = (int(traffic.phases[row]), arm, who[row])
        counts[user] += 1
        sums[user] += value if scale.floor is None else on_log_scale(value, scale.floor)
    cells = [UserResult(*user, count, sums[user]) for user, count in counts.items()]
    means = {arm: totals[arm] / scored[arm] if scored[arm] else None for arm in ARMS}
    return MetricMeasurement(cells, scored, pending, never, means)


def _read_values(lake: Lake, trial: Trial, traffic: TrialTraffic, metric: Metric) -> _Values:
    if metric.source == "reward":
        return _rewards(lake, trial, metric)
    if metric.source == "rate":
        return _rates(lake, trial, metric)
    # The columns of an open session still change.
    over = traffic.rows.filter(traffic.rows["over"])
    sessions = over["session_id"].to_pylist()
    if metric.source in ("call", "reported"):
        return _of_events(lake, trial, metric, set(sessions))
    if metric.source == "failed_calls":
        counts = (over[name].to_pylist() for name in ("failed_tool_calls", "tool_calls"))
        shares = {
            session: min(failed / calls, 1.0)
            for session, failed, calls in zip(sessions, *counts, strict=True)
            if calls > 0
        }
        return shares, set(sessions) - shares.keys()
    column = over[metric.name].to_numpy().astype(np.float64)
    if metric.source == "any":
        column = (column > 0).astype(np.float64)
    values = dict(zip(sessions, column.tolist(), strict=True))
    # An editor's own session has its metrics alone.
    silent = set(over.filter(over["silent"])["session_id"].to_pylist())
    return {name: value for name, value in values.items() if name not in silent}, silent


def _rewards(lake: Lake, trial: Trial, metric: Metric) -> _Values:
    names = {"version": metric.version, "name": metric.name, "horizon_s": metric.horizon_s}
    computed_us = trial.reads_from_us - _CLOCKS_APART_US
    rows = _query(lake, trial, "rewards", computed_us=computed_us, **names)
    values: dict[str, float] = {}
    unknown: set[str] = set()
    columns = (rows[name].to_pylist() for name in ("session_id", "state", "value"))
    for session, state, value in zip(*columns, strict=True):
        if state == "scored":
            values[session] = float("nan") if value is None else value
        elif state != "pending":
            unknown.add(session)
    return values, unknown


def _rates(lake: Lake, trial: Trial, metric: Metric) -> _Values:
    values: dict[str, float] = {}
    unknown: set[str] = set()
    rows = _query(lake, trial, "outcomes", version=metric.version, from_us=trial.reads_from_us)
    for row in rows.to_pylist():
        if row["outcome"] == "pending":
            continue
        share = RATES[metric.name](Tally(*(row[name] for name in Tally._fields)))
        if share.of:
            values[row["session_id"]] = share.hits / share.of
        else:
            unknown.add(row["session_id"])
    return values, unknown


def _corrected(
    lake: Lake, trial: Trial, traffic: TrialTraffic, metric: Metric
) -> MetricMeasurement:
    """Measure the rate of dissatisfied requests: the judge's, corrected by labels in each arm.

    Sessions newer than the newest labels are pending."""
    arms: dict[str, Arm] = {}
    sessions = traffic.rows["session_id"].to_pylist()
    for row in traffic.counted:
        arms[sessions[row]] = "canary" if traffic.arms[row] else "current"
    computed_us = trial.reads_from_us - _CLOCKS_APART_US
    follow_ups = read_follow_ups(lake, str(metric.version), trial.tenant, computed_us=computed_us)
    groups = {
        arm: follow_ups.of_sessions(session for session, own in arms.items() if own == arm)
        for arm in ARMS
    }
    judged = {session for own in groups.values() for session in own.sessions()[1].to_pylist()}
    values: dict[str, float] = {}
    labels: dict[Arm, int] = dict.fromkeys(ARMS, 0)
    least, greatest = 0.0, 1.0
    for arm, found in read_dissatisfaction(lake, trial.tenant, groups).items():
        labels[arm] = found.rate.requests
        if found.rate.is_known:
            values |= zip(found.sessions.to_pylist(), found.rate.values.tolist(), strict=True)
            low, high = found.rate.bounds
            least, greatest = min(least, low), max(greatest, high)
    # Sessions that refuse training are never labelled.
    with_messages, silent = _rewards(lake, trial, replace(metric, name=JUDGED))
    never = silent | (with_messages.keys() - judged)
    measured = measured_of(traffic, metric.scale, values, never)
    return replace(measured, labels=labels, bounds=(least, greatest))


def _of_events(lake: Lake, trial: Trial, metric: Metric, over: set[str]) -> _Values:
    facts: dict[str, object] = {"from_us": trial.reads_from_us}
    if metric.source == "call":
        view, column = "model_calls", metric.name
        facts |= {"candidate": trial.candidate, "incumbent": trial.incumbent}
    else:
        view, column = "events", "value"
        facts |= {"name": metric.name, "is_mean": metric.scale.bounds is not None}
    rows = _query(lake, trial, view, **facts)
    columns = (rows[name].to_pylist() for name in ("session_id", column))
    means = {session: mean for session, mean in zip(*columns, strict=True) if mean is not None}
    return {session: means[session] for session in over & means.keys()}, over - means.keys()


def _query(lake: Lake, trial: Trial, view: str, **parameters: object) -> pa.Table:
    sql = files("penstock_jobs.loop.canary").joinpath(f"{view}.sql").read_text(encoding="utf-8")
    return lake.query(OwnQuery(sql, frozenset([view]), parameters), tenant=trial.tenant).arrow()
