"""The columns of a shard. A row is one branch of a session: one trainable sequence, unpadded."""

from typing import Literal

import pyarrow as pa

FORMAT = 1

Status = Literal["completed", "truncated", "aborted", "failed", "masked"]
TokenSource = Literal["engine", "renderer"]
Split = Literal["train", "eval"]
#: What `role` of a turn's span counts: 0 is system.
ROLES = ("system", "user", "assistant", "tool")

_TIME = pa.timestamp("us", tz="UTC")


def _needed(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


def _numbers(kind: pa.DataType) -> pa.DataType:
    """Without room for nulls among them, which makes reading a third faster."""
    return pa.large_list(_needed("element", kind))


def _records(*fields: pa.Field) -> pa.DataType:
    return pa.list_(_needed("element", pa.struct(fields)))


SHARD_ROWS = pa.schema(
    [
        _needed("sample_id", pa.string()),
        _needed("trajectory_id", pa.string()),
        _needed("rollout_id", pa.string()),
        _needed("group_id", pa.string()),
        pa.field("task_id", pa.string()),
        _needed("session_id", pa.string()),
        _needed("branch_index", pa.int16()),
        _needed("n_branches", pa.int16()),
        _needed("chain_pos", pa.int16()),
        _needed("is_last_step", pa.bool_()),
        pa.field("parent_sample_id", pa.string()),
        pa.field("link_kind", pa.string()),
        _needed("input_ids", _numbers(pa.int32())),
        _needed("loss_mask", _numbers(pa.uint8())),
        _needed("prompt_len", pa.int32()),
        _needed("n_tokens", pa.int32()),
        _needed("n_trainable", pa.int32()),
        pa.field("rollout_logprobs", _numbers(pa.float32())),
        pa.field(
            "policy_version_runs",
            _records(_needed("start", pa.int32()), _needed("version", pa.int32())),
        ),
        pa.field("min_policy_version", pa.int32()),
        pa.field("max_policy_version", pa.int32()),
        pa.field("temperature", pa.float32()),
        pa.field("advantage", pa.float32()),
        pa.field("reward", pa.float32()),
        _needed(
            "reward_components",
            _records(
                _needed("name", pa.string()),
                _needed("value", pa.float32()),
                _needed("weight", pa.float32()),
            ),
        ),
        pa.field(
            "token_rewards", _records(_needed("pos", pa.int32()), _needed("value", pa.float32()))
        ),
        _needed(
            "turn_spans",
            _records(
                _needed("start", pa.int32()),
                _needed("end", pa.int32()),
                _needed("turn", pa.int32()),
                _needed("role", pa.int8()),
                _needed("sampled", pa.bool_()),
                pa.field("event_seq", pa.int64()),
            ),
        ),
        pa.field("routed_rows", pa.int32()),
        _needed("status", pa.string()),
        pa.field("stop_reason", pa.string()),
        pa.field("mask_reason", pa.string()),
        pa.field("error_kind", pa.string()),
        _needed("loss_weight", pa.float32()),
        _needed("token_source", pa.string()),
        _needed("tokenizer_sha256", pa.string()),
        pa.field("template_sha256", pa.string()),
        pa.field("model_name", pa.string()),
        pa.field("checkpoint_id", pa.string()),
        pa.field("source_system", pa.string()),
        _needed("split", pa.string()),
        _needed("consent", pa.string()),
        _needed("created_at", _TIME),
        _needed("messages", pa.large_string()),
        pa.field("tools", pa.large_string()),
    ],
    metadata={"penstock.shard": str(FORMAT)},
)

#: A file beside a part, with a row for each of its rows: experts of mixture models are a hundred
#: times the bytes of all other columns, and read only by whoever asks for them.
ROUTE_ROWS = pa.schema(
    [
        _needed("sample_id", pa.string()),
        pa.field("routed_experts", pa.large_binary()),
        pa.field("layers", pa.int32()),
        pa.field("topk", pa.int32()),
        pa.field("dtype", pa.string()),
        pa.field("start", pa.int32()),
    ],
    metadata={"penstock.shard": str(FORMAT)},
)

SORTED_BY = ("group_id", "rollout_id", "chain_pos", "branch_index")
