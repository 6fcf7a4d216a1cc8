"""`penstock gate hindsight`: the verdicts of a channel beside what production did."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, product
from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.core.endpoint import Caller, Endpoint, Request
from penstock.core.room import Endpoints
from penstock.lake.lake import Lake
from penstock.registry.channels.endpoints import ChannelName
from penstock.registry.channels.history import channel_changes
from penstock_jobs.loop import CanarySettings
from penstock_jobs.loop.canary.look import situation_of
from penstock_jobs.loop.hindsight.foresight import (
    PAIRS_LEAST,
    Estimate,
    Foresight,
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
from penstock_jobs.rewards.due_sessions import known_definitions

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


@dataclass(frozen=True, kw_only=True)
class MetricForesight:
    """A metric of a suite beside an online one. Guards have no `margins`."""

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
