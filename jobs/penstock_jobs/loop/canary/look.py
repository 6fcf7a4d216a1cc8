"""A look at the trial of a channel: metrics are measured and judged, and the result is stored."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import expm1, inf, log1p
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec
import sqlalchemy as sa

from penstock.backends.database import DatabaseUnreachable
from penstock.backends.database.engine import Database
from penstock.backends.terminal.output import time_text
from penstock.core.endpoint import Caller, Endpoint
from penstock.core.errors import PenstockError, one_line
from penstock.core.room import Endpoints
from penstock.lake.lake import Lake
from penstock.registry.channels.change import ChannelState
from penstock.registry.channels.channel import channel_state, policy_of
from penstock.registry.channels.endpoints import ChannelRequest
from penstock.registry.channels.history import channel_changes
from penstock.registry.gate import sequential
from penstock.registry.gate.policy import CanarySteps, LiveRequirement, Policy, parse
from penstock.registry.gate.sequential import Arm, SampleRatio
from penstock.registry.gate.tables import live_look
from penstock_jobs.loop import CanarySettings
from penstock_jobs.loop.canary import live_metrics
from penstock_jobs.loop.canary.live_metrics import ARMS, Metric, MetricMeasurement
from penstock_jobs.loop.canary.trial import Trial, trial_of
from penstock_jobs.loop.cycles import database_now
from penstock_jobs.rewards.followups.dissatisfaction import REQUESTS_MIN

_UNKNOWN_DIFFERENCE_MAX = 0.1
_CHANGES_MAX = 1_000

T = TypeVar("T")
Outcome = Literal["pass", "breach", "undecided", "error"]


@dataclass(frozen=True, kw_only=True)
class MetricLook:
    """A judged metric.

    `difference`, `lower` and `upper` are canary − current, or a ratio to current by `scale`."""

    metric: str
    outcome: Outcome
    why: str
    direction: str
    margin: float
    scale: Literal["difference", "ratio"] | None = None
    alpha: float
    breach_alpha: float
    min_sessions: int
    definition_version: str | None = None
    horizon_s: int | None = None
    difference: float | None = None
    lower: float | None = None
    upper: float | None = None
    means: Mapping[Arm, float | None] | None = None
    sessions: Mapping[Arm, int] | None = None
    users: Mapping[Arm, float] | None = None
    pending: Mapping[Arm, int] | None = None
    unknown: Mapping[Arm, int] | None = None
    labels: Mapping[Arm, int] | None = None

    def sentence(self) -> str:
        verdict = f"{self.metric}: {self.outcome}, {self.why}"
        if self.lower is None or self.upper is None:
            return verdict
        unit = "relative, " if self.scale == "ratio" else ""
        change = f"{unit}by {self.lower:+.2f} to {self.upper:+.2f}, margin {self.margin:g}"
        return f"{verdict} ({change}, {'more' if self.direction == 'max' else 'less'} is better)"


@dataclass(frozen=True, kw_only=True)
class Look:
    outcome: Outcome
    why: str
    kind: str
    channel: str
    candidate: str
    incumbent: str
    since_version: int
    policy: str | None
    #: The look covers sessions that began from `from_us` to before `until_us`, in microseconds.
    from_us: int
    until_us: int
    share: float | None
    sessions: Mapping[Arm, int]
    left_out: Mapping[str, Mapping[Arm, int]]
    sample_ratio: SampleRatio | None
    metrics: tuple[MetricLook, ...]


def judge_metric(
    requirement: LiveRequirement,
    measurement: tuple[Metric, MetricMeasurement] | str,
    *,
    metrics: int,
) -> MetricLook:
    """Judge one metric. `measurement` may be the reason why there is none.

    The alpha of a breach is divided among the metrics, since any breach ends the trial. A pass has
    the whole alpha, since all metrics must pass."""
    facts: dict[str, Any] = asdict(requirement)
    del facts["definition"]
    facts["breach_alpha"] = requirement.alpha / max(metrics, 1)
    if isinstance(measurement, str):
        return MetricLook(outcome="error", why=measurement, **facts)
    metric, measured = measurement
    ratio = metric.scale.floor is not None
    question = sequential.ArmRequest(
        direction=requirement.direction,
        margin=log1p(requirement.margin) if ratio else requirement.margin,
        alpha=requirement.alpha,
        breach_alpha=facts["breach_alpha"],
        bounds=measured.bounds or metric.scale.bounds,
    )
    comparison = sequential.compare_arms(measured.cells, question)
    outcome: Outcome = comparison.outcome
    why = comparison.why
    if outcome != "breach" and (missing := _missing(requirement, measured)):
        outcome, why = "undecided", missing
    elif outcome == "pass" and comparison.standard_error == 0:
        outcome, why = "undecided", "all values are equal, so their spread is unknown"
    least, greatest = metric.scale.bounds or (-inf, inf)
    for name in ("difference", "lower", "upper"):
        if (change := getattr(comparison, name)) is not None:
            apart = float(min(max(change, least - greatest), greatest - least))
            facts[name] = expm1(change) if ratio else apart
    facts |= {"definition_version": metric.version, "horizon_s": metric.horizon_s}
    facts |= {"means": measured.means, "sessions": measured.scored, "users": comparison.clusters}
    facts |= {"pending": measured.pending, "unknown": measured.unknown}
    facts["labels"] = measured.labels
    facts["scale"] = "ratio" if ratio else "difference"
    return MetricLook(outcome=outcome, why=why, **facts)


def _missing(requirement: LiveRequirement, measured: MetricMeasurement) -> str | None:
    if measured.labels and (few := [a for a in ARMS if measured.labels[a] < REQUESTS_MIN]):
        names = " and ".join(few)
        return f"fewer than {REQUESTS_MIN} drawn requests in {names}: penstock rewards label"
    if few := [arm for arm in ARMS if measured.scored[arm] < requirement.min_sessions]:
        waiting = sum(measured.pending[arm] for arm in few)
        pending = f", {waiting} pending" if waiting else ""
        names = " and ".join(few)
        return f"fewer than {requirement.min_sessions} sessions with a value in {names}{pending}"
    canary, current = (
        measured.unknown[arm] / (measured.unknown[arm] + measured.scored[arm]) for arm in ARMS
    )
    if abs(canary - current) > _UNKNOWN_DIFFERENCE_MAX:
        return (
            f"{canary:.0%} of the canary's sessions and {current:.0%} of the others will never have"
            " a value: the rest cannot be compared"
        )
    return None


def judge_look(
    trial: Trial, metrics: Sequence[MetricLook], *, ratio: SampleRatio | None, **facts: Any
) -> Look:
    def sentences(outcome: Outcome) -> str:
        return "; ".join(metric.sentence() for metric in metrics if metric.outcome == outcome)

    outcomes: tuple[Outcome, ...] = ("breach", "error", "undecided", "pass")
    why_by_outcome = {outcome: sentences(outcome) for outcome in outcomes}
    if ratio is not None and ratio.outcome == "mismatch":
        why_by_outcome["error"] = (
            f"sample ratio mismatch: {ratio.found} of {ratio.users} users were in the canary,"
            f" expected {ratio.expected:.1f} (p = {ratio.p:.2g}); find out what loses or moves"
            " users before you trust any comparison"
        )
    elif not metrics:
        why_by_outcome["undecided"] = "the policy names no live metric: [[live]]"
    outcome = next(outcome for outcome in outcomes if why_by_outcome[outcome])
    why = why_by_outcome[outcome]
    names = ("kind", "channel", "candidate", "incumbent", "since_version", "share")
    facts |= {name: getattr(trial, name) for name in names} | {"from_us": trial.reads_from_us}
    return Look(outcome=outcome, why=why, sample_ratio=ratio, metrics=tuple(metrics), **facts)


class Situation(msgspec.Struct, frozen=True):
    state: ChannelState
    policy: Policy | None
    steps: CanarySteps
    trial: Trial | None
    now_us: int


class StoredLook(NamedTuple):
    outcome: Outcome
    why: str
    at: int
    document: dict[str, Any]


def situation_of(lake: Lake, tenant: str, channel: str, at_us: int | None = None) -> Situation:
    """Read a channel, its policy and its trial. `at_us` replaces the database's clock.

    Raises ChannelUnknown, HistoryDamaged."""
    state = channel_state(lake.database, tenant, channel)
    latest = channel_changes(lake.database, tenant, channel, limit=_CHANGES_MAX, latest=True)
    text = policy_of(lake.database, state)
    where = f"the policy of {channel}"
    policy = parse(text, where) if text is not None else None
    at_us = database_now(lake.database) if at_us is None else at_us
    steps = (policy and policy.canary) or CanarySteps()
    changes = [change for change in latest if change.version <= state.version]
    settle_s = lake.settings.room(CanarySettings).canary_settle_seconds
    trial = trial_of(changes, now_us=at_us, settle_s=settle_s, watch_s=steps.watch_s)
    return Situation(state, policy, steps, trial, at_us)


def take_look(lake: Lake, situation: Situation, trial: Trial) -> Look:
    """Measure, judge and store. A metric that cannot be measured becomes an error in the look."""
    requirements = situation.policy.live if situation.policy is not None else ()
    traffic = _or_why(lambda: live_metrics.read_traffic(lake, trial, situation.now_us))

    def measured(requirement: LiveRequirement) -> tuple[Metric, MetricMeasurement] | str:
        if isinstance(traffic, str):
            return traffic
        metric = live_metrics.find_metric(lake.database, requirement)
        return metric, live_metrics.measure(lake, trial, traffic, metric)

    metrics = [
        judge_metric(required, _or_why(partial(measured, required)), metrics=len(requirements))
        for required in requirements
    ]
    ratio, sessions = None, dict.fromkeys(ARMS, 0)
    left_out: Mapping[str, Mapping[Arm, int]] = {}
    if not isinstance(traffic, str):
        sessions, left_out = traffic.sessions(), traffic.left_out
        if trial.kind == "canary":
            ratio = sequential.check_sample_ratio(live_metrics.users_by_phase(trial, traffic))
    facts = {"policy": situation.state.policy, "until_us": situation.now_us}
    look = judge_look(trial, metrics, ratio=ratio, sessions=sessions, left_out=left_out, **facts)
    _store_look(lake.database, trial, look, situation.now_us)
    return look


def _or_why(measured: Callable[[], T]) -> T | str:
    try:
        return measured()
    except DatabaseUnreachable:
        raise  # the look could not be stored either
    except PenstockError as error:
        return one_line(error)


def _store_look(database: Database, trial: Trial, look: Look, at_us: int) -> None:
    """Store a look. It replaces the previous one if both have the same outcome."""
    facts = {name: getattr(trial, name) for name in (*_TRIAL_COLUMNS, "incumbent")}
    document = msgspec.json.encode(look, order="sorted").decode()
    with database.write() as connection:
        before = connection.execute(_newest(trial)).first()
        if before is not None and msgspec.json.decode(before.document)["outcome"] == look.outcome:
            connection.execute(sa.delete(live_look).where(live_look.c.id == before.id))
        connection.execute(sa.insert(live_look).values(**facts, at=at_us, document=document))


def newest_look(database: Database, trial: Trial) -> StoredLook | None:
    with database.read() as connection:
        row = connection.execute(_newest(trial)).first()
    if row is None:
        return None
    document = msgspec.json.decode(row.document)
    return StoredLook(document["outcome"], document["why"], row.at, document)


_TRIAL_COLUMNS = ("tenant", "channel", "since_version", "candidate")


def _newest(trial: Trial) -> sa.Select[tuple[int, str, int]]:
    columns = live_look.c
    of_trial = (columns[name] == getattr(trial, name) for name in _TRIAL_COLUMNS)
    newest = sa.select(columns.id, columns.document, columns.at).order_by(columns.id.desc())
    return newest.where(*of_trial).limit(1)


class TrialAnswer(msgspec.Struct, kw_only=True):
    """A trial. `step_since` is when the share last changed, `until` when the watch ends."""

    kind: str
    candidate: str
    incumbent: str
    share: float | None
    since_version: int
    since: str
    step_since: str
    until: str | None


class CanaryAnswer(msgspec.Struct):
    channel: str
    trial: TrialAnswer | None
    look: dict[str, Any] | None
    looked_at: str | None


def trial_answer(trial: Trial) -> TrialAnswer:
    times = {"since": trial.since_us, "step_since": trial.step_us, "until": trial.until_us}
    facts = {name: us if us is None else time_text(us) for name, us in times.items()}
    return msgspec.convert(vars(trial) | facts | {"share": trial.share}, TrialAnswer)


def _show(lake: Lake, caller: Caller, request: ChannelRequest) -> CanaryAnswer:
    trial = situation_of(lake, caller.tenant, request.name).trial
    look = newest_look(lake.database, trial) if trial is not None else None
    return CanaryAnswer(
        channel=request.name,
        trial=trial_answer(trial) if trial is not None else None,
        look=look.document if look is not None else None,
        looked_at=time_text(look.at) if look is not None else None,
    )


SHOW_CANARY = Endpoint(
    "GET /v1/channels/{name}/canary",
    _show,
    ("read", "promote"),
    "The trial of a channel, and the newest look at it",
    description="A canary on part of the traffic, or a new checkpoint that is being watched.",
    refused={500: "The channel's history is damaged."},
)
ENDPOINTS: Endpoints = [SHOW_CANARY]
