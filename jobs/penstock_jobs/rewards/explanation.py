"""Explanations of rewards: the terms that make a session worth what it is."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.clock import SystemClock
from penstock.core.errors import InvalidInput
from penstock.events.event import CONSENT_UNKNOWN
from penstock.lake.buckets import SessionId
from penstock.lake.lake import Lake
from penstock.lake.query.lake_query import OwnQuery
from penstock_jobs.rewards.bucket import ChainMember
from penstock_jobs.rewards.definition import (
    NAME,
    Bounds,
    Combine,
    Definition,
    TermShare,
    mean_shares,
    parse_definition,
    term_shares,
)
from penstock_jobs.rewards.due_sessions import definition_known_as
from penstock_jobs.rewards.followups.labels import labels_of
from penstock_jobs.rewards.followups.llm_judge import check_judge, open_judge
from penstock_jobs.rewards.history.session_chains import gather_chain
from penstock_jobs.rewards.measures.verdict import ENDED, STARTED, VERDICT
from penstock_jobs.rewards.outcomes import (
    RULES,
    STILL_OPEN,
    ChainTerms,
    chain_terms,
    no_agent,
    score_bucket,
)
from penstock_jobs.rewards.rows import State, sql_of

_BELOW = frozenset({"outcomes"})
#: Files with the rewards of the chain; without any, the first file, since one must be read.
_CHAIN_FILES = """coalesce(
    (select list(distinct rewards_file) from chain),
    getvariable('stored_rewards_files')[1:1])"""
#: Rewards of one session. `rewards_cut_off` says that there are more.
_ROWS_MAX = 20_000
Row = dict[str, Any]


class ChainOutcome(msgspec.Struct, frozen=True):
    session_id: str
    outcome: str
    reason: str | None
    value: float | None


class RequestShare(msgspec.Struct, frozen=True):
    """A request of the chain. It weighs its size; `ended_at` is when the next one began."""

    session_id: str
    number: int
    kind: str | None
    size: float
    started_at: datetime | None
    ended_at: datetime | None
    #: The worst judgement of its work, from −1 to 0.
    verdict: float | None
    state: State
    value: float | None
    reason: str | None
    terms: list[TermShare]


class Explanation(msgspec.Struct, frozen=True):
    """The reward of a session: the mean of its chain's requests, whose terms it shows as means.

    `why` is the reason in words, `total` the sum before the clip."""

    session_id: str
    definition: str
    definition_version: str
    computed_at: datetime | None
    outcome: str
    reason: str | None
    why: str | None
    value: float | None
    total: float | None
    combine: Combine
    clip: Bounds
    terms: list[TermShare]
    requests: list[RequestShare]
    chain: list[ChainOutcome]

    def sentence(self) -> str:
        by = f"by {self.definition} ({self.definition_version})"
        if self.value is None:
            why = self.why or self.reason
            return f"{self.session_id} is {self.outcome} {by}" + (f": {why}" if why else "")
        worth = f"{self.session_id} is worth {self.value:+.3f} {by}"
        if self.outcome == "negative_by_rule":
            return f"{worth}, negative by the rule {self.reason}: {self.why}"
        return f"{worth}, {self.reason}" if self.reason else worth


class SessionRewards(msgspec.Struct, frozen=True):
    explanation: Explanation
    rows: list[Row]
    cut_off: bool


def stored_query(lake: Lake, session: str, definition: str | None = None) -> OwnQuery:
    """Query the newest rewards of a session. `stored_rewards` takes the two answers."""
    known = definition_known_as(lake.database, definition).version if definition else ""
    return OwnQuery(
        "select * exclude (rewards_file) from chain order by first_ts, session_id",
        frozenset(),
        below=_BELOW,
        others=(sql_of("session_rewards.sql"),),
        made={"chain": sql_of("chain_outcomes.sql")},
        assigned={"chain_files": _CHAIN_FILES},
        variables={"session": session, "version": known, "rewards_max": str(_ROWS_MAX + 1)},
    )


def stored_rewards(
    lake: Lake, session: str, chain: pa.Table, rewards: pa.Table
) -> SessionRewards | None:
    outcomes: list[Row] = chain.to_pylist()
    own = next((row for row in outcomes if row["session_id"] == session), None)
    if own is None:
        return None
    places = {row["session_id"]: ChainMember(row["chain"]) for row in outcomes}
    explanation = _explanation(_definition_of(lake, own), rewards, places, outcomes, own)
    rows = [row for row in rewards.to_pylist() if row["session_id"] == session]
    return SessionRewards(explanation, rows[:_ROWS_MAX], rewards.num_rows > _ROWS_MAX)


def computed_rewards(
    lake: Lake, session: str, tenant: str, definition: Definition, consent: str = CONSENT_UNKNOWN
) -> SessionRewards:
    """Compute rewards of a session now, from the segments. Raises SessionUnknown, JudgeUnfit."""
    bucket = gather_chain(lake, SessionId(tenant, session), SystemClock().now_us())
    check_judge(definition, lake.settings)
    ids = bucket.turns["session_id"].unique().to_pylist()
    bucket = replace(
        bucket,
        labels=labels_of(lake.database, tenant, ids),
        llm_judge=open_judge(lake.settings, lake.database, f"show-{uuid4()}"),
    )
    scored = score_bucket(bucket, definition, {session: consent})
    outcomes: list[Row] = [
        {
            "session_id": outcome.session_id,
            "outcome": outcome.kind,
            "reason": outcome.without or outcome.reason,
            "value": outcome.value,
        }
        for outcome, _ in scored.outcomes
        if bucket.chain_of(outcome.session_id) == bucket.chain_of(session)
    ]
    nothing = {"session_id": session, "outcome": "excluded", "reason": no_agent.__name__}
    named = {"definition": definition.name, "definition_version": definition.version}
    own = next((row for row in outcomes if row["session_id"] == session), nothing | {"value": None})
    explanation = _explanation(definition, scored.rewards, bucket.chains, outcomes, own | named)
    rows = [row for row in scored.rewards.to_pylist() if row["session_id"] == session]
    return SessionRewards(explanation, rows, cut_off=False)


def _explanation(
    definition: Definition | None,
    rows: pa.Table,
    places: Mapping[str, ChainMember],
    outcomes: Sequence[Row],
    own: Row,
) -> Explanation:
    requests: list[RequestShare] = []
    shares: list[TermShare] = []
    if definition is not None:
        for chain in chain_terms(definition, rows, places):
            if own["session_id"] in chain.sessions:
                requests, shares = _shares(definition, chain, rows)
    counted = [share.counted for share in shares if share.counted is not None]
    is_whole = pc.and_(pc.equal(rows["name"], NAME), pc.equal(rows["target_id"], own["session_id"]))
    reason = own["reason"] or next(iter(rows.filter(is_whole)["reason"].to_pylist()), None)
    return Explanation(
        session_id=own["session_id"],
        definition=own["definition"],
        definition_version=own["definition_version"],
        computed_at=own.get("computed_at"),
        outcome=own["outcome"],
        reason=reason,
        why=_in_words(reason),
        value=own["value"],
        total=sum(counted) if counted else None,
        combine=definition.combine if definition else "sum",
        clip=definition.clip if definition else None,
        terms=shares,
        requests=requests,
        chain=[
            ChainOutcome(row["session_id"], row["outcome"], row["reason"], row["value"])
            for row in outcomes
        ],
    )


def _shares(
    definition: Definition, chain: ChainTerms, rows: pa.Table
) -> tuple[list[RequestShare], list[TermShare]]:
    """Return the chain's requests in order, and the terms of their mean."""
    facts: dict[tuple[str, str], Row] = defaultdict(dict)
    for row in rows.filter(pc.equal(rows["target_kind"], "request")).to_pylist():
        facts[row["session_id"], row["target_id"]][row["name"]] = row
    requests = []
    for key, worth in chain.of_requests(definition).items():
        terms = term_shares(definition, chain.whole | chain.requests[key])
        told = {name: row["value"] for name, row in facts[key].items()}
        requests.append(
            RequestShare(
                session_id=key[0],
                number=int(key[1]),
                kind=facts[key].get(VERDICT, {}).get("reason"),
                size=chain.sizes[key],
                started_at=_moment(told.get(STARTED)),
                ended_at=_moment(told.get(ENDED)),
                verdict=told.get(VERDICT),
                state=worth.state,
                value=worth.value,
                reason=worth.reason,
                terms=terms,
            )
        )
    requests.sort(key=lambda request: request.number)
    scored = [(request.size, request.terms) for request in requests if request.value is not None]
    return requests, mean_shares(scored) if requests else term_shares(definition, chain.whole)


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def _in_words(reason: str | None) -> str | None:
    if reason == STILL_OPEN:
        return "it is still open: later events may change what a rule says"
    rules = {rule.reason: rule.holds.__doc__ for rule in RULES}
    return rules.get(reason or "") or reason


def _definition_of(lake: Lake, outcome: Row) -> Definition | None:
    progress = definition_known_as(lake.database, outcome["definition_version"])
    try:
        definition = parse_definition(progress.text, progress.name)
    except InvalidInput:
        return None
    return replace(definition, name=progress.name, version=progress.version)
