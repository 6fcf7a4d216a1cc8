"""Whose a span or a record is: its session, user, project and checkpoint, and what its session's
start says. A fact of the record itself goes before one of its resource."""

from typing import Any

from msgspec import Struct
from xxhash import xxh3_128_hexdigest

from penstock.events.event import ID_CHARS_MAX
from penstock.otlp.attributes import present, structured
from penstock.otlp.records import Attributes, Origin

_SOURCE_CHARS_MAX = 128

_SESSION = (
    "penstock.session", "gen_ai.conversation.id", "session.id", "conversation.id",
    "traceloop.association.properties.session_id", "langfuse.session.id",
    "langsmith.trace.session_id", "langsmith.metadata.session_id", "langsmith.metadata.thread_id",
    "mlflow.trace.session", "ai.telemetry.metadata.sessionId",
    "ai.telemetry.metadata.session_id", "thread_id", "conversation_id", "session_id",
)  # fmt: skip
_USER = (
    "penstock.user", "user.id", "enduser.id", "traceloop.association.properties.user_id",
    "langfuse.user.id", "mlflow.trace.user", "langsmith.metadata.user_id",
    "ai.telemetry.metadata.userId", "user.account_uuid", "user.account_id",
)  # fmt: skip
_PROJECT = ("penstock.project",)
_CHECKPOINT = ("penstock.checkpoint",)
_CONSENTS = ("train", "no_train", "unknown")
#: Facts of `session_start`, by the attribute that tells each.
_START = {
    "client": ("service.name",),
    "client_version": ("service.version", "app.version"),
    "repo": ("penstock.repo", "vcs.repository.url.full"),
    "branch": ("penstock.branch", "vcs.ref.head.name"),
    "commit": ("penstock.commit", "vcs.ref.head.revision"),
    "license": ("penstock.license",),
    "task_id": ("penstock.task_id",),
    "group_id": ("penstock.group_id",),
    "arm": ("penstock.arm",),
}


class Owner(Struct):
    """Of what is made of one record."""

    session_id: str
    source: str
    user: str | None
    project: str | None
    checkpoint: str | None
    start: dict[str, Any]


def owner_of(attributes: Attributes, origin: Origin, trace_id: str) -> Owner | None:
    """None for what belongs to no session: a record without one and without a trace."""
    session = _fact(_SESSION, attributes, origin.resource) or trace_id
    if not session:
        return None
    client = _fact(_START["client"], origin.resource)
    start = {name: _fact(names, attributes, origin.resource) for name, names in _START.items()}
    consent = _fact(("penstock.consent",), attributes, origin.resource)
    start["consent"] = consent if consent in _CONSENTS else None
    return Owner(
        session,
        f"otlp:{client[:_SOURCE_CHARS_MAX]}" if client else "otlp",
        _fact(_USER, attributes, origin.resource),
        _fact(_PROJECT, attributes, origin.resource),
        _fact(_CHECKPOINT, attributes, origin.resource),
        present(start),
    )


def _fact(names: tuple[str, ...], *places: Attributes) -> str | None:
    for place in places:
        for name in names:
            value = place.get(name)
            if isinstance(value, str) and value.startswith('"'):
                value = structured(value)  # MLflow's are JSON, each by itself
            if value is None or value == "" or isinstance(value, bool | list | dict):
                continue
            return bounded_id(str(value))
    return None


def bounded_id(name: str) -> str:
    """An id as events may have it. Those of others may be longer, or hold a NUL."""
    name = name.replace("\0", "")
    if not name:
        return "?"
    return name if len(name) <= ID_CHARS_MAX else xxh3_128_hexdigest(name.encode())
