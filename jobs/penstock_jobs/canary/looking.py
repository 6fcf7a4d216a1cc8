"""A look at the trial of a channel: read, measured, judged, kept."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
import sqlalchemy as sa

from penstock.channels.channel import ChannelState, channel_state, policy_of
from penstock.channels.history import channel_changes
from penstock.database.engine import Database, now_us
from penstock.database.errors import DatabaseUnreachable
from penstock.errors import PenstockError
from penstock.gate.policy import CanarySteps, LiveRequirement, Policy, parse
from penstock.gate.sequential import check_sample_ratio
from penstock.gate.tables import live_look
from penstock.lake.lake import Lake
from penstock_jobs.canary.looks import Look, MetricLook, Outcome, judge_look, judge_metric
from penstock_jobs.canary.measuring import Measured, Traffic, measure, read_traffic, seen_users
from penstock_jobs.canary.metrics import Metric, find_metric
from penstock_jobs.canary.trials import Trial, trial_of

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
class KeptLook:
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
        changes, now_us=moment, settle_s=lake.settings.canary_settle_seconds, watch_s=watch_s
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
            unknown_difference_max=lake.settings.canary_unknown_difference_max,
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
    lake: Lake, trial: Trial, traffic: Traffic, live: LiveRequirement
) -> tuple[Metric, Measured]:
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


def newest_look(database: Database, trial: Trial) -> KeptLook | None:
    """Of this trial."""
    with database.read() as connection:
        row = connection.execute(_newest(trial)).first()
    if row is None:
        return None
    document = msgspec.json.decode(row.document)
    return KeptLook(document["outcome"], document["why"], row.at, document)


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
