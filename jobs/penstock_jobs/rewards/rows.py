"""Rows of rewards and outcomes, as computed and as stored in files."""

from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.lake.query.view_sources import table_engine

State = Literal["pending", "scored", "censored", "invalid"]
TargetKind = Literal["edit", "file", "turn", "request", "session", "model_call"]
Target = tuple[TargetKind, str]
_TIME = pa.timestamp("us", tz="UTC")


class Standing(NamedTuple):
    """The value of a reward, or why there is none."""

    state: State
    value: float | None = None
    reason: str | None = None
    weight: float = 1.0
    due_us: int | None = None


def _needed(*names: str, kind: pa.DataType | None = None) -> list[pa.Field]:
    return [pa.field(name, kind or pa.string(), nullable=False) for name in names]


#: `due_us` of a pending row is when it is decided even without a new event, in microseconds since
#: 1970; without it the row waits for an event. On a censored row it is when to compute the session
#: again, because a later run may know more.
REWARD_ROWS = pa.schema(
    [
        *_needed("session_id", "target_kind", "target_id", "name"),
        pa.field("horizon_s", pa.int32()),
        pa.field("value", pa.float64()),
        *_needed("state"),
        pa.field("reason", pa.string()),
        *_needed("weight", kind=pa.float64()),
        pa.field("due_us", pa.int64()),
        pa.field("checkpoint", pa.string()),
    ]
)
_DUE_AT = pa.field("due_at", _TIME)
_COMPUTED = [*_needed("definition", "definition_version"), *_needed("computed_at", kind=_TIME)]
REWARD_FILE_ROWS = pa.schema(
    [
        *_needed("tenant"),
        *(_DUE_AT if column.name == "due_us" else column for column in REWARD_ROWS),
        *_COMPUTED,
    ]
)
OUTCOME_FILE_ROWS = pa.schema(
    [
        *_needed("tenant", "session_id", "outcome"),
        pa.field("reason", pa.string()),
        pa.field("value", pa.float64()),
        pa.field("checkpoint", pa.string()),
        *_needed("chain"),
        *_needed("first_ts", "last_ts", kind=_TIME),
        *_needed("requests", "edited_requests", kind=pa.int32()),
        *_needed("answered_requests", "asking_requests", kind=pa.int32()),
        *_needed("tool_calls", "invalid_tool_calls", kind=pa.int32()),
        _DUE_AT,
        *_COMPUTED,
        *_needed("listed", kind=pa.bool_()),
    ]
)
_VARYING = [name for name in REWARD_ROWS.names if name != "name"]


def row_tuples(table: pa.Table, *names: str) -> Iterator[tuple[Any, ...]]:
    """Yield rows as tuples of these columns, with times in microseconds."""

    def values(column: pa.ChunkedArray) -> list[Any]:
        is_time = pa.types.is_timestamp(column.type)
        cells: list[Any] = (column.cast(pa.int64()) if is_time else column).to_pylist()
        return cells

    return zip(*(values(table[name]) for name in names), strict=True)


def payload_fields(payload: str | None) -> dict[str, Any]:
    """Decode a payload; empty where it is no object."""
    fields = msgspec.json.decode(payload or "{}")
    return fields if isinstance(fields, dict) else {}


def encoded(column: pa.ChunkedArray) -> tuple[NDArray[np.int64], pa.Array]:
    """Encode a column as numbers and distinct values, null included, in order of appearance."""
    values = column.dictionary_encode(null_encoding="encode").combine_chunks()
    return values.indices.to_numpy().astype(np.int64), values.dictionary


def sql_of(file: str) -> str:
    return files("penstock_jobs.rewards").joinpath(file).read_text(encoding="utf-8")


def query_rows(
    file: str, tables: Mapping[str, pa.Table], **parameters: object
) -> list[dict[str, Any]]:
    with table_engine() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        rows = connection.sql(sql_of(file), params=parameters).to_arrow_table()
    names = rows.column_names
    return [dict(zip(names, row, strict=True)) for row in row_tuples(rows, *names)]


class RewardRows:
    def __init__(self, name: str) -> None:
        self._name = name
        self._rows: list[tuple[Any, ...]] = []

    def add(
        self,
        session: str,
        target: Target,
        value: float | None,
        reason: str | None = None,
        *,
        state: State | None = None,
        weight: float = 1.0,
        due_us: int | None = None,
        checkpoint: str | None = None,
    ) -> None:
        state = state or ("censored" if value is None else "scored")
        row = (session, *target, None, value, state, reason, weight, due_us, checkpoint)
        self._rows.append(row)

    def add_standing(
        self,
        session: str,
        target: Target,
        standing: Standing,
        horizon_s: int | None = None,
        checkpoint: str | None = None,
    ) -> None:
        state, value, reason, weight, due_us = standing
        facts = (horizon_s, value, state, reason, weight, due_us, checkpoint)
        self._rows.append((session, *target, *facts))

    def table(self) -> pa.Table:
        values = list(zip(*self._rows, strict=True)) or [()] * len(_VARYING)
        columns = {
            name: pa.array(column, REWARD_ROWS.field(name).type)
            for name, column in zip(_VARYING, values, strict=True)
        }
        columns["name"] = pa.repeat(self._name, len(self._rows))
        ordered = [columns[name] for name in REWARD_ROWS.names]
        return pa.Table.from_arrays(ordered, schema=REWARD_ROWS)


def quoted(texts: Iterable[str]) -> str:
    """Write texts as a list of SQL."""
    return ", ".join("'" + text.replace("'", "''") + "'" for text in texts)
