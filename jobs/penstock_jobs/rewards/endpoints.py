"""Endpoints of rewards: definitions that have run, rates by checkpoint, two definitions
compared."""

from typing import Any

import msgspec

from penstock.core.endpoint import Caller, Endpoint, Request
from penstock.core.room import Endpoints
from penstock.lake.lake import Lake


class DefinitionsRequest(Request):
    """No conditions."""


class DefinitionAnswer(msgspec.Struct):
    name: str
    version: str
    run_at: str


class DefinitionsAnswer(msgspec.Struct):
    """Definitions, the newest run first."""

    definitions: list[DefinitionAnswer]


def _definitions(lake: Lake, _caller: Caller, _question: DefinitionsRequest) -> DefinitionsAnswer:
    from penstock.backends.terminal.output import time_of
    from penstock_jobs.rewards.due_sessions import known_definitions

    return DefinitionsAnswer(
        [
            DefinitionAnswer(run.name, run.version, time_of(run.run_at).isoformat())
            for run in known_definitions(lake.database)
        ]
    )


class RatesRequest(Request):
    """Rates by a definition. `since` is a time, or an age such as 7d.

    Compares `before` and `after`, or what serves with what served before."""

    definition: str = "default"
    since: str | None = None
    before: str | None = None
    after: str | None = None


class ChangeAnswer(msgspec.Struct):
    """A rate at both checkpoints.

    `verdict` is `moved`, `steady`, or `unknown` if there are too few of `lacking`. `low` and `high`
    are a 99 % interval of the difference, for this rate alone."""

    rate: str
    verdict: str
    before: float | None
    after: float | None
    low: float | None
    high: float | None
    p: float | None
    lacking: str | None


class RatesAnswer(msgspec.Struct):
    """Rates by checkpoint, as `penstock rewards rates --json` prints them."""

    definition: str
    version: str
    checkpoints: list[dict[str, Any]]
    before: str | None
    after: str | None
    changes: list[ChangeAnswer]


def _rates(lake: Lake, caller: Caller, request: RatesRequest) -> RatesAnswer:
    from penstock.backends.terminal.options import since_us
    from penstock_jobs.rewards.due_sessions import definition_known_as
    from penstock_jobs.rewards.rates import checkpoint_pair, rate_changes, read_rates, served_pair
    from penstock_jobs.rewards.report import rates_document

    known = definition_known_as(lake.database, request.definition)
    since = since_us(request.since, "since") if request.since else None
    rates = read_rates(lake, known.version, caller.tenant, since)
    served = served_pair(lake.database, caller.tenant)
    pair = checkpoint_pair(rates, request.before or "", request.after or "", served)
    changes = []
    for change in rate_changes(*pair) if pair else []:
        low, high = change.interval or (None, None)
        facts = (change.rate, change.verdict, change.before, change.after, low, high, change.p)
        changes.append(ChangeAnswer(*facts, change.lacking if change.interval is None else None))
    return RatesAnswer(
        definition=known.name,
        version=known.version,
        checkpoints=[rates_document(each) for each in rates],
        before=pair[0].checkpoint if pair else None,
        after=pair[1].checkpoint if pair else None,
        changes=changes,
    )


class DefinitionPair(Request):
    """Two definitions that have run, by name or prefix of the version."""

    before: str
    after: str


class DefinitionComparison(msgspec.Struct):
    """Rewards of sessions that both versions have computed."""

    before: str
    after: str
    rewards: list[dict[str, Any]]


def _compare(lake: Lake, caller: Caller, question: DefinitionPair) -> DefinitionComparison:
    from penstock_jobs.rewards.due_sessions import definition_known_as
    from penstock_jobs.rewards.rates import compare_definitions

    before, after = (
        definition_known_as(lake.database, text).version
        for text in (question.before, question.after)
    )
    rows = compare_definitions(lake, before, after, caller.tenant)
    return DefinitionComparison(before, after, rows)


LIST_DEFINITIONS = Endpoint(
    "GET /v1/rewards/definitions",
    _definitions,
    ("read",),
    "The definitions of rewards that have run",
)
SHOW_RATES = Endpoint(
    "GET /v1/rewards/rates",
    _rates,
    ("read",),
    "How the sessions of each checkpoint ended",
    reads_rows=True,
)
COMPARE_DEFINITIONS = Endpoint(
    "GET /v1/rewards/comparison",
    _compare,
    ("read",),
    "Two definitions compared on the sessions that both have computed",
    reads_rows=True,
)

ENDPOINTS: Endpoints = [LIST_DEFINITIONS, SHOW_RATES, COMPARE_DEFINITIONS]
