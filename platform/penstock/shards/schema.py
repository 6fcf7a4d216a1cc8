"""The columns of a shard, and its rows as numpy. A row is one branch of a session: one trainable
sequence, unpadded. A row of text has files, one for each turn span."""

from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa

FORMAT = 2

Status = Literal["completed", "truncated", "aborted", "failed", "masked"]
TokenSource = Literal["engine", "renderer", "text"]
Split = Literal["train", "eval"]
#: The values of a turn span's `role`: 0 is system.
ROLES = ("system", "user", "assistant", "tool")


def _needed(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


def _columns(kind: pa.DataType, *names: str, nullable: bool = False) -> list[pa.Field]:
    """Adjacent columns of one type."""
    return [pa.field(name, kind, nullable=nullable) for name in names]


def _numbers(kind: pa.DataType) -> pa.DataType:
    """A list of numbers without nulls, which makes reading a third faster."""
    return pa.large_list(_needed("element", kind))


def _records(*fields: pa.Field) -> pa.DataType:
    return pa.list_(_needed("element", pa.struct(fields)))


_TEXT, _INT, _SHORT, _FLOAT = pa.string(), pa.int32(), pa.int16(), pa.float32()
SHARD_ROWS = pa.schema(
    [
        *_columns(_TEXT, "sample_id", "trajectory_id", "rollout_id", "group_id"),
        pa.field("task_id", _TEXT),
        _needed("session_id", _TEXT),
        *_columns(_SHORT, "branch_index", "n_branches", "chain_pos"),
        _needed("is_last_step", pa.bool_()),
        *_columns(_TEXT, "parent_sample_id", "link_kind", nullable=True),
        _needed("input_ids", _numbers(_INT)),
        _needed("loss_mask", _numbers(pa.uint8())),
        *_columns(_INT, "prompt_len", "n_tokens", "n_trainable"),
        pa.field("rollout_logprobs", _numbers(_FLOAT)),
        pa.field("policy_version_runs", _records(*_columns(_INT, "start", "version"))),
        *_columns(_INT, "min_policy_version", "max_policy_version", nullable=True),
        *_columns(_FLOAT, "temperature", "advantage", "reward", nullable=True),
        pa.field(
            "temperature_runs", _records(_needed("start", _INT), _needed("temperature", _FLOAT))
        ),
        _needed(
            "reward_components",
            _records(_needed("name", _TEXT), *_columns(_FLOAT, "value", "weight")),
        ),
        pa.field("token_rewards", _records(_needed("pos", _INT), _needed("value", _FLOAT))),
        _needed(
            "turn_spans",
            _records(
                *_columns(_INT, "start", "end", "turn"),
                _needed("role", pa.int8()),
                _needed("sampled", pa.bool_()),
                pa.field("event_seq", pa.int64()),
            ),
        ),
        pa.field("routed_rows", _INT),
        _needed("status", _TEXT),
        *_columns(_TEXT, "stop_reason", "mask_reason", "error_kind", nullable=True),
        _needed("loss_weight", _FLOAT),
        *_columns(_TEXT, "token_source", "tokenizer_sha256"),
        *_columns(_TEXT, "tokenizer_id", "template_sha256", "model_name", nullable=True),
        *_columns(_TEXT, "checkpoint_id", "source_system", "license", nullable=True),
        *_columns(_TEXT, "split", "consent"),
        _needed("created_at", pa.timestamp("us", tz="UTC")),
        _needed("messages", pa.large_string()),
        *_columns(pa.large_string(), "tools", "preferences", nullable=True),
        #: Whole files, whose tokens the turn spans hold.
        pa.field("documents", _records(*_columns(_TEXT, "path", "sha256"), _needed("bytes", _INT))),
        #: What the model could not know when it wrote: for a teacher, `hint_ids` stand at
        #: `hint_position`, and are about the tokens from `hint_start` to `hint_end`.
        *_columns(_TEXT, "hint", "hint_kind", nullable=True),
        pa.field("hint_ids", _numbers(_INT)),
        *_columns(_INT, "hint_position", "hint_start", "hint_end", nullable=True),
        pa.field("hint_answer_free", pa.bool_()),
        *_columns(_TEXT, "hint_event_id", "hint_session_id", nullable=True),
    ],
    metadata={"penstock.shard": str(FORMAT)},
)

HINT_COLUMNS = tuple(name for name in SHARD_ROWS.names if name.split("_")[0] == "hint")

#: A side file with one row per row of its part: routed experts are a hundred times larger than all
#: other columns, and few trainers read them.
ROUTE_ROWS = pa.schema(
    [
        _needed("sample_id", _TEXT),
        pa.field("routed_experts", pa.large_binary()),
        *_columns(_INT, "layers", "topk", nullable=True),
        pa.field("dtype", _TEXT),
        pa.field("start", _INT),
    ],
    metadata={"penstock.shard": str(FORMAT)},
)

SORTED_BY = ("group_id", "rollout_id", "chain_pos", "branch_index")


class ListColumn(NamedTuple):
    """A column of lists. `offsets` point into `values`; a missing list is empty."""

    values: pa.Array
    offsets: np.ndarray
    valid: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        return np.asarray(np.diff(self.offsets))

    @property
    def rows(self) -> np.ndarray:
        """The row of each value."""
        return np.asarray(np.repeat(np.arange(len(self.valid)), self.lengths))

    def numbers(self, field: str | None = None) -> np.ndarray:
        values = self.values if field is None else self.values.field(field)
        return np.asarray(values.to_numpy(zero_copy_only=False))


class Rows:
    def __init__(self, table: pa.Table) -> None:
        self.table = table.combine_chunks()
        self.count = table.num_rows

    def column(self, name: str) -> pa.Array:
        column = self.table[name]
        return column.chunk(0) if column.num_chunks else pa.array([], column.type)

    def numbers(self, name: str) -> np.ndarray:
        return np.asarray(self.column(name).to_numpy(zero_copy_only=False))

    def present(self, name: str) -> np.ndarray:
        return np.asarray(self.column(name).is_valid().to_numpy(zero_copy_only=False))

    def lists(self, name: str) -> ListColumn:
        array = self.column(name)
        offsets = array.offsets.to_numpy().astype(np.int64)
        values = array.values[int(offsets[0]) : int(offsets[-1])]
        if pa.types.is_struct(values.type):
            values = pa.StructArray.from_arrays(values.flatten(), fields=list(values.type))
        return ListColumn(values, offsets - offsets[0], self.present(name))

    @cached_property
    def tokens(self) -> np.ndarray:
        return self.numbers("n_tokens").astype(np.int64)

    @cached_property
    def offsets(self) -> np.ndarray:
        return np.append(0, np.cumsum(self.tokens))

    @cached_property
    def mask(self) -> np.ndarray:
        return self.lists("loss_mask").numbers()

    @cached_property
    def trained_places(self) -> np.ndarray:
        return np.asarray(np.flatnonzero(self.mask))

    @cached_property
    def trained(self) -> np.ndarray:
        """The number of trained tokens per row."""
        return np.asarray(np.diff(np.searchsorted(self.trained_places, self.offsets)))

    @cached_property
    def first_trained(self) -> np.ndarray:
        """The position of the first trained token per row, or the row's length."""
        at = np.searchsorted(self.trained_places, self.offsets[:-1])
        first = np.append(self.trained_places, self.offsets[-1])[at]
        return np.asarray(np.minimum(first, self.offsets[1:]) - self.offsets[:-1])

    @cached_property
    def spans(self) -> ListColumn:
        return self.lists("turn_spans")

    @cached_property
    def trained_in_spans(self) -> np.ndarray:
        """The number of trained tokens per turn span, if it was sampled."""
        spans = self.spans
        base = self.offsets[spans.rows]
        start, end = (
            np.searchsorted(self.trained_places, base + spans.numbers(name))
            for name in ("start", "end")
        )
        return np.asarray((end - start) * spans.numbers("sampled"))

    def row_of(self, token: int) -> int:
        return int(np.searchsorted(self.offsets, token, side="right")) - 1


def group_starts(groups: pa.ChunkedArray, before: str | None = None) -> np.ndarray:
    """Whether a group begins at each row; `before` is the group of the previous row."""
    names = groups.to_numpy()
    starts = np.ones(len(names), dtype=bool)
    if len(names):
        starts[0] = names[0] != before
        starts[1:] = names[1:] != names[:-1]
    return starts
