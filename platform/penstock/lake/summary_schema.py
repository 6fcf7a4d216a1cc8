"""What a row of `session_parts` holds."""

import pyarrow as pa

_TIME = pa.timestamp("us", tz="UTC")


def _field(name: str, kind: pa.DataType, *, nullable: bool = True) -> pa.Field:
    return pa.field(name, kind, nullable=nullable)


#: The result of `summary.sql`, in its order: one row a (tenant, session_id) of one batch.
#:
#: Every column merges with the same column of another part of the session: counts and tokens by
#: sum, `first_*` by min, `last_*` by max, `consent` by strength, `checkpoints` by union. A column
#: with a time beside it (`user_ts`, …) merges by the latest time; everything from `client` to
#: `link` goes together by `start_ts`, and `end_reason` goes by `end_ts`.
SESSION_PARTS = pa.schema(
    [
        _field("tenant", pa.string(), nullable=False),
        _field("session_id", pa.string(), nullable=False),
        _field("events", pa.int64(), nullable=False),
        _field("first_ts", _TIME, nullable=False),
        _field("last_ts", _TIME, nullable=False),
        _field("first_received_at", _TIME),
        _field("last_received_at", _TIME),
        _field("user", pa.string()),
        _field("user_ts", _TIME),
        _field("project", pa.string()),
        _field("project_ts", _TIME),
        _field("source", pa.string()),
        _field("source_ts", _TIME),
        _field("checkpoint", pa.string()),
        _field("checkpoint_ts", _TIME),
        _field("checkpoints", pa.list_(pa.string()), nullable=False),
        _field("consent", pa.string(), nullable=False),
        _field("user_messages", pa.int64(), nullable=False),
        _field("model_calls", pa.int64(), nullable=False),
        _field("tool_calls", pa.int64(), nullable=False),
        _field("failed_tool_calls", pa.int64(), nullable=False),
        _field("edits", pa.int64(), nullable=False),
        _field("feedback", pa.int64(), nullable=False),
        _field("feedback_positive", pa.int64(), nullable=False),
        _field("feedback_negative", pa.int64(), nullable=False),
        _field("interrupts", pa.int64(), nullable=False),
        _field("errors", pa.int64(), nullable=False),
        _field("prompt_tokens", pa.int64(), nullable=False),
        _field("completion_tokens", pa.int64(), nullable=False),
        _field("start_ts", _TIME),
        _field("client", pa.string()),
        _field("client_version", pa.string()),
        _field("repo", pa.string()),
        _field("branch", pa.string()),
        _field("commit", pa.string()),
        _field("task_id", pa.string()),
        _field("group_id", pa.string()),
        _field("arm", pa.string()),
        _field("parent_session", pa.string()),
        _field("link", pa.string()),
        _field("end_ts", _TIME),
        _field("end_reason", pa.string()),
        #: Beside a merged segment the newest commit that brought an event of the session which is
        #: in it now. Beside one of the writer's it is null: there that is the segment's own.
        _field("changed_snap", pa.int64()),
    ]
)
