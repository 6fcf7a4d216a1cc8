"""Who an event is: the digest that makes the same event, sent again, one event.

Identity is local to a session, so that whoever owns the session's partition can decide
alone whether an event is new: its `event_id`; without one its `source` and `source_key`;
without either its content.
"""

import msgspec
from xxhash import xxh3_64_intdigest, xxh3_128_digest

from penstock.events.envelope import Envelope, microseconds

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
