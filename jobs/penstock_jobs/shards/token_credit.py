"""Token rewards: the reward of a rollout, spread over the tokens that it was given for.

A definition's reward is a weighted sum of rewards of edits and turns, so each of these has a share
in it. The share of an edit stands at the last token of the call that made it, that of a turn at the
last token that the model wrote in it. What belongs to no token stands at the rollout's last: what
is of the whole session, what was cut off, and the whole reward where a rule decided. So the token
rewards of a rollout add up to its reward.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock_jobs.rewards.definition import Bounds, Definition
from penstock_jobs.rewards.rows import row_tuples
from penstock_jobs.rewards.texts.trail import EditNames
from penstock_jobs.shards.conversation import Conversation, ModelCall
from penstock_jobs.shards.engine_branches import Branch
from penstock_jobs.shards.name_numbers import numbers_in, places_among
from penstock_jobs.shards.planned_sessions import PlannedSessions, portions_of

#: Of each session that was chosen.
SPAN_CREDITS = pa.list_(
    pa.struct({"kind": pa.string(), "target": pa.string(), "value": pa.float64()})
)
#: (place, value), in order.
TokenRewards = tuple[tuple[int, float], ...]
#: What is left over where sums of fractions do not come out even.
_DUST = 1e-9


# What edits and turns add to a reward


def all_span_credits(
    chosen: pa.Table, rows: pa.Table, definition: Definition, planned: PlannedSessions
) -> pa.ChunkedArray:
    """`span_credits` of any number of sessions, in the order of a shard, a portion at a time."""
    chains = numbers_in(chosen["chain"])
    starts = np.flatnonzero(np.diff(chains, prepend=-1))
    numbers = places_among(planned.ids, rows["session_id"])
    rows, numbers = rows.filter(pa.array(numbers >= 0)), numbers[numbers >= 0]
    all_chains = planned.chains()
    of_rows = all_chains.take(pa.array(numbers))
    places_of_chains = np.full(len(all_chains.dictionary), -1)
    places_of_chains[chains[starts]] = np.arange(len(starts))
    places = places_of_chains[numbers_in(of_rows)]
    order = np.argsort(places, kind="stable")
    rows, of_rows, places = rows.take(order), of_rows.take(order), places[order]
    credits = [pa.array([], SPAN_CREDITS)]
    for first, end in portions_of(chosen, starts):
        low, high = np.searchsorted(places, np.searchsorted(starts, [first, end]))
        own = rows.slice(low, high - low)
        named = own["session_id"].to_pylist()
        by_session = dict(zip(named, of_rows[low:high].to_pylist(), strict=True))
        credits.append(span_credits(chosen.slice(first, end - first), own, definition, by_session))
    return pa.chunked_array(credits)


def span_credits(
    chosen: pa.Table, rows: pa.Table, definition: Definition, chains: Mapping[str, str]
) -> pa.Array:
    """For each row of CHOSEN_ROWS what its edits and turns added to the reward of its chain. `rows`
    are their scored rewards, of all sessions of these chains."""
    horizons = {term.reward.name: term.horizon_s for term in definition.counted()}
    parts: defaultdict[tuple[str, str], list[tuple[Any, ...]]] = defaultdict(list)
    columns = ("session_id", "name", "horizon_s", "target_kind", "target_id", "value", "weight")
    for session, name, horizon_s, *part in row_tuples(rows, *columns):
        if session in chains and name in horizons and horizons[name] == horizon_s:
            parts[chains[session], name].append((session, *part))
    credits: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    worth = row_tuples(chosen, "chain", "outcome", "components")
    for chain, (outcome, components) in {each[0]: each[1:] for each in worth}.items():
        factors = _factors(definition, components) if outcome == "scored" else {}
        for name, factor in factors.items():
            own = parts[chain, name]
            of_edits = [part for part in own if part[1] == "edit"]
            for session, kind, target, value, share in _shares(of_edits or own):
                credit = {"kind": kind, "target": target, "value": factor * share * value}
                credits[session].append(credit)
    lists = [credits[session] for session in chosen["session_id"].to_pylist()]
    return pa.array(lists, SPAN_CREDITS)


def _factors(definition: Definition, components: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """By how much the combined reward grows with each of its parts, as `combine` puts them
    together."""
    clips = {term.reward.name: term.clip for term in definition.terms}
    values = {part["name"]: part["value"] for part in components}
    weights = {part["name"]: part["weight"] for part in components}
    total_weight = sum(map(abs, weights.values())) if definition.combine == "mean" else 1.0
    if not total_weight:
        return {}
    factors = {
        name: weights[name] / total_weight * _kept(value, clips.get(name))
        for name, value in values.items()
    }
    total = sum(factors[name] * value for name, value in values.items())
    kept = _kept(total, definition.clip)
    return {name: factor * kept for name, factor in factors.items()}


def _kept(value: float, clip: Bounds) -> float:
    """Which share of a value is left when it is clipped."""
    if clip is None or not value:
        return 1.0
    return min(max(value, clip[0]), clip[1]) / value


def _shares(parts: Sequence[tuple[Any, ...]]) -> Iterable[tuple[Any, ...]]:
    """Parts with their share of the whole in the place of their weight: a whole is the weighted
    mean of its parts, or their plain mean where they weigh nothing."""
    total = sum(weight for *_, weight in parts)
    for *part, weight in parts:
        yield (*part, weight / total if total else 1 / len(parts))


# Where they stand


class EditMark(NamedTuple):
    """An edit by the name that rewards give it, and the call that made it, if it says so."""

    name: str
    call_id: str | None
    ts_us: int
    seq: int | None


class _EditPayload(msgspec.Struct, gc=False):
    edit_id: str | None = None
    call_id: str | None = None


_decoder = msgspec.json.Decoder(_EditPayload)


def edit_marks(rows: pa.Table) -> dict[str, list[EditMark]]:
    """By session, of rows of segments."""
    rows = rows.filter(pc.equal(rows["type"], "edit"))
    edits: defaultdict[str, list[tuple[int, int | None, str | None, memoryview]]] = defaultdict(
        list
    )
    moments = rows["ts"].cast(pa.int64()).to_pylist()
    columns = (rows[name].to_pylist() for name in ("session_id", "seq", "event_id"))
    payloads = (memoryview(payload.as_buffer()) for payload in rows["payload"])
    for session, seq, event_id, ts_us, payload in zip(*columns, moments, payloads, strict=True):
        edits[session].append((ts_us, seq, event_id, payload))
    return {session: _marks(own) for session, own in edits.items()}


def _marks(edits: list[tuple[int, int | None, str | None, memoryview]]) -> list[EditMark]:
    names, marks = EditNames(), []
    for ts_us, seq, event_id, payload in sorted(edits, key=lambda edit: _moment(*edit[:2])):
        try:
            edit = _decoder.decode(payload)
        except msgspec.MsgspecError:
            edit = _EditPayload()
        row = {"edit_id": edit.edit_id, "event_id": event_id, "ts": ts_us, "seq": seq}
        marks.append(EditMark(names.of(row), edit.call_id, ts_us, seq))
    return marks


def _moment(ts_us: int, seq: int | None) -> tuple[int, float]:
    return ts_us, np.inf if seq is None else seq


def call_of(conversation: Conversation, call_id: str | None, ts_us: int, seq: int | None) -> int:
    """The number of the model call that made an edit: by its id or that of a tool's call in it,
    else the last before the edit. −1: none."""
    calls = (CallNames(_ids(each), each.event.ts_us, each.event.seq) for each in conversation.calls)
    return _maker(calls, call_id, ts_us, seq)


def _ids(call: ModelCall) -> list[str | None]:
    return [call.payload.call_id, *(each.id for each in call.payload.tool_calls or ())]


class CallNames(NamedTuple):
    """A model call by what an edit may name it by, and when it was."""

    ids: Sequence[str | None]
    ts_us: int
    seq: int | None


def _maker(calls: Iterable[CallNames], call_id: str | None, ts_us: int, seq: int | None) -> int:
    last = -1
    for number, call in enumerate(calls):
        if call_id is not None and call_id in call.ids:
            return number
        if _moment(call.ts_us, call.seq) <= _moment(ts_us, seq):
            last = number
    return last


#: A row of a rollout: its session, and the branch that it is.
RolloutRow = tuple[Conversation, Branch]


def token_rewards(
    rows: Sequence[RolloutRow],
    *,
    reward: float,
    credits: Mapping[str, Sequence[Mapping[str, Any]]],
    marks: Mapping[str, Sequence[EditMark]],
) -> list[TokenRewards]:
    """For each row of a rollout. `credits` and `marks` are by session."""
    calls: dict[tuple[str, int], tuple[int, int]] = {}
    turns: dict[tuple[str, str], tuple[int, int]] = {}
    for at, (conversation, branch) in enumerate(rows):
        sampled = [span for span in branch.spans if span.sampled]
        for number, span in zip(branch.calls, sampled, strict=True):
            place = at, span.end - 1
            calls[conversation.session_id, number] = place
            turns[conversation.session_id, str(span.turn)] = place
    conversations = {conversation.session_id: conversation for conversation, _ in rows}
    at_place: defaultdict[tuple[int, int], float] = defaultdict(float)
    for session, conversation in conversations.items():
        own = {mark.name: call_of(conversation, *mark[1:]) for mark in marks.get(session, ())}
        for credit in credits.get(session, ()):
            if credit["kind"] == "edit":
                place_of = calls.get((session, own.get(credit["target"], -1)))
            else:
                place_of = turns.get((session, credit["target"]))
            if place_of is not None:
                at_place[place_of] += credit["value"]
    last = max(calls.values())
    at_place[last] += reward - sum(at_place.values())
    return [
        tuple(
            (place, value)
            for (row, place), value in sorted(at_place.items())
            if row == at and abs(value) > _DUST
        )
        for at in range(len(rows))
    ]


class TrainedCall(NamedTuple):
    """A call of a session that is a single row: the last token that it wrote, and its names."""

    end: int
    turn: int
    names: CallNames


def session_rewards(
    calls: Sequence[TrainedCall],
    *,
    reward: float,
    credits: Sequence[Mapping[str, Any]],
    marks: Sequence[EditMark],
) -> TokenRewards:
    """Token rewards of a session that is a rollout and a row by itself, all of whose calls are
    trained: what `token_rewards` says of it."""
    at_place: defaultdict[int, float] = defaultdict(float)
    if credits:
        turns = {str(call.turn): call.end for call in calls}
        names = [call.names for call in calls] if marks else []
        own = {mark.name: _maker(names, *mark[1:]) for mark in marks}
        for credit in credits:
            target = credit["target"]
            if credit["kind"] == "edit":
                number = own.get(target, -1)
                place = calls[number].end if number >= 0 else None
            else:
                place = turns.get(target)
            if place is not None:
                at_place[place] += credit["value"]
    at_place[calls[-1].end] += reward - sum(at_place.values())
    return tuple((at, value) for at, value in sorted(at_place.items()) if abs(value) > _DUST)
