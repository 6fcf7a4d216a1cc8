"""Credit: what a session is worth, put down for it and for each of its model calls.

A chain is one piece of work that went through several sessions, by compactions and subagents. Each
reward of the definition is put together over the sessions of the chain, as it is put together over
the turns of a session; what the definition makes of that is worth the same for every session of the
chain, and for every call in them, summaries included. A session that is negative by rule makes its
whole chain so, except that what befell a subagent befell it alone. One that must not be learned
from excludes the whole chain: the others go on with what was said in it.

The rows are named `reward`. An outcome that is excluded is censored there: nobody trains on it."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock_jobs.rewards.bucket import Bucket, Parameters
from penstock_jobs.rewards.definition import NAME, Definition, Standing, Term, combine
from penstock_jobs.rewards.outcomes import Limits, Outcome, no_train, outcomes
from penstock_jobs.rewards.rates import Tally, tallies
from penstock_jobs.rewards.reward import REWARD_ROWS, State, latest_due


class Part(NamedTuple):
    """A row of a reward of a session: a part of what its chain is worth."""

    state: State
    value: float | None
    reason: str | None
    weight: float
    due_us: int | None = None


class Place(NamedTuple):
    """Of a session in its chain: the chain is named by the session that it began with."""

    chain: str
    subagent: bool = False


_STATES: Mapping[str, State] = {
    "scored": "scored",
    "negative_by_rule": "scored",
    "pending": "pending",
    "censored": "censored",
    "excluded": "censored",
}


def standings(
    definition: Definition, rows: pa.Table, places: Mapping[str, Place]
) -> dict[str, Standing]:
    """What the definition makes of each session that rows name, or a place: of those of a chain
    together."""
    horizons = {term.reward.name: term.horizon_s for term in definition.counted()}
    of_sessions = rows.filter(pc.equal(rows["target_kind"], "session"))
    members: defaultdict[str, set[str]] = defaultdict(set)
    for session in of_sessions["session_id"].unique().to_pylist():
        members[_chain(session, places)].add(session)
    for session, place in places.items():
        members[place.chain].add(session)
    parts: defaultdict[str, defaultdict[str, list[Part]]] = defaultdict(lambda: defaultdict(list))
    for session, name, horizon_s, *part in _listed(of_sessions, horizons):
        if horizon_s == horizons[name]:
            parts[_chain(session, places)][name].append(Part(*part))
    found: dict[str, Standing] = {}
    for chain, sessions in members.items():
        standing = combine(definition, {name: together(of) for name, of in parts[chain].items()})
        found |= dict.fromkeys(sessions, standing)
    return found


def _chain(session: str, places: Mapping[str, Place]) -> str:
    return places[session].chain if session in places else session


def _listed(rows: pa.Table, names: Iterable[str]) -> Iterator[tuple[Any, ...]]:
    chosen = rows.filter(pc.is_in(rows["name"], pa.array(names, pa.string())))
    columns = ("session_id", "name", "horizon_s", *Part._fields)
    return zip(*(chosen[one].to_pylist() for one in columns), strict=True)


def together(parts: Sequence[Part]) -> Standing:
    """The weighted mean of parts, or why there is none."""
    if len(parts) == 1:
        [one] = parts
        return Standing(one.state, one.value, one.reason, one.due_us)
    waiting = [one for one in parts if one.state == "pending"]
    if waiting:
        return Standing("pending", due_us=latest_due(one.due_us for one in waiting))
    scored = [(one.weight, one.value) for one in parts if one.value is not None]
    if weight := sum(each for each, _ in scored):
        return Standing("scored", sum(each * value for each, value in scored) / weight)
    if scored:
        return Standing("scored", sum(value for _, value in scored) / len(scored))
    counts = Counter((one.state, one.reason) for one in parts)
    state, reason = min(counts, key=lambda one: (-counts[one], str(one)))
    return Standing(state, reason=reason)


def share(found: Sequence[Outcome], places: Mapping[str, Place]) -> list[Outcome]:
    """The outcomes, where those of a chain are negative, or excluded, together."""
    ruling: dict[str, Outcome] = {}
    for one in found:
        place = places.get(one.session_id)
        if place is not None and _rules(one, place):
            ruling[place.chain] = min(ruling.get(place.chain, one), one, key=_mildness)
    return [_under(ruling, one, places.get(one.session_id)) for one in found]


def _rules(one: Outcome, place: Place) -> bool:
    if one.reason == no_train.__name__:
        return True
    return one.kind == "negative_by_rule" and not place.subagent


def _mildness(one: Outcome) -> tuple[bool, float]:
    return one.kind != "excluded", 0.0 if one.value is None else one.value


def _under(ruling: Mapping[str, Outcome], one: Outcome, place: Place | None) -> Outcome:
    shared = ruling.get(place.chain) if place else None
    if shared is None or (one.kind == "excluded" and shared.kind != "excluded"):
        return one
    return Outcome(one.session_id, shared.kind, shared.reason, shared.value, one.checkpoint)


def credit_rows(found: Sequence[Outcome], model_calls: pa.Table) -> pa.Table:
    """A row for each session, and one for each of its model calls."""
    by_session = {one.session_id: _columns_of(one) for one in found}
    names = ("session_id", "call_id", "event_id", "checkpoint")
    values = (model_calls[name].to_pylist() for name in names) if model_calls.num_rows else ()
    rows = [(one.session_id, "session", one.session_id, one.checkpoint) for one in found]
    rows += [
        (session, "model_call", call or event, checkpoint)
        for session, call, event, checkpoint in zip(*values, strict=True)
        if session in by_session
    ]
    shared = [by_session[session] for session, *_ in rows]
    sessions, kinds, targets, checkpoints = zip(*rows, strict=True) if rows else ((),) * 4
    states, worths, reasons, dues = zip(*shared, strict=True) if shared else ((),) * 4
    columns = {
        "session_id": sessions,
        "target_kind": kinds,
        "target_id": targets,
        "name": (NAME,) * len(rows),
        "horizon_s": (None,) * len(rows),
        "value": worths,
        "state": states,
        "reason": reasons,
        "weight": (1.0,) * len(rows),
        "due_us": dues,
        "checkpoint": checkpoints,
    }
    arrays = [pa.array(columns[field.name], field.type) for field in REWARD_ROWS]
    return pa.Table.from_arrays(arrays, schema=REWARD_ROWS)


def _columns_of(one: Outcome) -> tuple[State, float | None, str | None, int | None]:
    reason = one.without or one.reason
    if one.kind in ("negative_by_rule", "excluded"):
        reason = f"{one.kind}: {one.reason}"
    return _STATES[one.kind], one.value, reason, one.due_us


_PERSISTENCE = "edit_persistence"


@dataclass(frozen=True, eq=False)
class Scored:
    #: REWARD_ROWS, of the definition's rewards and of what it makes of them.
    rewards: pa.Table
    #: One for each session, and it counted.
    outcomes: list[tuple[Outcome, Tally]]
    #: When a session has to be looked at again though nothing new came, in microseconds.
    due_us: dict[str, int]


def score(
    bucket: Bucket,
    definition: Definition,
    *,
    places: Mapping[str, Place] | None = None,
    consents: Mapping[str, str] | None = None,
) -> Scored:
    """`places` and `consents` are by session."""
    places = places or {}
    rows = rewards_of(bucket, definition.terms)
    known = standings(definition, rows, places)
    found = share(outcomes(bucket, known, consents or {}, _limits(definition)), places)
    rewards = pa.concat_tables([rows, credit_rows(found, bucket.model_calls)])
    return Scored(rewards, list(zip(found, tallies(bucket, found), strict=True)), _due(rewards))


def rewards_of(bucket: Bucket, terms: Iterable[Term]) -> pa.Table:
    """The rows of these rewards alone."""
    tables = [term.reward.compute(bucket, term.parameters) for term in terms]
    return pa.concat_tables([REWARD_ROWS.empty_table(), *tables])


def _limits(definition: Definition) -> Limits:
    """With the definition's horizons: then texts are compared only once."""
    for term in definition.terms:
        if term.reward.name == _PERSISTENCE and isinstance(term.parameters, Parameters):
            return Limits(persistence=term.parameters)
    return Limits()


def _due(rewards: pa.Table) -> dict[str, int]:
    waiting = rewards.filter(pc.is_valid(rewards["due_us"]))
    first = waiting.group_by("session_id").aggregate([("due_us", "min")])
    columns = (first[name].to_pylist() for name in ("session_id", "due_us_min"))
    return dict(zip(*columns, strict=True))
