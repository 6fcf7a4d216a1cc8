"""Credit: what a session is worth by a definition, put down for it and each of its model calls.
All of a chain are worth the same. A session that is negative by rule makes its chain so, except a
subagent's; one that must not be learned from excludes it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from penstock_jobs.rewards.bucket import Bucket, ChainMember, EditParameters
from penstock_jobs.rewards.definition import NAME, Definition, Standing, Term, combine, latest_due
from penstock_jobs.rewards.outcomes import Outcome, no_train, outcomes
from penstock_jobs.rewards.rates import Tally, tallies
from penstock_jobs.rewards.rows import REWARD_ROWS, RewardRows, State, TargetKind, row_tuples


@dataclass(frozen=True, eq=False)
class ScoredBucket:
    rewards: pa.Table
    outcomes: list[tuple[Outcome, Tally]]
    #: When a session has to be computed again though nothing new came, in microseconds.
    due_us: dict[str, int]


def score_bucket(
    bucket: Bucket, definition: Definition, consents: Mapping[str, str] | None = None
) -> ScoredBucket:
    rows = rewards_of(bucket, definition.terms)
    known = standings(definition, rows, bucket.chains)
    # With the definition's horizons: then texts are compared only once.
    of_terms = {term.reward.name: term.parameters for term in definition.terms}
    persistence = of_terms.get("edit_persistence", EditParameters())
    work = of_terms.get("work_left")
    decided = outcomes(bucket, known, consents or {}, persistence, work)
    decided = share_outcomes(decided, bucket.chains)
    rewards = pa.concat_tables([rows, credit_rows(decided, bucket.model_calls)])
    counted = list(zip(decided, tallies(bucket, decided), strict=True))
    waiting = rewards.filter(pc.is_valid(rewards["due_us"]))
    first = waiting.group_by("session_id").aggregate([("due_us", "min")])
    due_us = dict(row_tuples(first, "session_id", "due_us_min"))
    return ScoredBucket(rewards, counted, due_us)


def rewards_of(bucket: Bucket, terms: Iterable[Term]) -> pa.Table:
    tables = [term.reward.compute(bucket, term.parameters) for term in terms]
    return pa.concat_tables([REWARD_ROWS.empty_table(), *tables])


def standings(
    definition: Definition, rows: pa.Table, places: Mapping[str, ChainMember]
) -> dict[str, Standing]:
    by_session: dict[str, Standing] = {}
    for sessions, terms in term_standings(definition, rows, places):
        by_session |= dict.fromkeys(sessions, combine(definition, terms))
    return by_session


def term_standings(
    definition: Definition, rows: pa.Table, places: Mapping[str, ChainMember]
) -> Iterator[tuple[set[str], dict[str, Standing]]]:
    """Of each chain its sessions, and the standings of the rewards that count, by name."""

    def chain_of(session: str) -> str:
        return places[session].chain if session in places else session

    horizons = {term.reward.name: term.horizon_s for term in definition.counted()}
    rows = rows.filter(pc.equal(rows["target_kind"], "session"))
    members: defaultdict[str, set[str]] = defaultdict(set)
    for session in [*rows["session_id"].unique().to_pylist(), *places]:
        members[chain_of(session)].add(session)
    rows = rows.filter(pc.is_in(rows["name"], pa.array(horizons, pa.string())))
    names = ("session_id", "name", "horizon_s", *Standing._fields)
    parts: defaultdict[str, defaultdict[str, list[Standing]]]
    parts = defaultdict(lambda: defaultdict(list))
    for session, name, horizon_s, *part in row_tuples(rows, *names):
        if horizon_s == horizons[name]:
            parts[chain_of(session)][name].append(Standing(*part))
    for chain, sessions in members.items():
        yield sessions, {name: together(own) for name, own in parts[chain].items()}


def together(parts: Sequence[Standing]) -> Standing:
    """The weighted mean of parts, or why there is none."""
    if len(parts) == 1:
        return parts[0]._replace(weight=1.0)
    waiting = [part for part in parts if part.state == "pending"]
    if waiting:
        return Standing("pending", due_us=latest_due(part.due_us for part in waiting))
    scored = [(part.weight, part.value) for part in parts if part.value is not None]
    if total := sum(weight for weight, _ in scored):
        return Standing("scored", sum(weight * value for weight, value in scored) / total)
    if scored:
        return Standing("scored", sum(value for _, value in scored) / len(scored))
    counts = Counter((part.state, part.reason) for part in parts)
    state, reason = min(counts, key=lambda kind: (-counts[kind], str(kind)))
    return Standing(state, reason=reason)


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


def credit_rows(decided: Sequence[Outcome], model_calls: pa.Table) -> pa.Table:
    """An excluded outcome is censored in them: nobody trains on it."""
    rows = RewardRows(NAME)
    targets: list[tuple[str, tuple[TargetKind, str], str | None]] = [
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
    for session, target, checkpoint in targets:
        if (outcome := by_session.get(session)) is None:
            continue
        reason, due_us = outcome.without or outcome.reason, outcome.due_us
        if outcome.kind in ("negative_by_rule", "excluded"):
            reason = f"{outcome.kind}: {outcome.reason}"
        state: State | None = "pending" if outcome.kind == "pending" else None
        value = outcome.value
        rows.add(session, target, value, reason, state=state, due_us=due_us, checkpoint=checkpoint)
    return rows.table()
