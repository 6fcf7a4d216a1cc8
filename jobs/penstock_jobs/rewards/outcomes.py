"""Outcomes of sessions, and the credit that chains and model calls get.

A session is scored, negative by rule, censored, excluded or pending. Leaving a session out is a
reward decision too: a model broke its tool calls where it expected to fail, because such sessions
were dropped. So every session has exactly one outcome: the first of RULES that holds, else the
standing of its reward.

Sessions of a chain are worth the same. A session that is negative by rule makes its chain so,
unless it is a subagent's. A session that refuses training excludes its chain.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock_jobs.rewards import OutcomeKind
from penstock_jobs.rewards.bucket import TABLES, Bucket, ChainMember, EditParameters
from penstock_jobs.rewards.definition import NAME, UNKNOWN, Definition, Term, combine, together
from penstock_jobs.rewards.measures.edits import edit_persistence
from penstock_jobs.rewards.measures.turns import facts_by_session
from penstock_jobs.rewards.measures.work_left import WorkParameters, works
from penstock_jobs.rewards.requests import Request, requests_of
from penstock_jobs.rewards.rows import (
    REWARD_ROWS,
    RewardRows,
    Standing,
    State,
    Target,
    query_rows,
    row_tuples,
)
from penstock_jobs.rewards.texts.trail import SECOND

#: Session and number of a request.
RequestKey = tuple[str, str]
STILL_OPEN = "still_open"
#: Horizons of minutes would have a session computed once for each.
_TOGETHER_US = 15 * 60 * SECOND
#: A session without an end is over after this much silence.
QUIET_US = 3_600 * SECOND
#: An edit is kept if a larger share of it is still there.
_KEPT_MIN = 0.05
#: The highest value of a session that is negative by rule.
_NEGATIVE = -1.0
#: Reasons of censored or invalid edits that are known to be gone.
_NOT_THERE = ("self_rework", "nothing_written")
_TEXTS = ("session_id", "view", "consent", "checkpoint", "error_class", "type", "payload")
_TIME = pa.timestamp("us", tz="UTC")
_HAPPENED = pa.schema(
    [("ts", _TIME), ("seq", pa.int64()), *((name, pa.string()) for name in _TEXTS)]
)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a session. `value` exists if it is scored or negative by rule.

    `checkpoint` exists if one checkpoint alone served the session."""

    session_id: str
    kind: OutcomeKind
    reason: str | None = None
    value: float | None = None
    checkpoint: str | None = None
    #: When a pending outcome is decided, even without a new event.
    due_us: int | None = None
    #: Rewards that a scored outcome lacks.
    without: str | None = None


@dataclass(frozen=True)
class RuleFacts:
    consent: str
    over: bool
    #: It repeats another session. Only its own events count.
    repeats: bool
    acted: bool
    calls: tuple[bool, ...]
    edited_after_last_call: bool
    #: The user stopped the session after their last message.
    stopped: bool
    #: Some edit is still there, or not known to be gone.
    may_be_kept: bool


def no_train(facts: RuleFacts) -> bool:
    """The user refuses training on it."""
    return facts.consent == "no_train"


def copy(facts: RuleFacts) -> bool:
    """It repeats another session, and the agent did nothing else."""
    return facts.repeats and not facts.acted


def no_agent(facts: RuleFacts) -> bool:
    """The agent did nothing to reward."""
    return not facts.acted


def invalid_tool_calls(facts: RuleFacts) -> bool:
    """All tool calls were invalid, or the last one was and no edit followed."""
    if not facts.calls:
        return False
    return all(facts.calls) or (facts.calls[-1] and not facts.edited_after_last_call)


def abandoned(facts: RuleFacts) -> bool:
    """The user stopped it, and none of its text is still there."""
    return facts.stopped and not facts.may_be_kept


class Rule(NamedTuple):
    """A rule. The name of `holds` is the reason. `while_open`: no later event can revoke it."""

    kind: Literal["excluded", "negative_by_rule"]
    holds: Callable[[RuleFacts], bool]
    while_open: bool = False

    @property
    def reason(self) -> str:
        return self.holds.__name__


RULES = (
    Rule("excluded", no_train, while_open=True),
    Rule("excluded", copy),
    Rule("excluded", no_agent),
    Rule("negative_by_rule", invalid_tool_calls),
    Rule("negative_by_rule", abandoned),
)


def outcomes(
    bucket: Bucket,
    standings: Mapping[str, Standing],
    consents: Mapping[str, str],
    persistence: EditParameters | None = None,
    work: WorkParameters | None = None,
) -> list[Outcome]:
    """Decide the outcome of each session, sorted by session_id. No standing means censored.

    Horizons of `persistence` decide whether an edit is kept. With `work`, notes do not count."""
    rows = _session_facts(bucket)
    asked = [row["session_id"] for row in rows if row["stopped"] and row["edited"]]
    kept = _may_be_kept(bucket, persistence or EditParameters(), work, asked) if asked else ()
    decided = []
    for row in rows:
        session, last_us = row["session_id"], row["last_us"]
        consent = "no_train" if row["refused"] else consents.get(session, "unknown")
        quiet_at_us = None if last_us is None else last_us + QUIET_US
        facts = RuleFacts(
            consent=consent,
            over=row["ended"] or (quiet_at_us is not None and quiet_at_us <= bucket.as_of_us),
            repeats=session in bucket.repeating,
            acted=row["acted"],
            calls=tuple(row["calls"]),
            edited_after_last_call=row["edited_after_last_call"],
            stopped=row["stopped"],
            may_be_kept=session in kept,
        )
        standing = standings.get(session, UNKNOWN)
        kind, reason, value = decide(facts, standing)
        due_us = without = None
        if kind == "pending":
            due_us = quiet_at_us if reason == STILL_OPEN else standing.due_us
        elif kind == "scored":
            reason, without = None, reason
        decided.append(Outcome(session, kind, reason, value, row["checkpoint"], due_us, without))
    return decided


def decide(facts: RuleFacts, standing: Standing) -> tuple[OutcomeKind, str | None, float | None]:
    for rule in RULES:
        if not rule.holds(facts):
            continue
        if not (facts.over or rule.while_open):
            return "pending", STILL_OPEN, None
        if rule.kind == "excluded":
            return rule.kind, rule.reason, None
        worth = _NEGATIVE if standing.value is None else min(standing.value, _NEGATIVE)
        return rule.kind, rule.reason, worth
    if standing.state == "invalid":
        return "censored", f"invalid: {standing.reason}", None
    return standing.state, standing.reason, standing.value


def _session_facts(bucket: Bucket) -> list[dict[str, Any]]:
    tables = [_HAPPENED.empty_table()]
    for name in TABLES:
        table: pa.Table = getattr(bucket, name)
        if table.num_rows:
            texts = table.select(sorted(set(_HAPPENED.names) & set(table.column_names) - {"view"}))
            tables.append(texts.append_column("view", pa.repeat(name, table.num_rows)))
    happened = pa.concat_tables(tables, promote_options="default")
    return query_rows("session_facts.sql", {"happened": happened}, as_of_us=bucket.as_of_us)


def _may_be_kept(
    bucket: Bucket,
    persistence: EditParameters,
    work: WorkParameters | None,
    sessions: Sequence[str],
) -> set[str]:
    """Find sessions with an edit that may still be there.

    The latest known horizon decides; an edit without one may be there. Horizon 0 says nothing."""
    rows = edit_persistence(bucket, persistence)
    of_sessions = pc.is_in(rows["session_id"], pa.array(sessions, pa.string()))
    is_edit = pc.equal(rows["target_kind"], "edit")
    rows = rows.filter(pc.and_(of_sessions, is_edit)).sort_by("horizon_s")
    by_edit: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows.to_pylist():
        by_edit.setdefault((row["session_id"], row["target_id"]), []).append(row)
    counted = by_edit.keys() if work is None else works(bucket, work)

    def is_kept(own: list[dict[str, Any]]) -> bool:
        later = [row for row in own if row["horizon_s"]]
        if work is not None and any(row["reason"] in _NOT_THERE for row in later):
            return False
        values = [row["value"] for row in later if row["value"] is not None]
        if values:
            return bool(values[-1] > _KEPT_MIN)
        return not all(row["reason"] in _NOT_THERE for row in own)

    return {edit[0] for edit, own in by_edit.items() if edit in counted and is_kept(own)}


# Credit


class Tally(NamedTuple):
    """Counts of a session: columns of the view `outcomes`.

    Requests count in the session of their first message. In `asking_requests` the agent ended a
    turn with a question and without an edit, as in `asked_instead`."""

    checkpoint: str | None
    outcome: OutcomeKind
    reason: str | None
    requests: int = 0
    edited_requests: int = 0
    answered_requests: int = 0
    asking_requests: int = 0
    tool_calls: int = 0
    invalid_tool_calls: int = 0


def tallies(bucket: Bucket, outcomes: Iterable[Outcome]) -> list[Tally]:
    """Count requests and calls for each outcome."""
    requests: defaultdict[str, list[Request]] = defaultdict(list)
    for request in requests_of(bucket).all:
        if request.text or request.acted:
            requests[request.session_id].append(request)
    turns = dict(facts_by_session(bucket))
    counted = []
    for outcome in outcomes:
        own, acts = requests[outcome.session_id], turns.get(outcome.session_id, ())
        counts = (
            len(own),
            sum(request.edited for request in own),
            sum(request.edited or request.answered for request in own),
            sum(request.asked_back for request in own),
            sum(turn["tool_calls"] for turn in acts),
            sum(turn["invalid_tool_calls"] for turn in acts),
        )
        counted.append(Tally(outcome.checkpoint, outcome.kind, outcome.reason, *counts))
    return counted


@dataclass(frozen=True, eq=False)
class ScoredBucket:
    rewards: pa.Table
    outcomes: list[tuple[Outcome, Tally]]
    #: When to compute a session again even without new events, in microseconds.
    due_us: dict[str, int]


def score_bucket(
    bucket: Bucket, definition: Definition, consents: Mapping[str, str] | None = None
) -> ScoredBucket:
    rows = rewards_of(bucket, definition.terms)
    known: dict[str, Standing] = {}
    worths: dict[tuple[str, Target], Standing] = {}
    for chain in chain_terms(definition, rows, bucket.chains):
        own = chain.of_requests(definition)
        whole = together(list(own.values())) if own else standing_of(definition, chain)
        known |= dict.fromkeys(chain.sessions, whole)
        for (session, number), worth in own.items():
            worths[session, ("request", number)] = worth
        for (session, call), instead in chain.calls.items():
            worths[session, ("model_call", call)] = standing_of(definition, chain, instead)
    # The definition's horizons: then texts are compared only once.
    of_terms = {term.reward.name: term.parameters for term in definition.terms}
    persistence = of_terms.get("edit_persistence", EditParameters())
    work = of_terms.get("work_left")
    decided = outcomes(bucket, known, consents or {}, persistence, work)
    decided = share_outcomes(decided, bucket.chains)
    rewards = pa.concat_tables([rows, credit_rows(decided, bucket.model_calls, worths)])
    counted = list(zip(decided, tallies(bucket, decided), strict=True))
    return ScoredBucket(rewards, counted, _due_us(rewards))


def _due_us(rewards: pa.Table) -> dict[str, int]:
    """Return when to compute each session again: what is decided soon after its first pending row
    is computed with it."""
    waiting = rewards.filter(pc.is_valid(rewards["due_us"]))
    moments = waiting.group_by(["session_id", "due_us"]).aggregate([]).sort_by("due_us")
    due = list(row_tuples(moments, "session_id", "due_us"))
    first_us = dict(reversed(due))
    return {name: at_us for name, at_us in due if at_us <= first_us[name] + _TOGETHER_US}


def rewards_of(bucket: Bucket, terms: Iterable[Term]) -> pa.Table:
    tables = [term.reward.compute(bucket, term.parameters) for term in terms]
    return pa.concat_tables([REWARD_ROWS.empty_table(), *tables])


_COUNTED_KINDS = ["session", "request", "model_call"]
NOTHING_INSTEAD: Mapping[str, Standing] = {}


class ChainTerms(NamedTuple):
    """Standings of the counted rewards of a chain, by name."""

    sessions: set[str]
    #: Of what is known of sessions alone.
    whole: dict[str, Standing]
    #: Of each request, by its session and number; `sizes` are their weights.
    requests: dict[RequestKey, dict[str, Standing]]
    sizes: dict[RequestKey, float]
    #: Of model calls that were given a value of their own, by session and call.
    calls: dict[tuple[str, str], dict[str, Standing]]

    def of_requests(
        self, definition: Definition, instead: Mapping[str, Standing] = NOTHING_INSTEAD
    ) -> dict[RequestKey, Standing]:
        """Combine the rewards of each request. Rewards of the whole session count in each."""
        return {
            key: combine(definition, {**self.whole, **own, **instead})._replace(
                weight=self.sizes[key]
            )
            for key, own in self.requests.items()
        }


def standings(
    definition: Definition, rows: pa.Table, places: Mapping[str, ChainMember]
) -> dict[str, Standing]:
    """Combine rewards by session: the mean over the requests of its chain by their size."""
    by_session: dict[str, Standing] = {}
    for chain in chain_terms(definition, rows, places):
        by_session |= dict.fromkeys(chain.sessions, standing_of(definition, chain))
    return by_session


def standing_of(
    definition: Definition, chain: ChainTerms, instead: Mapping[str, Standing] = NOTHING_INSTEAD
) -> Standing:
    """Combine the rewards of a chain, with what is known of a single call `instead`."""
    parts = list(chain.of_requests(definition, instead).values())
    return together(parts) if parts else combine(definition, {**chain.whole, **instead})


def chain_terms(
    definition: Definition, rows: pa.Table, places: Mapping[str, ChainMember]
) -> Iterator[ChainTerms]:
    def chain_of(session: str) -> str:
        return places[session].chain if session in places else session

    horizons = {term.reward.name: term.horizon_s for term in definition.counted()}
    rows = rows.filter(pc.is_in(rows["target_kind"], pa.array(_COUNTED_KINDS)))
    chains: dict[str, ChainTerms] = {}
    for session in [*rows["session_id"].unique().to_pylist(), *places]:
        chain = chains.setdefault(chain_of(session), ChainTerms(set(), {}, {}, {}, {}))
        chain.sessions.add(session)
    rows = rows.filter(pc.is_in(rows["name"], pa.array(horizons, pa.string())))
    names = ("session_id", "target_kind", "target_id", "name", "horizon_s", *Standing._fields)
    wholes: defaultdict[tuple[str, str], list[Standing]] = defaultdict(list)
    for session, kind, target, name, horizon_s, *part in row_tuples(rows, *names):
        if horizon_s != horizons[name]:
            continue
        standing = Standing(*part)
        if kind == "session":
            wholes[chain_of(session), name].append(standing)
        elif kind == "model_call":
            chains[chain_of(session)].calls.setdefault((session, target), {})[name] = standing
        else:
            chain, key = chains[chain_of(session)], (session, target)
            chain.requests.setdefault(key, {})[name] = standing
            chain.sizes[key] = standing.weight
    for (own, name), parts in wholes.items():
        if not any(name in known for known in chains[own].requests.values()):
            chains[own].whole[name] = together(parts)
    yield from chains.values()


def share_outcomes(decided: Sequence[Outcome], places: Mapping[str, ChainMember]) -> list[Outcome]:
    worst: dict[str, Outcome] = {}
    for outcome in decided:
        place = places.get(outcome.session_id)
        if place is not None and (
            outcome.reason == no_train.__name__
            or (outcome.kind == "negative_by_rule" and not place.subagent)
        ):
            worst[place.chain] = min(
                (worst.get(place.chain, outcome), outcome),
                key=lambda outcome: (outcome.kind != "excluded", outcome.value or 0.0),
            )

    def ruled(outcome: Outcome) -> Outcome:
        place = places.get(outcome.session_id)
        ruling = worst.get(place.chain) if place else None
        if ruling is None or (outcome.kind == "excluded" and ruling.kind != "excluded"):
            return outcome
        return replace(ruling, session_id=outcome.session_id, checkpoint=outcome.checkpoint)

    return [ruled(outcome) for outcome in decided]


def credit_rows(
    decided: Sequence[Outcome], model_calls: pa.Table, worths: Mapping[tuple[str, Target], Standing]
) -> pa.Table:
    """Make rows for sessions, model calls and requests. Excluded outcomes are censored there.

    `worths` are of requests and calls; other calls are worth what the session is."""
    rows = RewardRows(NAME)
    targets: list[tuple[str, Target, str | None]] = [
        (outcome.session_id, ("session", outcome.session_id), outcome.checkpoint)
        for outcome in decided
    ]
    if model_calls.num_rows:
        calls = row_tuples(model_calls, "session_id", "call_id", "event_id", "checkpoint")
        targets += [
            (session, ("model_call", call or event), checkpoint)
            for session, call, event, checkpoint in calls
        ]
    by_session = {outcome.session_id: outcome for outcome in decided}
    targets += [(*key, None) for key in worths if key[1][0] == "request"]
    for session, target, checkpoint in targets:
        if (outcome := by_session.get(session)) is None:
            continue
        reason, due_us = outcome.without or outcome.reason, outcome.due_us
        if outcome.kind in ("negative_by_rule", "excluded"):
            reason = f"{outcome.kind}: {outcome.reason}"
        elif (own := worths.get((session, target))) is not None:
            rows.add_standing(session, target, own, None, checkpoint)
            continue
        state: State | None = "pending" if outcome.kind == "pending" else None
        value = outcome.value
        rows.add(session, target, value, reason, state=state, due_us=due_us, checkpoint=checkpoint)
    return rows.table()
