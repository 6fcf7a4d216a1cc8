"""The payload of each event type. Unknown fields are kept, known ones are checked."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

Count = Annotated[int, Meta(ge=0)]
Milliseconds = Annotated[float, Meta(ge=0)]
Consent = Literal["train", "no_train", "unknown"]
Link = Literal["resume", "fork", "compaction", "subagent"]
ErrorClass = Literal[
    "invalid_arguments",
    "unexpected_environment",
    "provider_error",
    "user_aborted",
    "timeout",
    "unknown",
]


class Payload(Struct, kw_only=True, gc=False):
    """The base of all payloads; each lists only what Penstock itself reads."""


class SessionStart(Payload):
    client: str | None = None
    client_version: str | None = None
    repo: str | None = None
    branch: str | None = None
    commit: str | None = None
    consent: Consent | None = None
    task_id: str | None = None
    group_id: str | None = None
    arm: str | None = None
    parent_session: str | None = None
    link: Link | None = None


class SessionEnd(Payload):
    reason: Literal["completed", "user_stop", "timeout", "crash"]


class UserMessage(Payload):
    text: str


class ToolCall(Payload):
    id: str
    name: str
    #: An object, or the JSON text of one, as the provider sent it.
    arguments: Any = None


class Usage(Payload):
    prompt: Count | None = None
    completion: Count | None = None
    thinking: Count | None = None
    cached: Count | None = None


class RoutedExperts(Payload):
    data: str
    shape: list[Count]
    dtype: str


class Tokens(Payload):
    prompt_ids: list[int] | None = None
    completion_ids: list[int] | None = None
    logprobs: list[float] | None = None
    tokenizer: str | None = None
    template: str | None = None
    policy_version_runs: list[tuple[Count, Any]] | None = None
    routed_experts: RoutedExperts | None = None


class ModelCall(Payload):
    call_id: str | None = None
    model: str | None = None
    text: str | None = None
    thinking: str | None = None
    tool_calls: list[ToolCall] | None = None
    usage: Usage | None = None
    latency_ms: Milliseconds | None = None
    ttft_ms: Milliseconds | None = None
    finish_reason: str | None = None
    sampling: dict[str, Any] | None = None
    tokens: Tokens | None = None


class ToolResult(Payload):
    call_id: str | None = None
    tool: str | None = None
    ok: bool | None = None
    error_class: ErrorClass | None = None
    #: Text, or whatever structure the tool returned.
    output: Any = None
    duration_ms: Milliseconds | None = None


class Edit(Payload):
    path: str
    before: str
    after: str
    edit_id: str | None = None
    call_id: str | None = None
    language: str | None = None


class FileObserved(Payload):
    path: str
    text: str | None = None
    deleted: bool | None = None
    branch_changed: bool | None = None
    edit_ids: list[str] | None = None

    def __post_init__(self) -> None:
        if not self.deleted and self.text is None:
            raise ValueError("needs `text`, or `deleted: true`")


class Feedback(Payload):
    kind: Literal["thumbs", "rating", "accept", "reject", "undo", "comment"]
    target: str | None = None
    value: bool | float | str | None = None
    comment: str | None = None


class Compaction(Payload):
    trigger: str | None = None
    tokens_before: Count | None = None
    tokens_after: Count | None = None
    summary_call_id: str | None = None


class VcsCommit(Payload):
    commit: str | None = None
    branch: str | None = None
    message: str | None = None
    parents: list[str] | None = None
    files: list[Any] | None = None


class TestResult(Payload):
    command: str | None = None
    passed: Count | None = None
    failed: Count | None = None
    skipped: Count | None = None
    ok: bool | None = None
    output: str | None = None
    duration_ms: Milliseconds | None = None


class Interrupt(Payload):
    call_id: str | None = None
    reason: str | None = None


class Error(Payload):
    message: str | None = None
    error_class: str | None = None
    call_id: str | None = None


#: Event type → the structure of its payload.
PAYLOADS: dict[str, type[Payload]] = {
    "session_start": SessionStart,
    "session_end": SessionEnd,
    "user_message": UserMessage,
    "model_call": ModelCall,
    "tool_result": ToolResult,
    "edit": Edit,
    "file_observed": FileObserved,
    "feedback": Feedback,
    "compaction": Compaction,
    "vcs_commit": VcsCommit,
    "test_result": TestResult,
    "interrupt": Interrupt,
    "error": Error,
}

#: A producer's own types begin with this; their payload may hold anything.
CUSTOM_PREFIX = "x_"
