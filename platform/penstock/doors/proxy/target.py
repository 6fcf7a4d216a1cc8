"""What a request is: its endpoint, and whose session it belongs to, by its path and its headers."""

import enum
import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from penstock.events.event import ID_CHARS_MAX

Headers = list[tuple[bytes, bytes]]


class Endpoint(enum.StrEnum):
    CHAT = "/v1/chat/completions"
    COMPLETIONS = "/v1/completions"
    MESSAGES = "/v1/messages"
    RESPONSES = "/v1/responses"


_ENDPOINTS = {endpoint.encode(): endpoint for endpoint in Endpoint}
_NAMED = re.compile(rb"/s/([^/]+)(?:/c/([^/]+))?(?=/)")
_PREFIX = b"x-penstock-"
#: What agents say of their own accord.
_SESSION_HEADERS = (b"x-claude-code-session-id", b"session_id", b"session-id", b"conversation_id")
_HOP_BY_HOP = frozenset(
    (b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization",
     b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade")
)  # fmt: skip
_CONSENTS = frozenset(("train", "no_train", "unknown"))


@dataclass(frozen=True, slots=True)
class Labels:
    session: str | None = None
    checkpoint: str | None = None
    user: str | None = None
    project: str | None = None
    consent: str | None = None
    task: str | None = None
    group: str | None = None
    version: int | None = None
    client: str | None = None


@dataclass(frozen=True, slots=True)
class Target:
    #: As it is asked of the upstream, with its query.
    path: bytes
    #: None: it is passed on, and not recorded.
    endpoint: Endpoint | None
    labels: Labels


def target_of(method: str, path: bytes, query: bytes, headers: Headers, defaults: Labels) -> Target:
    session = checkpoint = None
    if named := _NAMED.match(path):
        session, checkpoint = (_plain(part) for part in named.groups())
        path = path[named.end() :]
    endpoint = _ENDPOINTS.get(path) if method == "POST" else None
    said = {name[len(_PREFIX) :]: value for name, value in headers if name.startswith(_PREFIX)}
    known = dict(reversed(headers))
    own = next((known[name] for name in _SESSION_HEADERS if name in known), None)
    consent = _text(said.get(b"consent"))
    version = said.get(b"policy-version", b"")
    labels = Labels(
        session=_text(said.get(b"session")) or session or _text(own),
        checkpoint=_text(said.get(b"checkpoint")) or checkpoint or defaults.checkpoint,
        user=_text(said.get(b"user")) or defaults.user,
        project=_text(said.get(b"project")) or defaults.project,
        consent=consent if consent in _CONSENTS else defaults.consent,
        task=_text(said.get(b"task")),
        group=_text(said.get(b"group")),
        version=int(version) if version.isdigit() and len(version) < 10 else None,
        client=_text(known.get(b"user-agent")),
    )
    return Target(path + (b"?" + query if query else b""), endpoint, labels)


def passed_on(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Without those that are of one connection alone, and those that are said to the proxy."""
    given = list(headers)
    named = {
        name.strip().lower()
        for header, value in given
        if header == b"connection"
        for name in value.split(b",")
    }
    dropped = _HOP_BY_HOP | named
    return [
        (name, value)
        for name, value in given
        if name not in dropped and not name.startswith(_PREFIX)
    ]


def _plain(part: bytes | None) -> str | None:
    return _text(unquote_to_bytes(part)) if part else None


def _text(value: bytes | None) -> str | None:
    text = value.decode("utf-8", "replace").replace("\0", "").strip() if value else ""
    return text[:ID_CHARS_MAX] or None
