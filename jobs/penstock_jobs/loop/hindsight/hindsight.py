"""`penstock gate hindsight`: the verdicts of a channel beside what production did."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import sqlalchemy as sa
from msgspec import Meta

from penstock.backends.database.engine import now_us
from penstock.core.endpoint import Caller, Endpoint, Request
from penstock.core.room import Endpoints
from penstock.lake.lake import Lake
from penstock.registry.channels.channel import channel_state, policy_of
from penstock.registry.channels.endpoints import ChannelName
from penstock.registry.channels.history import channel_changes
from penstock.registry.gate.policy import CanarySteps, parse
from penstock_jobs.loop import CanarySettings
from penstock_jobs.loop.hindsight.foresight import (
    PAIRS_LEAST,
    Foresight,
    GainPair,
    MarginOutcome,
    foresight_of,
    outcome_at,
)
from penstock_jobs.loop.hindsight.pairs import (
    ComparedPair,
    online_metrics,
    read_verdicts,
    trials_of,
    with_traffic,
)
from penstock_jobs.rewards.definition import DEFAULT

#: What is compared by default, where the definition computes it.
ONLINE = (
    "reward", "work_left", "edited_requests", "clarifying_questions", "negative_by_rule",
    "dissatisfied", "latency_ms", "completion_tokens",
)  # fmt: skip
#: Margins that are tried beside the policy's.
MARGINS = (0.01, 0.02, 0.05, 0.1, 0.2)


class HindsightRequest(Request):
    """`metrics` are live metrics, or rates and rewards of the definition. `margins` are what the
    gate might have allowed."""

    name: ChannelName
    metrics: list[str] = []  # noqa: RUF012  # msgspec copies it
    definition: str = DEFAULT
    margins: list[Annotated[float, Meta(gt=0, le=1)]] = []  # noqa: RUF012


@dataclass(frozen=True, kw_only=True)
class MetricForesight:
    """A metric of a suite beside an online one. Guards have no `margins`."""

    suite: str
    metric: str
    online: str
    foresight: Foresight
    margins: Sequence[MarginOutcome]


class HindsightAnswer(msgspec.Struct):
    """`unknown` says which metrics could not be measured."""

    channel: str
    pairs: list[ComparedPair]
    metrics: list[MetricForesight]
    pairs_least: int
    unknown: list[str]


def _look_back(lake: Lake, caller: Caller, request: HindsightRequest) -> HindsightAnswer:
    database, tenant, channel = lake.database, caller.tenant, request.name
    text = policy_of(database, channel_state(database, tenant, channel))
    policy = parse(text, f"the policy of {channel}") if text is not None else None
    watch_s = ((policy and policy.canary) or CanarySteps()).watch_s
    wanted = request.metrics or ONLINE
    strict = bool(request.metrics)
    metrics, unknown = online_metrics(database, wanted, request.definition, strict=strict)
    changes = channel_changes(database, tenant, channel)
    with database.read() as connection:
        now = int(connection.execute(sa.select(now_us())).scalar_one())
    settle_s = lake.settings.room(CanarySettings).canary_settle_seconds
    trials = trials_of(changes, now_us=now, settle_s=settle_s, watch_s=watch_s)
    pairs = [
        with_traffic(lake, pair, trials.get((pair.candidate, pair.incumbent), ()), metrics, now)
        for pair in read_verdicts(database, tenant, channel)
    ]
    names = [metric.name for metric in metrics]
    compared = list(foresights(pairs, names, request.margins))
    return HindsightAnswer(channel, pairs, compared, PAIRS_LEAST, unknown)


def foresights(
    pairs: Sequence[ComparedPair], names: Sequence[str], margins: Sequence[float]
) -> Iterator[MetricForesight]:
    """Each offline metric beside each online one that any pair has. Pure."""
    offline = {(each.suite, each.metric): None for pair in pairs for each in pair.offline}
    for suite, metric in offline:
        for online in names:
            gains: list[GainPair] = []
            ends: list[tuple[str, str]] = []
            asked: set[float] = set()
            for pair in pairs:
                own = [
                    each for each in pair.offline if (each.suite, each.metric) == (suite, metric)
                ]
                if own and online in pair.online:
                    gains.append((own[0].gain, pair.online[online]))
                    ends.append((pair.candidate, pair.incumbent))
                    asked |= {each.margin for each in own if each.margin is not None}
            if not gains:
                continue
            candidates = {candidate for candidate, _ in ends}
            links = sum(incumbent in candidates for _, incumbent in ends)
            tried = sorted({*margins} or {*MARGINS, *asked}) if asked else []
            yield MetricForesight(
                suite=suite,
                metric=metric,
                online=online,
                foresight=foresight_of(gains, links),
                margins=[outcome_at(gains, margin) for margin in tried],
            )


LOOK_BACK = Endpoint(
    "GET /v1/channels/{name}/hindsight",
    _look_back,
    ("read", "promote"),
    "Offline verdicts of a channel beside what production did",
    reads_rows=True,
)
ENDPOINTS: Endpoints = [LOOK_BACK]


# Tables for people


def pair_rows(answer: HindsightAnswer, online: str) -> list[list[object]]:
    rows: list[list[object]] = []
    for pair in answer.pairs:
        users = "" if pair.sessions is None else " / ".join(map(str, pair.sessions.values()))
        how = {"canary": "at once", "watch": "one after the other", None: "no traffic"}[pair.kind]
        found = gain_text(pair.online.get(online))
        for each in pair.offline:
            names = [pair.candidate, pair.incumbent, pair.outcome, f"{each.suite} {each.metric}"]
            rows.append([*names, gain_text(each.gain), how, users, found])
    return rows


def foresight_rows(answer: HindsightAnswer) -> list[list[object]]:
    rows: list[list[object]] = []
    for each in answer.metrics:
        found = each.foresight
        agreed = f"{found.agreed} of {found.compared}{_ends(found.agreement)}"
        shown = f"{found.shown_agreed} of {found.shown}"
        rank = "" if found.correlation is None else f"{found.correlation.value:+.2f}"
        noise = " / ".join("?" if part is None else f"{part:.0%}" for part in found.noise)
        names = [f"{each.suite} {each.metric}", each.online, found.pairs]
        ranked = f"{rank}{_ends(found.correlation)}"
        rows.append([*names, agreed, shown, ranked, noise, found.conclusion])
    return rows


def margin_rows(answer: HindsightAnswer, online: str) -> list[list[object]]:
    rows: list[list[object]] = []
    for each in answer.metrics:
        for at in each.margins if each.online == online else ():
            worse = f"{at.passed_worse} ({at.passed_worse_shown})"
            better = f"{at.kept_out_better} ({at.kept_out_better_shown})"
            counts = [at.passed, worse, at.undecided, at.failed, better]
            rows.append([f"{each.suite} {each.metric}", f"{at.margin:g}", *counts])
    return rows


def gain_text(gain: Any) -> str:
    if gain is None:
        return ""
    if gain.lower is None or gain.upper is None:
        return f"{gain.value:+.3f}"
    return f"{gain.value:+.3f} [{gain.lower:+.3f}, {gain.upper:+.3f}]"


def _ends(interval: Any) -> str:
    return "" if interval is None else f" [{interval.lower:.2f}, {interval.upper:.2f}]"
