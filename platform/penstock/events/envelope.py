"""The envelope: what every event has, whatever its type."""

from datetime import UTC, datetime
from typing import Annotated

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

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
