"""Token rewards: the reward of a rollout, distributed over tokens.

A definition's reward is a weighted sum of rewards of edits, turns and requests. The share of an
edit goes to the last token of the call that made it. The share of a turn goes to its last token by
the model, and the share of a request to its turns alike. The rest goes to the rollout's last token:
rewards of the whole session, clipped amounts, and the whole reward if a rule decided. So token
rewards add up to the reward.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock_jobs.rewards.definition import Bounds, Definition
from penstock_jobs.rewards.measures.verdict import REQUEST
from penstock_jobs.rewards.rows import row_tuples
from penstock_jobs.rewards.texts.trail import EditNames
from penstock_jobs.shards.conversation.conversation import Conversation
from penstock_jobs.shards.rows.engine_branches import Branch
from penstock_jobs.shards.selection.dictionary_codes import codes_of, positions_in
from penstock_jobs.shards.selection.planned_sessions import PlannedSessions, portions_of

SPAN_CREDITS = pa.list_(
    pa.struct({"kind": pa.string(), "target": pa.string(), "value": pa.float64()})
)
#: (place, value), in order.
TokenRewards = tuple[tuple[int, float], ...]
#: The kind of what a choice is worth as a whole. It is no part of the session's reward.
CHOICE = "model_call"
_DUST = 1e-9


# Credits of edits and turns


def all_span_credits(
    chosen: pa.Table, rows: pa.Table, definition: Definition, planned: PlannedSessions
) -> pa.ChunkedArray:
    """Compute credits of sessions in the order of a shard, a portion at a time."""
    chains = codes_of(chosen["chain"])
    starts = np.flatnonzero(np.diff(chains, prepend=-1))
    numbers = positions_in(planned.ids, rows["session_id"])
    rows, numbers = rows.filter(pa.array(numbers >= 0)), numbers[numbers >= 0]
    all_chains = planned.chains()
    of_rows = all_chains.take(pa.array(numbers))
    places_of_chains = np.full(len(all_chains.dictionary), -1)
    places_of_chains[chains[starts]] = np.arange(len(starts))
    places = places_of_chains[codes_of(of_rows)]
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
    """Compute for each row of CHOSEN_ROWS the credits of its edits, turns and requests.

    What each choice of an answer is worth comes with them.

    `rows` are scored rewards of all sessions of these chains."""
    horizons = {term.reward.name: term.horizon_s for term in definition.counted()}
    credits: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    parts: defaultdict[tuple[str, str], list[tuple[Any, ...]]] = defaultdict(list)
    turns: defaultdict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    columns = ("session_id", "name", "horizon_s", "target_kind", "target_id", "value", "weight")
    for session, name, horizon_s, *part in row_tuples(rows, *columns):
        if session in chains and name in horizons and horizons[name] == horizon_s:
            parts[chains[session], name].append((session, *part))
        elif session in chains and name == REQUEST:
            turns[chains[session], str(int(part[2]))].append((session, part[1]))
        elif part[0] == CHOICE:
            credits[session].append({"kind": CHOICE, "target": part[1], "value": part[2]})
    worth = row_tuples(chosen, "chain", "outcome", "components")
    for chain, (outcome, components) in {each[0]: each[1:] for each in worth}.items():
        factors = _factors(definition, components) if outcome == "scored" else {}
        for name, factor in factors.items():
            own = list(_of_turns(parts[chain, name], chain, turns))
            of_edits = [part for part in own if part[1] == "edit"]
            for session, kind, target, value, share in _shares(of_edits or own):
                credit = {"kind": kind, "target": target, "value": factor * share * value}
                credits[session].append(credit)
    lists = [credits[session] for session in chosen["session_id"].to_pylist()]
    return pa.array(lists, SPAN_CREDITS)


def _of_turns(
    parts: Iterable[tuple[Any, ...]],
    chain: str,
    turns: Mapping[tuple[str, str], Sequence[tuple[str, str]]],
) -> Iterable[tuple[Any, ...]]:
    """Divide requests by their turns. Without them, they are no turn's."""
    for part in parts:
        _, kind, target, value, weight = part
        own = turns.get((chain, target), ()) if kind == "request" else ()
        yield from ((session, "turn", turn, value, weight / len(own)) for session, turn in own)
        if not own:
            yield part


def _factors(definition: Definition, components: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Return the derivative of the combined reward by each part."""
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
    """Return the share of a value that clipping leaves."""
    if clip is None or not value:
        return 1.0
    return min(max(value, clip[0]), clip[1]) / value


def _shares(parts: Sequence[tuple[Any, ...]]) -> Iterable[tuple[Any, ...]]:
    """Replace weights by shares; equal shares if all weights are 0."""
    total = sum(weight for *_, weight in parts)
    for *part, weight in parts:
        yield (*part, weight / total if total else 1 / len(parts))


# Places of credits


class EditMark(NamedTuple):
    """An edit, by its name in rewards, with the id of its call if known."""

    name: str
    call_id: str | None
    ts_us: int
    seq: int | None


class _EditPayload(msgspec.Struct, gc=False):
    edit_id: str | None = None
    call_id: str | None = None


_decoder = msgspec.json.Decoder(_EditPayload)


def edit_marks(rows: pa.Table) -> dict[str, list[EditMark]]:
    """Collect edits by session from rows of segments."""
    rows = rows.filter(pc.equal(rows["type"], "edit"))
    moments = rows["ts"].cast(pa.int64()).to_pylist()
    columns = (rows[name].to_pylist() for name in ("seq", "session_id", "event_id"))
    payloads = (memoryview(payload.as_buffer()) for payload in rows["payload"])
    edits = zip(moments, *columns, payloads, strict=True)
    names: defaultdict[str, EditNames] = defaultdict(EditNames)
    marks: defaultdict[str, list[EditMark]] = defaultdict(list)
    for ts_us, seq, session, event_id, payload in sorted(edits, key=lambda own: _moment(*own[:2])):
        try:
            edit = _decoder.decode(payload)
        except msgspec.MsgspecError:
            edit = _EditPayload()
        row = {"edit_id": edit.edit_id, "event_id": event_id, "ts": ts_us, "seq": seq}
        mark = EditMark(names[session].of(row), edit.call_id, ts_us, seq)
        marks[session].append(mark)
    return dict(marks)


def _moment(ts_us: int, seq: int | None) -> tuple[int, float]:
    return ts_us, np.inf if seq is None else seq


class CreditedCall(NamedTuple):
    """A model call with its ids, and row and place of its last trained token, if any."""

    ids: Sequence[str | None]
    ts_us: int
    seq: int | None
    turn: int
    end: tuple[int, int] | None = None


def call_of(calls: Iterable[CreditedCall], mark: EditMark) -> int:
    """Find the call that made an edit: by id, or by a tool call's id, else the last before it.

    Returns its number, −1 for none."""
    last = -1
    for number, call in enumerate(calls):
        if mark.call_id is not None and mark.call_id in call.ids:
            return number
        if _moment(call.ts_us, call.seq) <= _moment(mark.ts_us, mark.seq):
            last = number
    return last


RolloutRow = tuple[Conversation, Branch]


def credited_calls(
    conversation: Conversation, rows: Sequence[RolloutRow] = ()
) -> list[CreditedCall]:
    ends: dict[int, tuple[int, int]] = {}
    for row, (other, branch) in enumerate(rows):
        if other is conversation:
            sampled = (span for span in branch.spans if span.sampled)
            for number, span in zip(branch.calls, sampled, strict=True):
                ends[number] = row, span.end - 1
    return [
        CreditedCall(
            [call.payload.call_id, *(each.id for each in call.payload.tool_calls or ())],
            call.event.ts_us,
            call.event.seq,
            call.turn,
            ends.get(call.number),
        )
        for call in conversation.calls
    ]


def rollout_rewards(rows: Sequence[RolloutRow], **facts: Any) -> list[TokenRewards]:
    """Compute token rewards of each row, with the facts of `token_rewards`."""
    conversations = {conversation.session_id: conversation for conversation, _ in rows}
    calls = {name: credited_calls(each, rows) for name, each in conversations.items()}
    return token_rewards(calls, len(rows), **facts)


def token_rewards(
    calls: Mapping[str, Sequence[CreditedCall]],
    rows: int,
    *,
    reward: float,
    credits: Mapping[str, Sequence[Mapping[str, Any]]],
    marks: Mapping[str, Sequence[EditMark]],
) -> list[TokenRewards]:
    """Compute token rewards of each row of a rollout. Mappings are by session."""
    at_place: defaultdict[tuple[int, int], float] = defaultdict(float)
    for session, own in calls.items():
        if not (earned := credits.get(session)):
            continue
        trained = sorted((call.end, str(call.turn)) for call in own if call.end is not None)
        places: dict[tuple[str, str], tuple[int, int] | None] = {
            ("turn", turn): end for end, turn in trained
        }
        for mark in marks.get(session, ()):
            if (number := call_of(own, mark)) >= 0:
                places["edit", mark.name] = own[number].end
        for credit in earned:
            if (place := places.get((credit["kind"], credit["target"]))) is not None:
                at_place[place] += credit["value"]
    last = max(call.end for own in calls.values() for call in own if call.end is not None)
    at_place[last] += reward - sum(at_place.values())
    rewards = sorted((place, value) for place, value in at_place.items() if abs(value) > _DUST)
    return [tuple((at, value) for (own, at), value in rewards if own == row) for row in range(rows)]
