"""Selection: what becomes of each session that a recipe's query names. Pure.

Each session is chosen, with its reward and the parts of that reward, or left out with a reason.
Chosen and left out always add up to the rows of the query: leaving a session out is a reward
decision. A session that is negative by rule is chosen, with its negative value; a censored or
excluded one is not. The sessions of a chain are one piece of work: they share a group and a
stratum.
"""

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InvalidInput
from penstock.toml_document import refuse_unknown
from penstock_jobs.rewards.credit import ChainMember, ChainPart, standings, together
from penstock_jobs.rewards.definition import Definition, Standing
from penstock_jobs.rewards.outcomes import STILL_OPEN
from penstock_jobs.shards.errors import RewardsPending
from penstock_jobs.shards.recipe import AdvantageKind, RewardTarget

ASKED_ROWS = pa.schema(
    [
        pa.field("session_id", pa.string(), nullable=False),
        pa.field("weight", pa.float64(), nullable=False),
        pa.field("group_id", pa.string()),
        pa.field("stratum", pa.string()),
    ]
)


def read_answer(answer: pa.Table, kind: AdvantageKind) -> pa.Table:
    """The query's answer as ASKED_ROWS. Raises InvalidInput, which names the column or the row."""
    names = answer.column_names
    if "session_id" not in names:
        why = f"it selects no session_id; its columns are {', '.join(names)}"
        raise InvalidInput(what="The recipe's query", why=why)
    refuse_unknown(names, ASKED_ROWS.names, "the columns of the recipe's query")
    if len(set(names)) < len(names):
        raise InvalidInput(what="The recipe's query", why="it selects a column twice")
    for wanted, column in (("group", "group_id"), ("stratum", "stratum")):
        if kind == wanted and column not in names:
            why = f"the advantage is by {wanted}, and it selects no {column}"
            raise InvalidInput(what="The recipe's query", why=why)
    sessions = _texts(answer, "session_id")
    _refuse_bad_ids(sessions)
    return pa.table(
        [sessions, _weights(answer), _texts(answer, "group_id"), _texts(answer, "stratum")],
        schema=ASKED_ROWS,
    )


def _texts(answer: pa.Table, name: str) -> pa.ChunkedArray:
    if name not in answer.column_names:
        return pa.chunked_array([pa.nulls(answer.num_rows, pa.string())])
    column = answer[name]
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    text = any(is_text(kind) for is_text in _TEXT_TYPES)
    if not text and (name == "session_id" or not _names_something(kind)):
        why = f"{name} has to be a text, and is {kind}"
        raise InvalidInput(what="The recipe's query", why=why)
    return column.cast(pa.string())


_TEXT_TYPES = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)


def _names_something(kind: pa.DataType) -> bool:
    """Other types whose values name a group well. Fractions do not: 0.1 has many spellings."""
    types = pa.types
    return bool(types.is_integer(kind) or types.is_boolean(kind) or types.is_null(kind))


def _weights(answer: pa.Table) -> pa.ChunkedArray:
    if "weight" not in answer.column_names:
        return pa.chunked_array([pa.repeat(1.0, answer.num_rows)])
    kind, types = answer["weight"].type, pa.types
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)):
        why = f"weight has to be a number, and is {kind}"
        raise InvalidInput(what="The recipe's query", why=why)
    weights = answer["weight"].cast(pa.float64())
    good = pc.fill_null(pc.and_(pc.is_finite(weights), pc.greater_equal(weights, 0.0)), False)
    if (bad := pc.index(good, False).as_py()) >= 0:
        session = answer["session_id"][bad].as_py()
        why = f"the weight of {session} is {weights[bad].as_py()}, and has to be 0 or more"
        raise InvalidInput(what="The recipe's query", why=why)
    return weights


def _refuse_bad_ids(sessions: pa.ChunkedArray) -> None:
    if sessions.null_count:
        row = pc.index(sessions.is_null(), True).as_py() + 1
        raise InvalidInput(what="The recipe's query", why=f"row {row} has no session_id")
    counts = pc.value_counts(sessions)
    twice = pc.greater(counts.field("counts"), 1)
    if pc.any(twice).as_py():
        [first, *_] = counts.filter(twice).to_pylist()
        why = f"it names the session {first['values']} {first['counts']} times; once is enough"
        raise InvalidInput(what="The recipe's query", why=why)


SelectionReason = Literal["not_in_lake", "no_reward", "pending", "censored", "excluded"]

_COMPONENT = pa.struct(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("value", pa.float64(), nullable=False),
        pa.field("weight", pa.float64(), nullable=False),
    ]
)
#: Sorted by group, chain and session.
CHOSEN_ROWS = pa.schema(
    [
        pa.field("session_id", pa.string(), nullable=False),
        #: The session that the work began with.
        pa.field("chain", pa.string(), nullable=False),
        #: Where the query names none, the chain.
        pa.field("group_id", pa.string(), nullable=False),
        pa.field("stratum", pa.string()),
        pa.field("weight", pa.float64(), nullable=False),
        #: Null where the recipe asks for none.
        pa.field("reward", pa.float64()),
        #: scored or negative_by_rule.
        pa.field("outcome", pa.string()),
        #: As they were scored, with the definition's weights; by name.
        pa.field("components", pa.list_(_COMPONENT), nullable=False),
    ]
)
LEFT_OUT_ROWS = pa.schema(
    [
        pa.field("session_id", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("detail", pa.string()),
    ]
)


@dataclass(frozen=True)
class Selection:
    chosen: pa.Table
    left_out: pa.Table

    def counts(self) -> dict[str, int]:
        """Of those left out, by reason."""
        return dict(sorted(Counter(self.left_out["reason"].to_pylist()).items()))


@dataclass(frozen=True)
class KnownSessions:
    """What is known of the sessions that a query names, and of all others of their chains."""

    #: session_id and chain: those that are in the lake as of the snapshot.
    sessions: pa.Table
    #: As the views `outcomes` and `rewards` give them. None where no reward is asked for.
    outcomes: pa.Table | None = None
    rewards: pa.Table | None = None


def select(asked: pa.Table, known: KnownSessions, target: RewardTarget | None) -> Selection:
    """`asked` is ASKED_ROWS, as `read_answer` gives it. Raises RewardsPending where the recipe
    waits, and InvalidInput where a chain is in two groups."""
    chains = _looked_up(known.sessions, "chain", asked["session_id"])
    there = chains.is_valid()
    lost = _left_out(asked["session_id"].filter(pc.invert(there)), "not_in_lake")
    asked = asked.filter(there).append_column("chain", chains.filter(there))
    asked = _with_groups(_with_strata(asked))
    if target is None:
        return _selection(_unrewarded(asked), [lost])
    judged = _judged(asked, known, target)
    waiting = judged.filter(pc.equal(judged["reason"], "pending"))
    if waiting.num_rows and target.pending == "wait":
        raise _pending(waiting, asked.num_rows, target.definition)
    out = judged.filter(judged["reason"].is_valid()).select(LEFT_OUT_ROWS.names)
    kept = judged["reason"].is_null()
    chosen = asked.filter(kept)
    judged = judged.filter(kept)
    components = _components(chosen, known, target.definition)
    for name, column in (
        ("reward", judged["value"]),
        ("outcome", judged["outcome"]),
        ("components", components),
    ):
        chosen = chosen.append_column(name, column)
    return _selection(chosen, [lost, out.cast(LEFT_OUT_ROWS)])


def _selection(chosen: pa.Table, left_out: list[pa.Table]) -> Selection:
    chosen = chosen.select(CHOSEN_ROWS.names).cast(CHOSEN_ROWS)
    order = [(name, "ascending") for name in ("group_id", "chain", "session_id")]
    return Selection(
        chosen.sort_by(order).combine_chunks(),
        pa.concat_tables(left_out).sort_by("session_id").combine_chunks(),
    )


def _left_out(sessions: pa.ChunkedArray, reason: SelectionReason) -> pa.Table:
    count = len(sessions)
    columns = [sessions, pa.repeat(reason, count), pa.nulls(count, pa.string())]
    return pa.table(columns, schema=LEFT_OUT_ROWS)


def _unrewarded(asked: pa.Table) -> pa.Table:
    count = asked.num_rows
    asked = asked.append_column("reward", pa.nulls(count, pa.float64()))
    asked = asked.append_column("outcome", pa.nulls(count, pa.string()))
    empty = pa.ListArray.from_arrays(np.zeros(count + 1, np.int32), pa.array([], _COMPONENT))
    return asked.append_column("components", empty)


# Chains


def _with_groups(asked: pa.Table) -> pa.Table:
    """Sessions of a chain that name no group are in that of the others; else the chain is one."""
    named = asked.filter(asked["group_id"].is_valid()).select(["chain", "group_id", "session_id"])
    per_chain = named.group_by("chain").aggregate([("group_id", "min"), ("group_id", "max")])
    apart = per_chain.filter(pc.not_equal(per_chain["group_id_min"], per_chain["group_id_max"]))
    if apart.num_rows:
        [one, *_] = apart.sort_by("chain").to_pylist()
        why = (
            f"the sessions of the chain of {one['chain']} are in two groups, "
            f"{one['group_id_min']} and {one['group_id_max']}"
        )
        raise InvalidInput(what="The recipe's query", why=why)
    found = _looked_up(per_chain, "group_id_min", asked["chain"], key="chain")
    place = asked.column_names.index("group_id")
    return asked.set_column(place, "group_id", pc.coalesce(found, asked["chain"]))


def _with_strata(asked: pa.Table) -> pa.Table:
    """A chain is in the stratum of its first session, else of the least that names one."""
    first = pc.equal(asked["session_id"], asked["chain"])
    rows = asked.select(["chain", "stratum", "session_id"]).append_column("later", pc.invert(first))
    order = [(name, "ascending") for name in ("chain", "later", "session_id")]
    rows = rows.sort_by(order)
    counted = rows.group_by("chain", use_threads=False).aggregate([("stratum", "first")])
    found = _looked_up(counted, "stratum_first", asked["chain"], key="chain")
    return asked.set_column(asked.column_names.index("stratum"), "stratum", found)


# Rewards


def _judged(asked: pa.Table, known: KnownSessions, target: RewardTarget) -> pa.Table:
    """For each session asked for: reason and detail, or a value; outcome; due_at."""
    sessions = asked["session_id"]
    outcomes = _current(known.outcomes, target.definition)
    at = pc.index_in(sessions, value_set=outcomes["session_id"].combine_chunks())
    found = outcomes.select(["outcome", "reason", "value", "due_at"]).take(at)
    kinds, why = found["outcome"], found["reason"]
    values, due_at = found["value"].cast(pa.float64()), found["due_at"]
    if target.recombined:
        kinds, why, values, due_at = _put_together(asked, known, target.definition, found)
    worth = pc.is_in(kinds, pa.array(["scored", "negative_by_rule"]))
    good = pc.and_(worth, pc.fill_null(pc.is_finite(values), False))
    reason = pc.if_else(worth, pa.scalar("censored"), pc.fill_null(kinds, "no_reward"))
    why = pc.if_else(worth, pa.scalar("the value is no number"), why)
    nothing = pa.scalar(None, pa.string())
    return pa.table(
        {
            "session_id": sessions,
            "reason": pc.if_else(good, nothing, reason),
            "detail": pc.if_else(good, nothing, why),
            "value": pc.if_else(good, values, pa.scalar(None, pa.float64())),
            "outcome": pc.if_else(good, kinds, nothing),
            "due_at": due_at,
        }
    )


def _put_together(
    asked: pa.Table, known: KnownSessions, definition: Definition, found: pa.Table
) -> tuple[pa.ChunkedArray, ...]:
    """The same four by the rewards at other horizons. What the rules say stands: negative,
    excluded, still open."""
    made = _standings(known, definition)
    kinds, reasons = found["outcome"].to_pylist(), found["reason"].to_pylist()
    values, dues = found["value"].to_pylist(), found["due_at"].to_pylist()
    for row, session in enumerate(asked["session_id"].to_pylist()):
        ruled = kinds[row] in (None, "negative_by_rule", "excluded") or reasons[row] == STILL_OPEN
        if not ruled and session in made:
            one = made[session]
            kinds[row], values[row] = one.state, one.value
            reasons[row], dues[row] = one.reason, one.due_us
            if one.state == "invalid":
                kinds[row], reasons[row] = "censored", f"invalid: {one.reason}"
        elif dues[row] is not None:
            dues[row] = _us(dues[row])
    columns = (kinds, pa.string()), (reasons, pa.string()), (values, pa.float64())
    return *(pa.chunked_array([pa.array(*one)]) for one in columns), pa.chunked_array(
        [pa.array(dues, pa.int64()).cast(pa.timestamp("us", "UTC"))]
    )


def _standings(known: KnownSessions, definition: Definition) -> dict[str, Standing]:
    rows = _rewards_of_sessions(known, definition)
    columns = (known.sessions[name].to_pylist() for name in ("session_id", "chain"))
    places = {session: ChainMember(chain) for session, chain in zip(*columns, strict=True)}
    return standings(definition, rows, places)


def _rewards_of_sessions(known: KnownSessions, definition: Definition) -> pa.Table:
    """Those that count, at their horizons, with due_us as where they are computed."""
    rows = _current(known.rewards, definition)
    horizons = {term.reward.name: term.horizon_s for term in definition.counted()}
    rows = rows.filter(pc.equal(rows["target_kind"], "session"))
    rows = rows.filter(pc.is_in(rows["name"], pa.array(horizons, pa.string())))
    at = pa.array(horizons.values(), pa.int32()).take(
        pc.index_in(rows["name"], value_set=pa.array(horizons, pa.string()))
    )
    found = rows["horizon_s"].cast(pa.int32())
    neither = pc.and_(found.is_null(), at.is_null())
    rows = rows.filter(pc.or_(neither, pc.fill_null(pc.equal(found, at), False)))
    return rows.append_column("due_us", rows["due_at"].cast(pa.timestamp("us")).cast(pa.int64()))


def _components(chosen: pa.Table, known: KnownSessions, definition: Definition) -> pa.Array:
    """Of each chosen session, put together over its chain as its reward was."""
    rows = _rewards_of_sessions(known, definition)
    rows = rows.append_column("chain", _looked_up(known.sessions, "chain", rows["session_id"]))
    rows = rows.filter(pc.is_in(rows["chain"], value_set=chosen["chain"].combine_chunks()))
    rows = rows.sort_by([(name, "ascending") for name in ("chain", "name", "session_id")])
    found = _of_chains(rows)
    weights = pa.array([term.weight for term in definition.counted()])
    names = pa.array([term.reward.name for term in definition.counted()])
    of_each = weights.take(pc.index_in(found["name"].combine_chunks(), value_set=names))
    columns = [found["name"].combine_chunks(), found["value"].combine_chunks(), of_each]
    parts = pa.StructArray.from_arrays(columns, fields=list(_COMPONENT))
    starts = _starts(found["chain"])
    lists = pa.ListArray.from_arrays(
        np.array([*starts, found.num_rows, found.num_rows], np.int32), parts
    )  # the last is the empty one, of those that have none
    at = pc.index_in(chosen["chain"], value_set=found["chain"].take(starts).combine_chunks())
    return lists.take(pc.fill_null(at, len(starts)))


def _of_chains(rows: pa.Table) -> pa.Table:
    """chain, name, value: where a chain has several rows of a reward, they are put together."""
    starts = _starts(rows["chain"], rows["name"])
    ends = np.append(starts[1:], rows.num_rows)
    values = rows["value"].take(starts).to_pylist()
    several = ends - starts > 1
    shared = rows.filter(pa.array(np.repeat(several, ends - starts)))
    parts = map(ChainPart, *(shared[name].to_pylist() for name in ChainPart._fields))
    for place in np.flatnonzero(several):
        values[place] = together(list(islice(parts, int(ends[place] - starts[place])))).value
    heads = rows.select(["chain", "name"]).take(starts)
    found = heads.append_column("value", pa.array(values, pa.float64()))
    return found.filter(found["value"].is_valid())


def _starts(*columns: pa.ChunkedArray) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Where runs of equal rows begin, in sorted columns."""
    count = len(columns[0])
    new = np.zeros(count, bool)
    new[:1] = True
    for column in columns:
        new[1:] |= pc.not_equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
    return np.flatnonzero(new)


def _pending(waiting: pa.Table, asked: int, definition: Definition) -> RewardsPending:
    """By when it will be known is told only where every one of them says it."""
    dues = waiting["due_at"]
    until = "nobody can say when: some of them wait for new events"
    if not dues.null_count:
        last: datetime = pc.max(dues).as_py()
        until = f"the last is due at {last.astimezone(UTC).isoformat()}"
    return RewardsPending(
        count=waiting.num_rows, asked=asked, definition=definition.name, until=until
    )


# Tables


def _current(rows: pa.Table | None, definition: Definition) -> pa.Table:
    """What is known now, by this version of the definition."""
    if rows is None:
        raise InvalidInput(what="The recipe", why="it asks for rewards, and none were read")
    if "superseded_at" in rows.column_names:
        rows = rows.filter(rows["superseded_at"].is_null())
    if "definition_version" in rows.column_names:
        rows = rows.filter(pc.equal(rows["definition_version"], definition.version))
    return rows


def _looked_up(
    rows: pa.Table, column: str, keys: pa.ChunkedArray, key: str = "session_id"
) -> pa.ChunkedArray:
    at = pc.index_in(keys, value_set=rows[key].combine_chunks())
    return rows[column].take(at)


def _us(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000_000)
