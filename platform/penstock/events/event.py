"""An event: its fields, its payload by type, its identity, its tenant and its session's consent.
Known fields of a payload are checked, unknown ones are kept."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from xxhash import xxh3_64_intdigest, xxh3_128_digest

from penstock.core.errors import InvalidInput

Count = Annotated[int, Meta(ge=0)]
Milliseconds = Annotated[float, Meta(ge=0)]
Consent = Literal["train", "no_train", "unknown"]
Link = Literal["resume", "fork", "compaction", "subagent"]
#: Kept before they were known: any value is accepted, and these are read.
SystemPrompt = Annotated[Any, Meta(extra_json_schema={"type": ["string", "null"]})]
Tools = Annotated[
    Any, Meta(extra_json_schema={"type": ["array", "null"], "items": {"type": "object"}})
]
ErrorClass = Literal[
    "invalid_arguments", "unexpected_environment", "provider_error", "user_aborted", "timeout",
    "unknown",
]  # fmt: skip


class Payload(Struct, kw_only=True, gc=False):
    """The base of all payloads. Each lists only the fields that Penstock reads."""


class SessionStart(Payload):
    client: str | None = None
    client_version: str | None = None
    repo: str | None = None
    branch: str | None = None
    commit: str | None = None
    #: The license of the repository, as SPDX names it.
    license: str | None = None
    consent: Consent | None = None
    task_id: str | None = None
    group_id: str | None = None
    arm: str | None = None
    parent_session: str | None = None
    link: Link | None = None
    system: SystemPrompt = None
    tools: Tools = None


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
    #: The `call_id` whose answer was asked for again.
    regenerates: str | None = None
    sampling: dict[str, Any] | None = None
    tokens: Tokens | None = None
    #: Set where system and tools differ from the start of the session.
    system: SystemPrompt = None
    tools: Tools = None


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
        if not self.deleted and not isinstance(self.text, str):
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

#: Fields of any payload that are read although no structure lists them.
READ_TOO = frozenset({"synthetic", "is_copied_context", "summary"})

#: A producer's own types begin with this.
CUSTOM_PREFIX = "x_"
#: Says how many events of its session a recorder had no room for.
DROPPED_TYPE = "x_recorder_dropped"
#: One event cannot say more: sums of any number of them stay numbers of a database.
DROPPED_MAX = 1_000_000_000

#: Written with every row; it grows when a field changes its meaning.
SCHEMA_VERSION = 1

ID_CHARS_MAX = 512
SEQ_MAX = 2**63 - 1
#: An event before 2000 or after 2099 has a wrong unit or clock.
TS_MIN = datetime(2000, 1, 1, tzinfo=UTC)
TS_MAX = datetime(2100, 1, 1, tzinfo=UTC)
TS_MIN_US = int(TS_MIN.timestamp()) * 1_000_000
TS_MAX_US = int(TS_MAX.timestamp()) * 1_000_000

Id = Annotated[str, Meta(min_length=1, max_length=ID_CHARS_MAX)]
Seq = Annotated[int, Meta(ge=0, le=SEQ_MAX)]
#: RFC 3339 with a zone, or integer microseconds since 1970.
Ts = Annotated[datetime, Meta(tz=True)] | int


class EventFields(Struct, kw_only=True, gc=False):
    """An event's fields beside its type and its payload."""

    session_id: Id
    ts: Ts
    event_id: Id | None = None
    seq: Seq | None = None
    source: Id | None = None
    source_key: Id | None = None
    checkpoint: Id | None = None
    user: Id | None = None
    project: Id | None = None


class Envelope(EventFields, kw_only=True, gc=False):
    """An event of any type, with the bytes of its payload; `extra` holds unknown fields."""

    type: Id
    payload: Raw
    extra: Raw | UnsetType = UNSET


class _Dropped(Struct):
    events: Annotated[int, Meta(ge=0, le=DROPPED_MAX)]


def dropped_events(payload: Raw) -> int:
    """Read how many events a recorder dropped; 0 if the payload makes no sense."""
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(payload, type=_Dropped).events
    return 0


FIELDS = frozenset(Envelope.__struct_fields__) - {"extra"}

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def microseconds(ts: datetime | int) -> int:
    if isinstance(ts, int):
        return ts
    since = ts - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


TENANT_DEFAULT = "default"
TENANT_CHARS_MAX = 128


def is_tenant(name: str) -> bool:
    return 0 < len(name) <= TENANT_CHARS_MAX and name.isprintable()


# Identity: the digest by which an event that is sent again is the same event. It is local to a
# session, whose partition's owner alone decides whether an event is new.

KEY_BYTES = 16

_sorted_encoder = msgspec.json.Encoder(order="deterministic")


def session_key(tenant: str, session_id: str) -> str:
    """Name a session unambiguously: ids hold no NUL."""
    return f"{tenant}\0{session_id}"


def session_hash(session: str) -> int:
    """64 bits for filters of segments and for buckets."""
    return xxh3_64_intdigest(session.encode())


def event_key(session: str, event: Envelope) -> bytes:
    if event.event_id is not None:
        return xxh3_128_digest(f"{session}\0e\0{event.event_id}".encode())
    if event.source_key is not None:
        return xxh3_128_digest(f"{session}\0s\0{event.source or ''}\0{event.source_key}".encode())
    names = ("type", "seq", "source", "checkpoint", "user", "project")
    content = {name: getattr(event, name) for name in names}
    content |= {"ts": microseconds(event.ts), "payload": msgspec.json.decode(event.payload)}
    if event.extra:
        content["extra"] = msgspec.json.decode(event.extra)
    # JSON that does not depend on spacing, key order or escapes.
    return xxh3_128_digest(session.encode() + b"\0c\0" + _sorted_encoder.encode(content))


# Consent: the strictest that was ever stated for a session holds

CONSENT_UNKNOWN = "unknown"
_STRICTNESS = {CONSENT_UNKNOWN: 0, "train": 1, "no_train": 2}
_session_start_decoder = msgspec.json.Decoder(SessionStart)


def strictest_consent(consents: Iterable[str]) -> str:
    return max(consents, key=_STRICTNESS.__getitem__, default=CONSENT_UNKNOWN)


def consent_of(session_start_payload: bytes) -> str:
    return _session_start_decoder.decode(session_start_payload).consent or CONSENT_UNKNOWN


_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_IDENTITY = f"urn:penstock:event:{SCHEMA_VERSION}"
CUSTOM = "x_…"


def event_schema(kind: str | None = None) -> dict[str, Any]:
    """Make the JSON Schema of a type of events, or of all. Raises InvalidInput."""
    if kind is not None and kind not in PAYLOADS and kind != CUSTOM:
        known = ", ".join([*PAYLOADS, CUSTOM])
        raise InvalidInput(
            what=f"The type {kind!r}", why=f"there is no such schema; known: {known}"
        )
    definitions = _definitions()
    head = {"$schema": _DIALECT, "$id": _IDENTITY if kind is None else f"{_IDENTITY}:{kind}"}
    if kind is not None:
        return head | {"title": kind} | _event(kind) | {"$defs": definitions}
    kinds = [_event(name) for name in [*PAYLOADS, CUSTOM]]
    return head | {"title": "event", "oneOf": kinds, "$defs": definitions}


def inlined(schema: Any, definitions: Mapping[str, Any] | None = None) -> Any:
    """Put each definition of a schema where it is used."""
    if isinstance(schema, dict):
        known = schema.get("$defs", definitions or {})
        if "$ref" in schema:
            return inlined(known[schema["$ref"].rpartition("/")[2]], known)
        return {name: inlined(part, known) for name, part in schema.items() if name != "$defs"}
    return [inlined(part, definitions) for part in schema] if isinstance(schema, list) else schema


def _definitions() -> dict[str, Any]:
    types = [EventFields, *PAYLOADS.values()]
    _, definitions = msgspec.json.schema_components(types, ref_template="#/$defs/{name}")
    seen: Any = definitions["FileObserved"]
    seen["anyOf"] = [
        {"required": ["text"], "properties": {"text": {"type": "string"}}},
        {"required": ["deleted"], "properties": {"deleted": {"const": True}}},
    ]
    return dict(definitions)


def _event(kind: str) -> dict[str, Any]:
    fields: dict[str, Any] = dict(_definitions()["EventFields"])
    payload: dict[str, Any] = {"type": "object"}
    name: dict[str, Any] = {"type": "string", "pattern": f"^{CUSTOM_PREFIX}"}
    if kind != CUSTOM:
        payload = {"$ref": f"#/$defs/{PAYLOADS[kind].__name__}"}
        name = {"const": kind}
    return {
        "type": "object",
        "required": [*fields["required"], "type", "payload"],
        "properties": fields["properties"] | {"type": name, "payload": payload},
    }
