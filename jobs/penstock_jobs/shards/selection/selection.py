"""Selection: choose or leave out each session of a recipe's query. Pure.

A chosen session has a reward and its components; others have a reason. A session that is negative
by rule is chosen with its negative value; a censored or excluded one is not. Sessions of a chain
are one piece of work: they share a group and a stratum.
"""

from datetime import UTC, datetime
from itertools import islice
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.errors import InvalidInput, PenstockError
from penstock.core.toml_document import refuse_unknown
from penstock_jobs.rewards.bucket import ChainMember
from penstock_jobs.rewards.definition import Definition, together
from penstock_jobs.rewards.outcomes import STILL_OPEN, copy, standings
from penstock_jobs.rewards.rows import Standing
from penstock_jobs.shards.recipe import AdvantageKind, RewardTarget
from penstock_jobs.shards.selection.dictionary_codes import (
    NAMES,
    Numbers,
    codes_of,
    encode_names,
    from_codes,
    is_sorted,
    order_of,
    positions_in,
    single_array,
)

_TEXT, _FLOAT = pa.string(), pa.float64()


def _needed(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


#: The answer of a recipe's query, sorted by session.
ANSWER_ROWS = pa.schema(
    [
        *(_needed("session_id", _TEXT), _needed("weight", _FLOAT)),
        *(pa.field("group_id", _TEXT), pa.field("stratum", _TEXT)),
    ]
)
_COMPONENT = pa.struct(
    [_needed("name", _TEXT), _needed("value", _FLOAT), _needed("weight", _FLOAT)]
)
#: Sorted by group, chain and session.
CHOSEN_ROWS = pa.schema(
    [
        _needed("session_id", NAMES),
        #: The first session of the chain; the default group.
        _needed("chain", NAMES),
        _needed("group_id", NAMES),
        pa.field("stratum", NAMES),
        _needed("weight", _FLOAT),
        pa.field("reward", _FLOAT),
        pa.field("outcome", NAMES),
        #: Scored components with the definition's weights, by name.
        _needed("components", pa.list_(_COMPONENT)),
    ]
)
LEFT_OUT_ROWS = pa.schema(
    [_needed("session_id", _TEXT), _needed("reason", _TEXT), pa.field("detail", _TEXT)]
)
_OUTCOME_ROWS = pa.schema(
    {"outcome": _TEXT, "reason": _TEXT, "value": _FLOAT, "due_at": pa.timestamp("us", "UTC")}
)


class RewardsPending(PenstockError, http_status=409):
    """{count} of {asked} sessions have pending rewards by the definition {definition}; {until}.
    Nothing was built. Build later, or leave such sessions out by `pending = "drop"` in the
    recipe."""


class Selection(msgspec.Struct, frozen=True):
    chosen: pa.Table
    left_out: pa.Table


class KnownSessions(msgspec.Struct, frozen=True):
    """Facts of a query's sessions and all others of their chains."""

    #: session_id, sorted, and chain.
    sessions: pa.Table
    #: Rows of `outcomes.sql` and `rewards.sql`; None without a [reward].
    outcomes: pa.Table | None = None
    rewards: pa.Table | None = None


# The query's answer


def read_answer(answer: pa.Table, kind: AdvantageKind) -> pa.Table:
    """Make ANSWER_ROWS. Raises InvalidInput with the column or row."""
    names = answer.column_names
    if "session_id" not in names:
        raise _unusable(f"it lacks session_id; its columns are {', '.join(names)}")
    refuse_unknown(names, ANSWER_ROWS.names, "the columns of the recipe's query")
    if len(set(names)) < len(names):
        raise _unusable("it selects a column twice")
    for needed_by, column in (("group", "group_id"), ("stratum", "stratum")):
        if kind == needed_by and column not in names:
            raise _unusable(f"the advantage by {needed_by} needs the column {column}")
    sessions = _texts(answer, "session_id")
    if sessions.null_count:
        row = pc.index(sessions.is_null(), True).as_py() + 1
        raise _unusable(f"row {row} has no session_id")
    rows = pa.table(
        [sessions, _weights(answer), _texts(answer, "group_id"), _texts(answer, "stratum")],
        schema=ANSWER_ROWS,
    ).combine_chunks()
    if not is_sorted(single_array(rows["session_id"])):
        rows = rows.take(pc.sort_indices(rows["session_id"]))
        sessions = rows["session_id"]
        repeated = sessions[1:].filter(pc.equal(sessions[1:], sessions[:-1]))
        if len(repeated):
            session = repeated[0].as_py()
            count = pc.sum(pc.equal(sessions, session)).as_py()
            raise _unusable(f"it names the session {session} {count} times")
    return rows


def _unusable(why: str) -> InvalidInput:
    return InvalidInput(what="The recipe's query", why=why)


def _texts(answer: pa.Table, name: str) -> pa.ChunkedArray:
    """Read a text column. Groups and strata may be integers, but not fractions."""
    if name not in answer.column_names:
        return pa.chunked_array([pa.nulls(answer.num_rows, pa.string())])
    column, types = answer[name], pa.types
    kind = column.type.value_type if types.is_dictionary(column.type) else column.type
    allowed = [types.is_string, types.is_large_string, types.is_string_view]
    if name != "session_id":
        allowed += [types.is_integer, types.is_boolean, types.is_null]
    if not any(is_allowed(kind) for is_allowed in allowed):
        raise _unusable(f"{name} must be a text, but is {kind}")
    return column.cast(pa.string())


def _weights(answer: pa.Table) -> pa.ChunkedArray:
    if "weight" not in answer.column_names:
        return pa.chunked_array([pa.repeat(1.0, answer.num_rows)])
    kind, types = answer["weight"].type, pa.types
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)):
        raise _unusable(f"weight must be a number, but is {kind}")
    weights = answer["weight"].cast(pa.float64())
    good = pc.fill_null(pc.and_(pc.is_finite(weights), pc.greater_equal(weights, 0.0)), False)
    if (bad := pc.index(good, False).as_py()) >= 0:
        session, weight = answer["session_id"][bad].as_py(), weights[bad].as_py()
        raise _unusable(f"the weight of {session} must be 0 or more, but is {weight}")
    return weights


# Selection


def select(answer: pa.Table, known: KnownSessions, target: RewardTarget | None) -> Selection:
    """Choose from ANSWER_ROWS.

    Raises RewardsPending if the recipe waits, InvalidInput if a chain is in two groups."""
    ids, chains = single_array(known.sessions["session_id"]), encode_names(known.sessions["chain"])
    places = positions_in(ids, answer["session_id"])
    in_lake = places >= 0
    missing = answer["session_id"].filter(pa.array(~in_lake))
    reasons = pa.repeat("not_in_lake", len(missing))
    left_out = pa.table([missing, reasons, pa.nulls(len(missing), pa.string())], LEFT_OUT_ROWS)
    answer = answer.set_column(0, "session_id", from_codes(places, ids))
    if len(missing):
        answer, places = answer.filter(pa.array(in_lake)), places[in_lake]
    answer = answer.append_column("chain", chains.take(pa.array(places)))
    answer = _with_groups(_with_strata(answer))
    count = answer.num_rows
    if target is None:
        offsets = pa.array(np.zeros(count + 1, np.int32))
        empty = pa.ListArray.from_arrays(offsets, pa.array([], _COMPONENT))
        rewards = [pa.nulls(count, _FLOAT), pa.nulls(count, NAMES), empty]
    else:
        judged = _judged(answer, known, target)
        waiting = judged.filter(pc.equal(judged["reason"], "pending"))
        if waiting.num_rows and target.pending == "wait":
            raise _pending(waiting, count, target.definition)
        refused = judged.filter(judged["reason"].is_valid()).select(LEFT_OUT_ROWS.names)
        left_out = pa.concat_tables([left_out, refused.cast(LEFT_OUT_ROWS)])
        is_chosen = judged["reason"].is_null()
        answer, judged = answer.filter(is_chosen), judged.filter(is_chosen)
        components = _components(answer, known, target.definition)
        rewards = [judged["value"], encode_names(judged["outcome"]), components]
    for name, column in zip(("reward", "outcome", "components"), rewards, strict=True):
        answer = answer.append_column(name, column)
    return Selection(
        _in_order(answer.select(CHOSEN_ROWS.names).cast(CHOSEN_ROWS)),
        left_out.sort_by("session_id").combine_chunks(),
    )


def _in_order(chosen: pa.Table) -> pa.Table:
    keys = [codes_of(chosen[name]) for name in ("session_id", "chain", "group_id")]
    if all((key[1:] > key[:-1]).all() for key in keys):
        return chosen.combine_chunks()
    return chosen.take(pa.array(order_of(*keys))).combine_chunks()


def _with_groups(answer: pa.Table) -> pa.Table:
    """Complete groups: sessions without one join their chain's group; by default the chain.

    A group with the name of its session or chain is none: queries write `coalesce` that way."""
    place = answer.column_names.index("group_id")
    if answer["group_id"].null_count == answer.num_rows:
        return answer.set_column(place, "group_id", answer["chain"])
    chains, column = codes_of(answer["chain"]), encode_names(answer["group_id"])
    groups = codes_of(column)
    for own in (single_array(answer["session_id"]), single_array(answer["chain"])):
        places = positions_in(own.dictionary, column.dictionary)
        groups = np.where(places[groups] == codes_of(own), -1, groups)
    of_chains = _of_each(chains, groups)
    apart = chains[(groups >= 0) & (of_chains[chains] != groups)]
    if len(apart):
        own = pa.array(chains == apart.min())
        chain, names = answer["chain"].filter(own)[0], column.filter(own).unique()
        first, *_, last = sorted(names.drop_null().to_pylist())
        why = f"the chain of {chain} is in two groups, {first} and {last}"
        raise _unusable(why)
    column = from_codes(of_chains[chains], column.dictionary)
    if column.null_count:
        column = encode_names(
            pc.coalesce(*(each.cast(_TEXT) for each in (column, answer["chain"])))
        )
    return answer.set_column(place, "group_id", column)


def _with_strata(answer: pa.Table) -> pa.Table:
    """Give chains the stratum of their first session, else of the least that has one."""
    place = answer.column_names.index("stratum")
    if answer["stratum"].null_count == answer.num_rows:
        return answer.set_column(place, "stratum", pa.nulls(answer.num_rows, NAMES))
    column, chains = encode_names(answer["stratum"]), codes_of(answer["chain"])
    later = pc.not_equal(*(answer[name].cast(_TEXT) for name in ("session_id", "chain")))
    order = order_of(codes_of(answer["session_id"]), later.to_numpy(), chains)
    of_chains = _of_each(chains[order], codes_of(column)[order])
    return answer.set_column(place, "stratum", from_codes(of_chains[chains], column.dictionary))


def _of_each(numbers: Numbers, values: Numbers, count: int | None = None) -> Numbers:
    """Return the first value of each number; -1 for none."""
    known = np.flatnonzero((numbers >= 0) & (values >= 0))[::-1]  # of several, the last one stays
    found = np.full(int(numbers.max(initial=-1)) + 1 if count is None else count, -1, np.int64)
    found[numbers[known]] = values[known]
    return found


# Rewards


def _judged(answer: pa.Table, known: KnownSessions, target: RewardTarget) -> pa.Table:
    """Return outcome and due_at of each session, with a value or a reason."""
    sessions = answer["session_id"]
    outcomes = known.outcomes
    assert outcomes is not None  # the recipe asks for them
    numbers = positions_in(single_array(known.sessions["session_id"]), outcomes["session_id"])
    at = _of_each(numbers, np.arange(len(numbers)), len(known.sessions))[codes_of(sessions)]
    outcomes = outcomes.select(_OUTCOME_ROWS.names)
    outcomes = outcomes.take(pa.array(at, mask=at < 0)).cast(_OUTCOME_ROWS)
    if target.recombined:
        outcomes = _recombined(sessions, known, target.definition, outcomes)
    kinds, values = outcomes["outcome"], outcomes["value"]
    worth = pc.is_in(kinds, pa.array(["scored", "negative_by_rule"]))
    good = pc.and_(worth, pc.fill_null(pc.is_finite(values), False))
    reasons = pc.if_else(worth, pa.scalar("censored"), pc.fill_null(kinds, "no_reward"))
    is_copy = pc.and_(pc.equal(kinds, "excluded"), pc.equal(outcomes["reason"], copy.__name__))
    reasons = pc.if_else(pc.fill_null(is_copy, False), pa.scalar(copy.__name__), reasons)
    details = pc.if_else(worth, pa.scalar("the value is no number"), outcomes["reason"])
    no_text = pa.scalar(None, pa.string())
    return pa.table(
        {
            "session_id": sessions,
            "reason": pc.if_else(good, no_text, reasons),
            "detail": pc.if_else(good, no_text, details),
            "value": pc.if_else(good, values, pa.scalar(None, pa.float64())),
            "outcome": pc.if_else(good, kinds, no_text),
            "due_at": outcomes["due_at"],
        }
    )


def _recombined(
    sessions: pa.ChunkedArray, known: KnownSessions, definition: Definition, outcomes: pa.Table
) -> pa.Table:
    """Combine rewards at other horizons. Outcomes by rules stay."""
    names, chains = (known.sessions[name].to_pylist() for name in ("session_id", "chain"))
    places = {name: ChainMember(chain) for name, chain in zip(names, chains, strict=True)}
    by_session = standings(definition, _counted_rewards(known, definition), places)
    rows = outcomes.to_pylist()
    for session, row in zip(sessions.to_pylist(), rows, strict=True):
        kind, reason = row["outcome"], row["reason"]
        ruled = kind in (None, "negative_by_rule", "excluded") or reason == STILL_OPEN
        standing = None if ruled else by_session.get(session)
        if standing is not None:
            row |= {"outcome": standing.state, "reason": standing.reason}
            row |= {"value": standing.value, "due_at": standing.due_us}
            if standing.state == "invalid":
                row |= {"outcome": "censored", "reason": f"invalid: {standing.reason}"}
    return pa.Table.from_pylist(rows, _OUTCOME_ROWS)


def _counted_rewards(known: KnownSessions, definition: Definition) -> pa.Table:
    """Return counted rewards of sessions and requests at their horizons, with due_us."""
    assert known.rewards is not None  # the recipe asks for them
    rows = known.rewards
    horizons = {term.reward.name: term.horizon_s for term in definition.counted()}
    at = pc.index_in(rows["name"], value_set=pa.array(horizons, _TEXT))
    counted = pa.array(horizons.values(), pa.int32()).take(at)
    computed = rows["horizon_s"].cast(pa.int32())
    same = pc.equal(pc.fill_null(computed, -1), pc.fill_null(counted, -1))
    rows = rows.filter(pc.and_(at.is_valid(), same))
    return rows.append_column("due_us", rows["due_at"].cast(pa.timestamp("us")).cast(pa.int64()))


def _components(chosen: pa.Table, known: KnownSessions, definition: Definition) -> pa.Array:
    """Combine components of each reward over its chain."""
    rows = _counted_rewards(known, definition)
    rows = rows.filter(pc.equal(rows["target_kind"], "session"))
    chains = codes_of(encode_names(known.sessions["chain"]))
    numbers = positions_in(single_array(known.sessions["session_id"]), rows["session_id"])
    own = codes_of(chosen["chain"])
    is_chosen = np.zeros(int(chains.max(initial=-1)) + 1, bool)
    is_chosen[own] = True
    of_rows = np.where(numbers < 0, -1, chains[numbers]) if len(chains) else numbers
    rows = rows.append_column("chain", pa.array(of_rows))
    rows = rows.filter(pa.array((of_rows >= 0) & is_chosen[of_rows]))
    rows = rows.sort_by([(name, "ascending") for name in ("chain", "name", "session_id")])
    parts = _of_chains(rows)
    names = [term.reward.name for term in definition.counted()]
    weights = pa.array([term.weight for term in definition.counted()])
    of_each = weights.take(pc.index_in(parts["name"].combine_chunks(), value_set=pa.array(names)))
    columns = [parts["name"].combine_chunks(), parts["value"].combine_chunks(), of_each]
    records = pa.StructArray.from_arrays(columns, fields=list(_COMPONENT))
    starts = _starts(parts["chain"])
    lists = pa.ListArray.from_arrays(
        np.array([*starts, parts.num_rows, parts.num_rows], np.int32), records
    )  # the last list is empty, for sessions without components
    of_parts = parts["chain"].take(starts).to_numpy()
    at = _of_each(of_parts, np.arange(len(starts)), len(is_chosen))[own]
    return lists.take(pa.array(np.where(at < 0, len(starts), at)))


def _of_chains(rows: pa.Table) -> pa.Table:
    """Return chain, name and value, with rows of a chain combined."""
    starts = _starts(rows["chain"], rows["name"])
    counts = np.diff(np.append(starts, rows.num_rows))
    values = rows["value"].take(starts).to_pylist()
    shared = rows.filter(pa.array(np.repeat(counts > 1, counts)))
    parts = map(Standing, *(shared[name].to_pylist() for name in Standing._fields))
    for place in np.flatnonzero(counts > 1):
        values[place] = together(list(islice(parts, int(counts[place])))).value
    heads = rows.select(["chain", "name"]).take(starts)
    combined = heads.append_column("value", pa.array(values, pa.float64()))
    return combined.filter(combined["value"].is_valid())


def _starts(*columns: pa.ChunkedArray) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return starts of runs of equal rows in sorted columns."""
    is_start = np.zeros(len(columns[0]), bool)
    is_start[:1] = True
    for column in columns:
        is_start[1:] |= pc.not_equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
    return np.flatnonzero(is_start)


def _pending(waiting: pa.Table, count: int, definition: Definition) -> RewardsPending:
    """Make the error. It names a time only if all sessions have one."""
    until = "some wait for new events, at an unknown time"
    if not waiting["due_at"].null_count:
        last: datetime = pc.max(waiting["due_at"]).as_py()
        until = f"the last is due at {last.astimezone(UTC).isoformat()}"
    return RewardsPending(
        count=waiting.num_rows, asked=count, definition=definition.name, until=until
    )
