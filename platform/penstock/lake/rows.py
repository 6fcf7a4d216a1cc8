"""Events as rows: the columns of a segment, and decoded events as tables of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

import msgspec
import numpy as np
import pyarrow as pa

from penstock.core.settings import MIB
from penstock.events.event import FIELDS, KEY_BYTES, SEQ_MAX, Envelope, event_key, session_key
from penstock.events.frames import Frame, RejectedLine

TIMESTAMP = pa.timestamp("us", tz="UTC")

#: The columns of a segment, sorted by tenant, session_id, ts, seq.
EVENT_ROWS = pa.schema(
    [
        pa.field("tenant", pa.string(), nullable=False),
        pa.field("session_id", pa.string(), nullable=False),
        pa.field("ts", TIMESTAMP, nullable=False),
        pa.field("seq", pa.int64()),
        pa.field("type", pa.string(), nullable=False),
        pa.field("event_id", pa.string()),
        pa.field("source", pa.string()),
        pa.field("source_key", pa.string()),
        pa.field("checkpoint", pa.string()),
        pa.field("user", pa.string()),
        pa.field("project", pa.string()),
        pa.field("consent", pa.string(), nullable=False),
        pa.field("payload", pa.string(), nullable=False),
        pa.field("extra", pa.string()),
        pa.field("schema_version", pa.int16(), nullable=False),
        pa.field("received_at", TIMESTAMP, nullable=False),
        pa.field("key", pa.binary(KEY_BYTES), nullable=False),
    ]
)
SORTED_BY = ("tenant", "session_id", "ts", "seq")
SORT_KEYS = [(name, "ascending") for name in SORTED_BY]

_AS_SENT = {
    name: attrgetter(name) for name in EVENT_ROWS.names if name in FIELDS and name != "payload"
}
_envelope_decoder = msgspec.json.Decoder(Envelope)


class RowGroupLimits(msgspec.Struct, frozen=True):
    rows_max: int
    bytes_max: int  # of payloads, before compression


#: Few rows for a query of few sessions, enough for a scan of all.
ROW_GROUPS = RowGroupLimits(10_000, 16 * MIB)


@dataclass
class DecodedEvents:
    """Events in the order of the log. Each list has one element per event."""

    events: list[Envelope] = field(default_factory=list)
    tenants: list[str] = field(default_factory=list)
    received_us: list[int] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    sessions: list[str] = field(default_factory=list)  # `session_key`s
    keys: list[bytes] = field(default_factory=list)

    def add(self, frame: Frame) -> list[RejectedLine]:
        """Add the events of a frame. Returns lines that cannot be read."""
        events, unreadable = _decode_lines(frame.body)
        header = frame.header
        sessions = [session_key(header.tenant, event.session_id) for event in events]
        self.events += events
        self.tenants += [header.tenant] * len(events)
        self.received_us += [header.received_us] * len(events)
        self.versions += [header.schema_version] * len(events)
        self.sessions += sessions
        self.keys += map(event_key, sessions, events)
        return unreadable

    def chosen(self, positions: Sequence[int]) -> "DecodedEvents":
        columns = {name: getattr(self, name) for name in self.__dataclass_fields__}
        chosen = {name: [values[at] for at in positions] for name, values in columns.items()}
        return DecodedEvents(**chosen)

    def to_tables(
        self, chosen: Sequence[int], consents: Mapping[str, str], limits: RowGroupLimits
    ) -> Iterator[pa.Table]:
        """Make rows of the chosen events in the order of a segment, a row group at a time.
        `consents` is by session."""
        all_are = len(chosen) == len(self.events)
        events = self.events if all_are else [self.events[i] for i in chosen]
        sessions = [self.sessions[i] for i in chosen]
        consents_of = [consents[session] for session in sessions]
        columns = self._columns(chosen, events, consents_of)
        # Session keys are few: their ranks sort as numbers, much faster than the texts.
        rank = {session: position for position, session in enumerate(sorted(set(sessions)))}
        ranks = np.fromiter((rank[session] for session in sessions), np.int64, len(sessions))
        ts = columns["ts"].cast(pa.int64())
        seq = columns["seq"].fill_null(SEQ_MAX)
        order = np.lexsort((seq.to_numpy(), ts.to_numpy(), ranks))
        sizes = np.fromiter((memoryview(event.payload).nbytes for event in events), np.int64)
        for start, end in cut(sizes[order].tolist(), limits):
            places = order[start:end]
            rows = {name: column.take(pa.array(places)) for name, column in columns.items()}
            payloads = [events[place].payload for place in places.tolist()]
            rows["payload"] = _texts(payloads)
            yield pa.table([rows[name] for name in EVENT_ROWS.names], schema=EVENT_ROWS)

    def _columns(
        self, chosen: Sequence[int], events: Sequence[Envelope], consents: Sequence[str]
    ) -> dict[str, pa.Array]:
        """Make the columns but payloads, in the order of the log, as the events lie in memory."""
        columns = {
            "tenant": pa.array([self.tenants[i] for i in chosen], pa.string()),
            "consent": pa.array(consents, pa.string()),
            "extra": _extras([event.extra for event in events]),
            "schema_version": pa.array([self.versions[i] for i in chosen], pa.int16()),
            "received_at": pa.array([self.received_us[i] for i in chosen], TIMESTAMP),
            "key": pa.array([self.keys[i] for i in chosen], pa.binary(KEY_BYTES)),
        }
        for name, values_of in _AS_SENT.items():
            columns[name] = pa.array(list(map(values_of, events)), EVENT_ROWS.field(name).type)
        return columns


def payload_sizes(rows: pa.Table) -> list[int]:
    import pyarrow.compute as pc

    sizes: list[int] = pc.binary_length(rows["payload"]).to_pylist()
    return sizes


def cut(sizes: Sequence[int], limits: RowGroupLimits) -> Iterator[tuple[int, int]]:
    """Find ranges of rows within both limits. A single row may be over the bytes."""
    start = size = 0
    for position, more in enumerate(sizes):
        full = position - start >= limits.rows_max or size + more > limits.bytes_max
        if full and position > start:
            yield start, position
            start, size = position, 0
        size += more
    if start < len(sizes):
        yield start, len(sizes)


def _texts(values: Sequence[msgspec.Raw]) -> pa.Array:
    """Make texts. Raises pa.ArrowInvalid for invalid UTF-8."""
    offsets = np.cumsum([0, *(memoryview(value).nbytes for value in values)], dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers).cast(pa.string())


def _extras(values: Sequence[msgspec.Raw | msgspec.UnsetType]) -> pa.Array:
    if values.count(msgspec.UNSET) == len(values):
        return pa.nulls(len(values), pa.string())
    texts = [bytes(value) if isinstance(value, msgspec.Raw) else None for value in values]
    return pa.array(texts, pa.binary()).cast(pa.string())


def _decode_lines(body: bytes) -> tuple[list[Envelope], list[RejectedLine]]:
    try:
        return _envelope_decoder.decode_lines(body), []
    except (ValueError, RecursionError):  # of some line: find out of which
        pass
    events: list[Envelope] = []
    unreadable: list[RejectedLine] = []
    for number, line in enumerate(body.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            events.append(_envelope_decoder.decode(line))
        except (ValueError, RecursionError) as error:
            reason = f"unreadable in the event log: {error}"
            unreadable.append(RejectedLine(line=number, reason=reason, raw=line))
    return events, unreadable
