"""Samples as columns: they are never one object a token."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.shards.schema import ROUTE_ROWS, SHARD_ROWS
from penstock_jobs.shards.branches import Branch

Record = Sequence[tuple[Any, ...]]
#: Columns that are made of the branches; the others are a value a row.
_OF_BRANCHES = (
    "input_ids", "loss_mask", "rollout_logprobs", "policy_version_runs", "turn_spans",
    "reward_components",
)  # fmt: skip


def sample_table(rows: Sequence[dict[str, Any]], branches: Sequence[Branch]) -> pa.Table:
    """A branch for each row. Fields that a row does not have are null."""
    made = {
        "input_ids": _numbers("input_ids", [one.input_ids for one in branches]),
        "loss_mask": _numbers("loss_mask", [one.loss_mask for one in branches]),
        "rollout_logprobs": _numbers(
            "rollout_logprobs", [one.rollout_logprobs for one in branches]
        ),
        "policy_version_runs": _records(
            "policy_version_runs", [one.version_runs for one in branches]
        ),
        "turn_spans": _records("turn_spans", [one.spans for one in branches]),
        "reward_components": _records("reward_components", [()] * len(branches)),
    }
    arrays = [
        made[field.name]
        if field.name in _OF_BRANCHES
        else pa.array([row.get(field.name) for row in rows], field.type)
        for field in SHARD_ROWS
    ]
    return pa.Table.from_arrays(arrays, schema=SHARD_ROWS)


def route_table(ids: Sequence[str], branches: Sequence[Branch]) -> pa.Table:
    """A row for each sample, whether it has experts or not."""
    routes = [one.routes for one in branches]
    columns = {
        "sample_id": list(ids),
        "routed_experts": [one and one.data for one in routes],
        "layers": [one and one.layers for one in routes],
        "topk": [one and one.topk for one in routes],
        "dtype": [one and one.dtype for one in routes],
        "start": [None if one is None else one.start for one in routes],
    }
    arrays = [pa.array(columns[field.name], field.type) for field in ROUTE_ROWS]
    return pa.Table.from_arrays(arrays, schema=ROUTE_ROWS)


def _numbers(name: str, values: Sequence[NDArray[Any] | None]) -> pa.LargeListArray:
    kind = SHARD_ROWS.field(name).type
    present = [value for value in values if value is not None]
    flat = np.concatenate(present) if present else np.empty(0, kind.value_type.to_pandas_dtype())
    return pa.LargeListArray.from_arrays(
        _offsets(values, np.int64), pa.array(flat, kind.value_type), type=kind, mask=_nulls(values)
    )


def _records(name: str, values: Sequence[Record | None]) -> pa.ListArray:
    kind = SHARD_ROWS.field(name).type
    fields = list(kind.value_type)
    flat = [record for value in values if value is not None for record in value]
    columns = zip(*flat, strict=True) if flat else ((),) * len(fields)
    arrays = [pa.array(column, one.type) for column, one in zip(columns, fields, strict=True)]
    records = pa.StructArray.from_arrays(arrays, fields=fields)
    return pa.ListArray.from_arrays(
        _offsets(values, np.int32), records, type=kind, mask=_nulls(values)
    )


def _offsets(values: Sequence[Any], kind: type[np.signedinteger[Any]]) -> pa.Array:
    lengths = [0 if value is None else len(value) for value in values]
    return pa.array(np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(kind))


def _nulls(values: Sequence[Any]) -> pa.Array | None:
    found = [value is None for value in values]
    return pa.array(found) if any(found) else None
