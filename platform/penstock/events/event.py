"""Tenants: whose events they are. Known by name alone."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from xxhash import xxh3_64_intdigest, xxh3_128_digest

from penstock.events.payloads import SessionStart

TENANT_DEFAULT = "default"
TENANT_CHARS_MAX = 128


def is_tenant(name: str) -> bool:
    return 0 < len(name) <= TENANT_CHARS_MAX and name.isprintable()


#: Written with every row; a change of meaning of a field takes the next number.
SCHEMA_VERSION = 1

ID_CHARS_MAX = 512
SEQ_MAX = 2**63 - 1
#: An agent's event before 2000 or after 2099 is a unit mistaken or a clock unset.
TS_MIN = datetime(2000, 1, 1, tzinfo=UTC)
TS_MAX = datetime(2100, 1, 1, tzinfo=UTC)
TS_MIN_US = int(TS_MIN.timestamp()) * 1_000_000
TS_MAX_US = int(TS_MAX.timestamp()) * 1_000_000

Id = Annotated[str, Meta(min_length=1, max_length=ID_CHARS_MAX)]
Seq = Annotated[int, Meta(ge=0, le=SEQ_MAX)]
#: RFC 3339 with a zone, or integer microseconds since 1970.
Ts = Annotated[datetime, Meta(tz=True)] | int


class Common(Struct, kw_only=True, gc=False):
    """What the envelope holds beside the type and the payload."""

    session_id: Id
    ts: Ts
    event_id: Id | None = None
    seq: Seq | None = None
    source: Id | None = None
    source_key: Id | None = None
    checkpoint: Id | None = None
    user: Id | None = None
    project: Id | None = None


class Envelope(Common, kw_only=True, gc=False):
    """An event of any type with its payload as the bytes that were sent.

    `extra` holds the unknown top-level fields as a JSON object. On the wire it is
    written by the gateway alone: a producer's own field of that name is an unknown
    field like any other.
    """

    type: Id
    payload: Raw
    extra: Raw | UnsetType = UNSET


FIELDS = frozenset(Envelope.__struct_fields__) - {"extra"}


def microseconds(ts: datetime | int) -> int:
    """Microseconds since 1970, exactly."""
    if isinstance(ts, int):
        return ts
    since = ts - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


KEY_BYTES = 16

# NUL cannot stand in an id (the reader refuses it), so joined parts cannot run together.
_SEPARATOR = "\0"
_sorted_encoder = msgspec.json.Encoder(order="deterministic")


def session_key(tenant: str, session_id: str) -> str:
    """One string for a session of a tenant, unambiguous."""
    return f"{tenant}{_SEPARATOR}{session_id}"


def session_hash(session: str) -> int:
    """64 bits of a `session_key`: for the filters of segments, and for buckets."""
    return xxh3_64_intdigest(session.encode())


def event_key(session: str, event: Envelope) -> bytes:
    """The identity of an event of the session named by `session_key`."""
    if event.event_id is not None:
        return xxh3_128_digest(f"{session}\0e\0{event.event_id}".encode())
    if event.source_key is not None:
        named = f"{session}\0s\0{event.source or ''}\0{event.source_key}"
        return xxh3_128_digest(named.encode())
    return xxh3_128_digest(session.encode() + b"\0c\0" + _content(event))


def _content(event: Envelope) -> bytes:
    """The event as JSON that does not depend on spacing, key order or escapes."""
    facts = {name: getattr(event, name) for name in ("type", "seq", "source", "checkpoint")}
    facts |= {"user": event.user, "project": event.project, "ts": microseconds(event.ts)}
    facts["payload"] = msgspec.json.decode(event.payload)
    if event.extra:
        facts["extra"] = msgspec.json.decode(event.extra)
    return _sorted_encoder.encode(facts)


CONSENT_UNKNOWN = "unknown"
_STRENGTH = {CONSENT_UNKNOWN: 0, "train": 1, "no_train": 2}

_decoder = msgspec.json.Decoder(SessionStart)


def strongest(consents: Iterable[str]) -> str:
    """`no_train`, once said, holds; `train` has to be said; else nobody asked."""
    return max(consents, key=_STRENGTH.__getitem__, default=CONSENT_UNKNOWN)


def consent_of(session_start_payload: bytes) -> str:
    """What it says; a start that says nothing is of a session that nobody asked."""
    return _decoder.decode(session_start_payload).consent or CONSENT_UNKNOWN
