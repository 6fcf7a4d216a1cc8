"""An event: the fields of every type, its identity, its tenant and its session's consent."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from xxhash import xxh3_64_intdigest, xxh3_128_digest

from penstock.events.payloads import SessionStart

#: Written with every row; it grows when a field changes its meaning.
SCHEMA_VERSION = 1

ID_CHARS_MAX = 512
SEQ_MAX = 2**63 - 1
#: An agent's event before 2000 or after 2099 has a wrong unit or a wrong clock.
TS_MIN = datetime(2000, 1, 1, tzinfo=UTC)
TS_MAX = datetime(2100, 1, 1, tzinfo=UTC)
TS_MIN_US = int(TS_MIN.timestamp()) * 1_000_000
TS_MAX_US = int(TS_MAX.timestamp()) * 1_000_000

Id = Annotated[str, Meta(min_length=1, max_length=ID_CHARS_MAX)]
Seq = Annotated[int, Meta(ge=0, le=SEQ_MAX)]
#: RFC 3339 with a zone, or integer microseconds since 1970.
Ts = Annotated[datetime, Meta(tz=True)] | int


class EventFields(Struct, kw_only=True, gc=False):
    """The fields of an event beside its type and its payload."""

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
    """An event of any type, with its payload as the bytes that were sent.

    `extra` holds the unknown top-level fields as a JSON object. In the log only the gateway
    writes it: a producer's own field of that name is an unknown field like any other.
    """

    type: Id
    payload: Raw
    extra: Raw | UnsetType = UNSET


FIELDS = frozenset(Envelope.__struct_fields__) - {"extra"}

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def microseconds(ts: datetime | int) -> int:
    """Microseconds since 1970, exactly."""
    if isinstance(ts, int):
        return ts
    since = ts - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


# Tenants are known by name alone

TENANT_DEFAULT = "default"
TENANT_CHARS_MAX = 128


def is_tenant(name: str) -> bool:
    return 0 < len(name) <= TENANT_CHARS_MAX and name.isprintable()


# Identity: the digest by which an event that is sent again is the same event.
#
# It is local to a session, so that the owner of the session's partition decides alone whether
# an event is new. It is made of the `event_id`; without one of `source` and `source_key`;
# without either of the content.

KEY_BYTES = 16

# Ids hold no NUL (validation refuses it), so joined parts are unambiguous.
_SEPARATOR = "\0"
_sorted_encoder = msgspec.json.Encoder(order="deterministic")


def session_key(tenant: str, session_id: str) -> str:
    """One unambiguous string for a session of a tenant."""
    return f"{tenant}{_SEPARATOR}{session_id}"


def session_hash(session: str) -> int:
    """64 bits of a `session_key`, for the filters of segments and for buckets."""
    return xxh3_64_intdigest(session.encode())


def event_key(session: str, event: Envelope) -> bytes:
    """The identity of an event of the session that `session_key` names."""
    if event.event_id is not None:
        return xxh3_128_digest(f"{session}\0e\0{event.event_id}".encode())
    if event.source_key is not None:
        return xxh3_128_digest(f"{session}\0s\0{event.source or ''}\0{event.source_key}".encode())
    return xxh3_128_digest(session.encode() + b"\0c\0" + _content(event))


def _content(event: Envelope) -> bytes:
    """The event as JSON that does not depend on spacing, key order or escapes."""
    fields = {name: getattr(event, name) for name in ("type", "seq", "source", "checkpoint")}
    fields |= {"user": event.user, "project": event.project, "ts": microseconds(event.ts)}
    fields["payload"] = msgspec.json.decode(event.payload)
    if event.extra:
        fields["extra"] = msgspec.json.decode(event.extra)
    return _sorted_encoder.encode(fields)


# Consent: the strictest that was ever stated for a session holds

CONSENT_UNKNOWN = "unknown"
_STRICTNESS = {CONSENT_UNKNOWN: 0, "train": 1, "no_train": 2}
_session_start_decoder = msgspec.json.Decoder(SessionStart)


def strictest_consent(consents: Iterable[str]) -> str:
    return max(consents, key=_STRICTNESS.__getitem__, default=CONSENT_UNKNOWN)


def consent_of(session_start_payload: bytes) -> str:
    """The consent that a session's start states; unknown where it states none."""
    return _session_start_decoder.decode(session_start_payload).consent or CONSENT_UNKNOWN
