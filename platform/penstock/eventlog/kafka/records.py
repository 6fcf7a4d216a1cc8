"""What a record of the topic is as a value of the log, and back.

The gateway's records are values as they are, and marked so. Any other record is what a producer
wrote past the gateway: events as JSON, one or many, with headers that say whose they are.
"""

from collections.abc import Sequence

from penstock.events.arrivals import encode_unjudged
from penstock.events.envelope import SCHEMA_VERSION
from penstock.events.tenants import TENANT_DEFAULT

Headers = Sequence[tuple[str, bytes]]

#: On records of the gateway.
MARK: tuple[str, bytes] = ("penstock-value", b"1")
#: On records of other producers; without them version 1 and the default tenant are meant.
SCHEMA_HEADER = "penstock-schema-version"
TENANT_HEADER = "penstock-tenant"

#: A version that is no number: surely none that is known here.
_NO_VERSION = 2**31 - 1


def value_of(value: bytes | None, headers: Headers, timestamp_ms: int) -> bytes:
    """The value of the log that a record is. Its own time is the time of arrival: the same each
    time that the record is read."""
    if MARK in headers:
        return value or b""
    named = dict(headers)
    tenant = named.get(TENANT_HEADER, TENANT_DEFAULT.encode()).decode(errors="replace")
    version = _version(named.get(SCHEMA_HEADER, b"%d" % SCHEMA_VERSION))
    return encode_unjudged(value or b"", tenant, max(0, timestamp_ms) * 1000, version)


def _version(header: bytes) -> int:
    """Refused later, with its reason, when it is not known."""
    text = header.decode(errors="replace").strip()
    return int(text) if text.isdecimal() and len(text) < 10 else _NO_VERSION
