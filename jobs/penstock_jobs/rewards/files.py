"""Rewards and outcomes as the lake's files hold them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.lake.buckets import SessionId
from penstock_jobs.rewards.credit import Place
from penstock_jobs.rewards.keeping import Progress
from penstock_jobs.rewards.outcomes import Outcome
from penstock_jobs.rewards.rates import Tally
from penstock_jobs.rewards.reward_files import OUTCOME_FILE_ROWS, REWARD_FILE_ROWS


class Span(NamedTuple):
    """From when to when a session was heard of, in microseconds."""

    first_us: int
    last_us: int


def spans_of(rows: pa.Table) -> dict[SessionId, Span]:
    """Of the sessions of these events."""
    found = rows.group_by(["tenant", "session_id"]).aggregate([("ts", "min"), ("ts", "max")])
    sessions = (found[name].to_pylist() for name in ("tenant", "session_id"))
    times = (found[name].cast(pa.int64()).to_pylist() for name in ("ts_min", "ts_max"))
    return {
        SessionId(tenant, session): Span(first, last)
        for tenant, session, first, last in zip(*sessions, *times, strict=True)
    }


def reward_table(rewards: pa.Table, tenant: str, made_by: Progress) -> pa.Table:
    """From REWARD_ROWS."""
    added = {"due_at": rewards["due_us"], **_constants(tenant, made_by)}
    return _table(rewards.num_rows, REWARD_FILE_ROWS, added, rewards)


def outcome_table(
    found: Sequence[tuple[Outcome, Tally]],
    tenant: str,
    made_by: Progress,
    *,
    spans: Mapping[SessionId, Span],
    places: Mapping[SessionId, Place],
    due_us: Mapping[SessionId, int],
) -> pa.Table:
    """A row a session. It is due when any of its rewards is."""
    rows = [
        {
            "session_id": session.session_id,
            "outcome": outcome.kind,
            "reason": outcome.reason,
            "value": outcome.value,
            "checkpoint": outcome.checkpoint,
            "chain": places[session].chain if session in places else session.session_id,
            "first_ts": spans[session].first_us,
            "last_ts": spans[session].last_us,
            "turns": tally.turns,
            "edited_turns": tally.edited,
            "answered_turns": tally.answered,
            "asking_turns": tally.asked,
            "tool_calls": tally.calls,
            "invalid_tool_calls": tally.invalid_calls,
            "due_at": due_us.get(session),
        }
        for outcome, tally in found
        for session in [SessionId(tenant, outcome.session_id)]
    ]
    added = _constants(tenant, made_by)
    schema = pa.schema([one for one in OUTCOME_FILE_ROWS if one.name not in added])
    return _table(len(rows), OUTCOME_FILE_ROWS, added, pa.Table.from_pylist(rows, schema))


def _constants(tenant: str, made_by: Progress) -> dict[str, Any]:
    return {
        "tenant": tenant,
        "definition": made_by.name,
        "definition_version": made_by.version,
        "computed_at": made_by.run_at,
    }


def _table(size: int, schema: pa.Schema, added: Mapping[str, Any], rows: pa.Table) -> pa.Table:
    columns = []
    for one in schema:
        column = added[one.name] if one.name in added else rows[one.name]
        if not isinstance(column, pa.ChunkedArray):
            column = pa.repeat(pa.scalar(column), size)
        columns.append(column.cast(one.type))
    return pa.Table.from_arrays(columns, schema=schema)
