"""The ceiling: decode, validate, sort and write Parquet zstd-3, in process, on one core.

No HTTP, no sync, no database, no identities, no search for repeated events, no summaries. To
validate is what the gateway must refuse: broken JSON and UTF-8, lone surrogates, numbers out of
range, keys that stand twice, nesting, unknown types and wrong ones. The figure with nothing but a
typed decode for validation is reported beside it.
"""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.measure import cpu_seconds
from penstock.events.event import CUSTOM_PREFIX, PAYLOADS, Envelope
from penstock.events.validation import validate_lines
from penstock.lake.rows import EVENT_ROWS
from penstock.lake.segments import ZSTD_LEVEL

_SEGMENT_ROWS = 20_000
_EVENT_BYTES_MAX = 8 * 1024 * 1024
_COLUMNS = ["session_id", "ts", "seq", "type", "event_id", "source", "source_key"]
_COLUMNS += ["checkpoint", "user", "project"]

_decoder = msgspec.json.Decoder(Envelope)
_payload_decoders = {name: msgspec.json.Decoder(kind) for name, kind in PAYLOADS.items()}


@dataclass(frozen=True)
class Ceiling:
    cpu_s: float
    plain_bytes: int


Validate = Callable[[bytes], list[Envelope]]


def fully(body: bytes) -> list[Envelope]:
    """Everything that the gateway must find."""
    judged = validate_lines(body.split(b"\n"), 1, _EVENT_BYTES_MAX)
    assert not judged.rejections
    return _decoder.decode_lines(b"\n".join(judged.lines))


def by_type(body: bytes) -> list[Envelope]:
    """A typed decode and no more: repeated keys and broken text in unknown fields pass."""
    events = _decoder.decode_lines(body)
    for event in events:
        if not event.type.startswith(CUSTOM_PREFIX):
            _payload_decoders[event.type].decode(event.payload)
    return events


def measure_ceiling(bodies: Sequence[bytes], validate: Validate = fully) -> Ceiling:
    """CPU seconds for all bodies, and the size of what they are as plain Parquet."""
    written: list[int] = []

    def work() -> None:
        events: list[Envelope] = []
        for body in bodies:
            events += validate(body)
            if len(events) >= _SEGMENT_ROWS:
                written.append(_write(events))
                events = []
        if events:
            written.append(_write(events))

    return Ceiling(cpu_seconds(work), sum(written))


def _write(events: list[Envelope]) -> int:
    columns = {
        name: pa.array([getattr(event, name) for event in events], EVENT_ROWS.field(name).type)
        for name in _COLUMNS
    }
    payloads = pa.array([bytes(event.payload) for event in events], pa.binary())
    columns["payload"] = payloads.cast(pa.string())
    rows = pa.table(columns)
    ts, seq = rows["ts"].cast(pa.int64()), rows["seq"].fill_null(-1)
    sessions = rows["session_id"].combine_chunks().dictionary_encode().indices
    order = np.lexsort((seq.to_numpy(), ts.to_numpy(), sessions.to_numpy()))
    out = io.BytesIO()
    pq.write_table(
        rows.take(pa.array(order)),
        pa.PythonFile(out, mode="w"),
        compression="zstd",
        compression_level=ZSTD_LEVEL,
    )
    return out.tell()
