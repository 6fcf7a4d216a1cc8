"""What one look at a trial says: pure, and a document that is kept."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeVar

import msgspec
import sqlalchemy as sa

from penstock.channels.channel import ChannelState, channel_state, policy_of
from penstock.channels.history import channel_changes
from penstock.database.engine import Database, now_us
from penstock.database.errors import DatabaseUnreachable
from penstock.errors import PenstockError
from penstock.gate.policy import CanarySteps, LiveRequirement, Policy, parse
from penstock.gate.sequential import (
    Arm,
    ArmQuestion,
    SampleRatio,
    as_ratio,
    check_sample_ratio,
    compare_arms,
    log_margin,
)
from penstock.gate.tables import live_look
from penstock.lake.lake import Lake
from penstock_jobs.canary.live_metrics import (
    ARMS,
    Metric,
    MetricMeasurement,
    TrialTraffic,
    find_metric,
    measure,
    read_traffic,
    seen_users,
)
from penstock_jobs.canary.settings import CanarySettings
from penstock_jobs.canary.trial import Trial, trial_of

#: The shares of sessions that never say anything may differ by so much; above it none pass.
_UNKNOWN_DIFFERENCE_MAX = 0.1

Outcome = Literal["pass", "breach", "undecided", "error"]


@dataclass(frozen=True, kw_only=True)
class MetricLook:
    """One live metric. `difference`, `lower` and `upper` are canary − current; where `scale` is
    `ratio`, the change relative to the current one. What counts as which arm is in the document's
    `candidate` and `incumbent`."""

    metric: str
    outcome: Outcome
    why: str
    direction: str
    margin: float
    scale: Literal["difference", "ratio"] | None = None
    alpha: float
    #: The chance with which this metric alone takes back a checkpoint that is no worse.
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
    #: They will be known later, or never.
    pending: Mapping[Arm, int] | None = None
    unknown: Mapping[Arm, int] | None = None

    def sentence(self) -> str:
        if self.lower is None or self.upper is None:
            return f"{self.metric}: {self.outcome}, {self.why}"
        unit = "relative, " if self.scale == "ratio" else ""
        return (
            f"{self.metric}: {self.outcome}, {self.why}"
            f" ({unit}by {self.lower:+.4g} to {self.upper:+.4g}, margin {self.margin:g},"
            f" {'more' if self.direction == 'max' else 'less'} is better)"
        )


@dataclass(frozen=True, kw_only=True)
class Look:
    """All of one look. `pass` is what the gate takes as live evidence."""

    outcome: Outcome
    why: str
    kind: str
    channel: str
    candidate: str
    incumbent: str
    since_version: int
    policy: str | None
    #: Which sessions: those that began from the one to before the other, in microseconds.
    from_us: int
    until_us: int
    share: float | None
    sessions: Mapping[Arm, int]
    left_out: Mapping[str, Mapping[Arm, int]]
    sample_ratio: SampleRatio | None
    metrics: tuple[MetricLook, ...]

    def document(self) -> dict[str, Any]:
        return asdict(self)

    def sentences(self) -> list[str]:
        found = [one.sentence() for one in self.metrics]
        if self.sample_ratio is not None and self.sample_ratio.outcome == "mismatch":
            found.append(ratio_sentence(self.sample_ratio))
        return found


def ratio_sentence(found: SampleRatio) -> str:
    return (
        f"the sample ratio is broken: {found.found} of {found.users} users were in the canary,"
        f" expected {found.expected:.1f} (p = {found.p:.2g}); find out what loses or moves them"
        " before any comparison is believed"
    )


def judge_metric(
    wanted: LiveRequirement,
    found: tuple[Metric, MetricMeasurement] | str,
    *,
    metrics: int,
    unknown_difference_max: float,
) -> MetricLook:
    """`found` is what was measured, or why nothing could be: then it is an error, never a 0. A
    breach has its alpha shared with the other metrics, since any of them ends the trial; a pass
    has it whole, since all of them have to pass."""
    facts: dict[str, Any] = {
        "metric": wanted.metric,
        "direction": wanted.direction,
        "margin": wanted.margin,
        "alpha": wanted.alpha,
        "breach_alpha": wanted.alpha / max(metrics, 1),
        "min_sessions": wanted.min_sessions,
        "definition_version": None,
        "horizon_s": wanted.horizon_s,
    }
    if isinstance(found, str):
        return MetricLook(outcome="error", why=found, **facts)
    metric, measured = found
    ratio = metric.scale.is_ratio
    said = compare_arms(
        measured.cells,
        ArmQuestion(
            direction=wanted.direction,
            margin=log_margin(wanted.margin) if ratio else wanted.margin,
            alpha=wanted.alpha,
            breach_alpha=facts["breach_alpha"],
            bounds=metric.scale.bounds,
        ),
    )
    outcome: Outcome = said.outcome
    why = said.why
    if outcome != "breach" and (missing := _missing(wanted, measured, unknown_difference_max)):
        outcome, why = "undecided", missing
    elif outcome == "pass" and said.standard_error == 0:
        outcome, why = "undecided", "all values are alike, which nobody can measure by"
    shown = as_ratio if ratio else float
    facts |= {"definition_version": metric.version, "horizon_s": metric.horizon_s}
    return MetricLook(
        outcome=outcome,
        why=why,
        scale="ratio" if ratio else "difference",
        difference=None if said.difference is None else shown(said.difference),
        lower=None if said.lower is None else shown(said.lower),
        upper=None if said.upper is None else shown(said.upper),
        means=measured.means,
        sessions=measured.scored,
        users=said.clusters,
        pending=measured.pending,
        unknown=measured.unknown,
        **facts,
    )


def _missing(
    wanted: LiveRequirement, measured: MetricMeasurement, difference_max: float
) -> str | None:
    """Why too little is known for a pass."""
    few = [arm for arm in ARMS if measured.scored[arm] < wanted.min_sessions]
    if few:
        waiting = sum(measured.pending[arm] for arm in few)
        pending = f", and {waiting} are pending" if waiting else ""
        names = " and ".join(few)
        return f"fewer than {wanted.min_sessions} sessions with a value in {names}{pending}"
    shares = {
        arm: measured.unknown[arm] / (measured.unknown[arm] + measured.scored[arm]) for arm in ARMS
    }
    if abs(shares["canary"] - shares["current"]) > difference_max:
        return (
            f"of {shares['canary']:.0%} of the canary's sessions nobody will ever know it, and of"
            f" {shares['current']:.0%} of the others: what is left cannot be compared"
        )
    return None


def judge_look(
    trial: Trial,
    metrics: Sequence[MetricLook],
    *,
    ratio: SampleRatio | None,
    sessions: Mapping[Arm, int],
    left_out: Mapping[str, Mapping[Arm, int]],
    policy: str | None,
    until_us: int,
) -> Look:
    outcome, why = _together(metrics, ratio)
    return Look(
        outcome=outcome,
        why=why,
        kind=trial.kind,
        channel=trial.channel,
        candidate=trial.candidate,
        incumbent=trial.incumbent,
        since_version=trial.since_version,
        policy=policy,
        from_us=trial.reads_from_us,
        until_us=until_us,
        share=trial.share,
        sessions=sessions,
        left_out=left_out,
        sample_ratio=ratio,
        metrics=tuple(metrics),
    )


def _together(metrics: Sequence[MetricLook], ratio: SampleRatio | None) -> tuple[Outcome, str]:
    """A breach outweighs what could not be measured; else nothing that is missing, broken or open
    is a pass."""
    if breaches := [one for one in metrics if one.outcome == "breach"]:
        return "breach", "; ".join(one.sentence() for one in breaches)
    if ratio is not None and ratio.outcome == "mismatch":
        return "error", ratio_sentence(ratio)
    if errors := [one for one in metrics if one.outcome == "error"]:
        return "error", "; ".join(one.sentence() for one in errors)
    if not metrics:
        return "undecided", "the policy names no live metric: [[live]]"
    if open_ := [one for one in metrics if one.outcome == "undecided"]:
        return "undecided", "; ".join(one.sentence() for one in open_)
    return "pass", "; ".join(one.sentence() for one in metrics)


Found = TypeVar("Found")

#: How many of a channel's newest changes a canary may have gone through.
_CHANGES_MAX = 1_000


@dataclass(frozen=True)
class Situation:
    """A channel with its policy, and the trial that is on, all as of one moment."""

    state: ChannelState
    policy: Policy | None
    trial: Trial | None
    now_us: int

    @property
    def steps(self) -> CanarySteps:
        return (self.policy and self.policy.canary) or CanarySteps()


@dataclass(frozen=True)
class StoredLook:
    """A look as it is in the database."""

    outcome: Outcome
    why: str
    at: int
    document: dict[str, Any]


def situation_of(lake: Lake, tenant: str, channel: str, at_us: int | None = None) -> Situation:
    """`at_us` takes the place of the database's clock. Raises ChannelUnknown, HistoryDamaged."""
    state = channel_state(lake.database, tenant, channel)
    latest = channel_changes(lake.database, tenant, channel, limit=_CHANGES_MAX, latest=True)
    changes = [one for one in latest if one.version <= state.version]
    text = policy_of(lake.database, state)
    policy = parse(text, f"the policy of {channel}") if text is not None else None
    moment = at_us if at_us is not None else database_now(lake.database)
    watch_s = ((policy and policy.canary) or CanarySteps()).watch_s
    trial = trial_of(
        changes,
        now_us=moment,
        settle_s=lake.settings.room(CanarySettings).canary_settle_seconds,
        watch_s=watch_s,
    )
    return Situation(state, policy, trial, moment)


def take_look(lake: Lake, situation: Situation, trial: Trial) -> Look:
    """What the trial shows now, kept. What cannot be measured is an error in the look. Raises
    DatabaseUnreachable."""
    look = _look(lake, situation, trial)
    keep_look(lake.database, trial, look, situation.now_us)
    return look


def _look(lake: Lake, situation: Situation, trial: Trial) -> Look:
    wanted = situation.policy.live if situation.policy is not None else ()
    traffic = _or_why(lambda: read_traffic(lake, trial, situation.now_us))

    def one(live: LiveRequirement) -> MetricLook:
        return judge_metric(
            live,
            traffic
            if isinstance(traffic, str)
            else _or_why(lambda: _measured(lake, trial, traffic, live)),
            metrics=len(wanted),
            unknown_difference_max=_UNKNOWN_DIFFERENCE_MAX,
        )

    metrics = [one(live) for live in wanted]
    known = None if isinstance(traffic, str) else traffic
    split = known if trial.kind == "canary" else None
    return judge_look(
        trial,
        metrics,
        ratio=check_sample_ratio(seen_users(trial, split)) if split is not None else None,
        sessions=known.sessions() if known is not None else {"canary": 0, "current": 0},
        left_out=known.left_out if known is not None else {},
        policy=situation.state.policy,
        until_us=situation.now_us,
    )


def _measured(
    lake: Lake, trial: Trial, traffic: TrialTraffic, live: LiveRequirement
) -> tuple[Metric, MetricMeasurement]:
    metric = find_metric(lake.database, live)
    return metric, measure(lake, trial, traffic, metric)


def _or_why(ask: Callable[[], Found]) -> Found | str:
    """What it gives, or why it cannot: a metric that fails costs its neighbours nothing."""
    try:
        return ask()
    except DatabaseUnreachable:
        raise  # then nothing can be kept either
    except PenstockError as error:
        return " ".join(str(error).split())


# What is kept


def keep_look(database: Database, trial: Trial, look: Look, at_us: int) -> None:
    """Of looks in a row that say the same the last one stays; what a verdict rested on is in its
    document."""
    with database.write() as connection:
        before = connection.execute(_newest(trial)).first()
        if before is not None and msgspec.json.decode(before.document)["outcome"] == look.outcome:
            connection.execute(sa.delete(live_look).where(live_look.c.id == before.id))
        connection.execute(
            sa.insert(live_look).values(
                tenant=trial.tenant,
                channel=trial.channel,
                since_version=trial.since_version,
                candidate=trial.candidate,
                incumbent=trial.incumbent,
                document=msgspec.json.encode(look.document(), order="sorted").decode(),
                at=at_us,
            )
        )


def newest_look(database: Database, trial: Trial) -> StoredLook | None:
    """Of this trial."""
    with database.read() as connection:
        row = connection.execute(_newest(trial)).first()
    if row is None:
        return None
    document = msgspec.json.decode(row.document)
    return StoredLook(document["outcome"], document["why"], row.at, document)


def _newest(trial: Trial) -> sa.Select[tuple[int, str, int]]:
    mine = live_look.c
    return (
        sa.select(mine.id, mine.document, mine.at)
        .where(
            mine.tenant == trial.tenant,
            mine.channel == trial.channel,
            mine.since_version == trial.since_version,
            mine.candidate == trial.candidate,
        )
        .order_by(mine.id.desc())
        .limit(1)
    )


def database_now(database: Database) -> int:
    with database.read() as connection:
        return int(connection.execute(sa.select(now_us())).scalar_one())
