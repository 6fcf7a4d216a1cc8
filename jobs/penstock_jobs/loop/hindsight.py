"""`penstock gate hindsight`: pairs of checkpoints with a verdict and live traffic. What the gate
saw stands beside what users met."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, product
from math import expm1
from typing import Annotated, Any

import msgspec
import sqlalchemy as sa
from msgspec import Meta

from penstock.backends.database.engine import Database
from penstock.core.endpoint import Caller, Endpoint, Request
from penstock.core.errors import InvalidInput
from penstock.core.room import Endpoints
from penstock.lake.lake import Lake
from penstock.registry.channels.change import Change
from penstock.registry.channels.endpoints import ChannelName
from penstock.registry.channels.history import channel_changes
from penstock.registry.gate import tables
from penstock.registry.gate.policy import LESS_IS_BETTER, LiveRequirement
from penstock.registry.gate.sequential import Arm, ArmRequest, compare_arms
from penstock_jobs.loop import CanarySettings
from penstock_jobs.loop.canary.live_metrics import Metric, find_metric, measure, read_traffic
from penstock_jobs.loop.canary.look import situation_of
from penstock_jobs.loop.canary.trial import Kind, Trial, trial_of
from penstock_jobs.loop.foresight import (
    PAIRS_LEAST,
    REACH,
    Estimate,
    Foresight,
    MarginOutcome,
    foresight_of,
    outcome_at,
)
from penstock_jobs.rewards.definition import DEFAULT
from penstock_jobs.rewards.due_sessions import known_definitions


class OfflineGain(msgspec.Struct, frozen=True):
    gain: Estimate
    #: The margin that the policy allowed, if it is about one.
    margin: float | None = None


@dataclass(frozen=True, kw_only=True)
class ComparedPair:
    """The gate's last verdict on a pair. Candidates that got no traffic have no online gains."""

    candidate: str
    incumbent: str
    verdict: str
    outcome: str
    #: By suite and metric.
    offline: Mapping[str, OfflineGain]
    #: A canary has both at once; a watch has one after the other.
    kind: Kind | None = None
    sessions: Mapping[Arm, int] | None = None
    online: Mapping[str, Estimate] = field(default_factory=dict)


def read_verdicts(database: Database, tenant: str, channel: str) -> list[ComparedPair]:
    """The last verdict on each pair, in the order of the first ones."""
    columns = tables.verdict.c
    query = sa.select(columns.id, columns.document).where(columns.tenant == tenant)
    query = query.where(columns.channel == channel).order_by(columns.made_at, columns.id)
    pairs: dict[tuple[str, str], ComparedPair] = {}
    rows = database.rows(query)
    for verdict_id, text in rows:
        document = msgspec.json.decode(text)
        if offline := offline_gains(document):
            names = (document["candidate"]["name"], document["incumbent"]["name"])
            facts = {"verdict": verdict_id, "outcome": document["outcome"], "offline": offline}
            pairs[names] = ComparedPair(candidate=names[0], incumbent=names[1], **facts)
    return list(pairs.values())


def offline_gains(document: Mapping[str, Any]) -> dict[str, OfflineGain]:
    """The differences of a verdict's requirements and relative guards, turned so that more is
    better."""
    gains = {}
    for part in document.get("requirements") or () if document.get("incumbent") else ():
        if (value := part.get("difference")) is not None:
            gain = Estimate(value, part.get("lower"), part.get("upper"))
            gains[f"{part['suite']} {part['metric']}"] = OfflineGain(gain, part["margin"])
    for part in document.get("guards") or ():
        if part["kind"] not in ("max_increase", "max_decrease") or part.get("value") is None:
            continue
        ends = [part["value"], part.get("lower"), part.get("upper")]
        if part["kind"] == "max_increase":
            ends = [None if end is None else -end for end in (ends[0], ends[2], ends[1])]
        gains[f"{part['suite']} {part['metric']}, relative"] = OfflineGain(Estimate(*ends))
    return gains


def trials_of(
    changes: Sequence[Change], *, now_us: int, settle_s: float, watch_s: float
) -> dict[tuple[str, str], list[Trial]]:
    """All trials of a channel by pair, canaries first, each with the traffic up to its end."""
    trials: dict[int, Trial] = {}
    for number, change in enumerate(changes, 1):
        trial = trial_of(changes[:number], now_us=change.at, settle_s=settle_s, watch_s=watch_s)
        if trial is not None:
            end_us = changes[number].at if number < len(changes) else now_us
            trials[trial.since_version] = _closed(trial, end_us)
    by_pair: dict[tuple[str, str], list[Trial]] = {}
    for trial in sorted(trials.values(), key=lambda each: (each.kind, -each.since_us)):
        by_pair.setdefault((trial.candidate, trial.incumbent), []).append(trial)
    return by_pair


def _closed(trial: Trial, end_us: int) -> Trial:
    """End a canary with the next change of its channel. A watch ends by itself."""
    if trial.kind == "watch":
        return trial
    periods = tuple(
        replace(period, until_us=min(period.until_us or end_us, end_us))
        for period in trial.candidate_periods
    )
    split_us = (*trial.split_us, end_us)
    return replace(trial, candidate_periods=periods, incumbent_periods=periods, split_us=split_us)


def online_metrics(
    database: Database, names: Sequence[str], definition: str, *, strict: bool
) -> tuple[list[Metric], list[str]]:
    """The metrics with these names, and why others are not known. If `strict`, raises InvalidInput
    instead."""
    metrics, unknown = [], dict[str, None]()
    for name in names:
        try:
            metrics.append(_metric(database, name, definition))
        except InvalidInput as error:
            if strict:
                raise
            unknown[str(error)] = None
    return metrics, list(unknown)


def _metric(database: Database, name: str, definition: str) -> Metric:
    try:
        return find_metric(database, LiveRequirement(metric=name, margin=1.0))
    except InvalidInput:
        named = LiveRequirement(metric=name, margin=1.0, definition=definition)
        return find_metric(database, named)


def with_traffic(
    lake: Lake, pair: ComparedPair, trials: Sequence[Trial], metrics: Sequence[Metric], now_us: int
) -> ComparedPair:
    """Add what users met: in a canary, or in a watch if the canary had too few users."""
    for trial in trials:
        traffic = read_traffic(lake, trial, now_us)
        online = {}
        for metric in metrics:
            measured = measure(lake, trial, traffic, metric)
            less = metric.name in LESS_IS_BETTER
            bounds = measured.bounds or metric.scale.bounds
            request = ArmRequest(direction="min" if less else "max", margin=0.0, bounds=bounds)
            found = compare_arms(measured.cells, request)
            if found.difference is None or found.standard_error is None:
                continue
            middle, reach = -found.difference if less else found.difference, REACH
            ends = (middle + side * reach * found.standard_error for side in (0, -1, 1))
            ratio = metric.scale.floor is not None
            online[metric.name] = Estimate(*(expm1(end) if ratio else end for end in ends))
        pair = replace(pair, kind=trial.kind, sessions=traffic.sessions(), online=online)
        if online:
            break
    return pair


#: What is compared by default, where the definition computes it.
ONLINE = (
    "reward", "work_left", "edit_persistence", "edited_requests", "clarifying_questions",
    "negative_by_rule", "dissatisfied", "latency_ms", "completion_tokens",
)  # fmt: skip
#: Margins that are tried beside the policy's.
MARGINS = (0.01, 0.02, 0.05, 0.1, 0.2)


class HindsightRequest(Request):
    """`metrics` are live metrics, or rates and rewards of the definition, by default of the one
    that ran last. `margins` are what the gate might have allowed."""

    name: ChannelName
    metrics: list[str] = []  # noqa: RUF012  # msgspec copies it
    definition: str | None = None
    margins: list[Annotated[float, Meta(gt=0, le=1)]] = []  # noqa: RUF012


class MetricForesight(msgspec.Struct, frozen=True, kw_only=True):
    """A metric of a suite beside an online one. Without a margin in a policy `margins` is empty."""

    offline: str
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
    now = situation_of(lake, tenant, channel)
    wanted, strict = request.metrics or ONLINE, bool(request.metrics)
    newest = next((run.name for run in known_definitions(database)), DEFAULT)
    definition = request.definition or newest
    metrics, unknown = online_metrics(database, wanted, definition, strict=strict)
    trials = trials_of(
        channel_changes(database, tenant, channel),
        now_us=now.now_us,
        settle_s=lake.settings.room(CanarySettings).canary_settle_seconds,
        watch_s=now.steps.watch_s,
    )
    pairs = []
    for pair in read_verdicts(database, tenant, channel):
        own = trials.get((pair.candidate, pair.incumbent), ())
        pairs.append(with_traffic(lake, pair, own, metrics, now.now_us))
    names = [metric.name for metric in metrics]
    compared = list(foresights(pairs, names, request.margins))
    return HindsightAnswer(channel, pairs, compared, PAIRS_LEAST, unknown)


def foresights(
    pairs: Sequence[ComparedPair], names: Sequence[str], margins: Sequence[float]
) -> Iterator[MetricForesight]:
    """Set each offline metric beside each online one that any pair has."""
    for offline, online in product(dict.fromkeys(chain(*(p.offline for p in pairs))), names):
        both = [pair for pair in pairs if offline in pair.offline and online in pair.online]
        if not both:
            continue
        gains = [(pair.offline[offline].gain, pair.online[online]) for pair in both]
        candidates = {pair.candidate for pair in both}
        links = sum(pair.incumbent in candidates for pair in both)
        asked = {margin for pair in both if (margin := pair.offline[offline].margin)}
        tried = sorted({*margins} or {*MARGINS, *asked}) if asked else []
        outcomes = [outcome_at(gains, margin) for margin in tried]
        found = foresight_of(gains, links)
        yield MetricForesight(offline=offline, online=online, foresight=found, margins=outcomes)


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
        met = _text(pair.online[online], 3) if online in pair.online else ""
        for name, each in pair.offline.items():
            names = [pair.candidate, pair.incumbent, pair.outcome, name, _text(each.gain, 3)]
            rows.append([*names, how, users, met])
    return rows


def foresight_rows(answer: HindsightAnswer) -> list[list[object]]:
    rows: list[list[object]] = []
    for each in answer.metrics:
        found = each.foresight
        agreed = f"{found.agreed} of {found.compared}"
        if found.agreement is not None:
            agreed += f" [{found.agreement.lower:.2f}, {found.agreement.upper:.2f}]"
        rank = "" if found.correlation is None else _text(found.correlation, 2)
        noise = " / ".join("?" if part is None else f"{part:.0%}" for part in found.noise)
        signs = [found.pairs, agreed, f"{found.shown_agreed} of {found.shown}"]
        rows.append([each.offline, each.online, *signs, rank, noise, found.conclusion])
    return rows


def margin_rows(answer: HindsightAnswer, online: str) -> list[list[object]]:
    rows: list[list[object]] = []
    for each in answer.metrics:
        for at in each.margins if each.online == online else ():
            worse = f"{at.passed_worse} ({at.passed_worse_shown})"
            better = f"{at.kept_out_better} ({at.kept_out_better_shown})"
            counts = [at.passed, worse, at.undecided, at.failed, better]
            rows.append([each.offline, f"{at.margin:g}", *counts])
    return rows


def _text(estimate: Estimate, digits: int) -> str:
    ends = (
        "?" if end is None else f"{end:+.{digits}f}" for end in (estimate.lower, estimate.upper)
    )
    return f"{estimate.value:+.{digits}f} [{', '.join(ends)}]"
