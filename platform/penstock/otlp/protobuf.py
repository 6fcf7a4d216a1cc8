"""OTLP's protobuf encoding, read a span at a time: what is not looked at yet takes no memory.

Fields are those of opentelemetry-proto 1.x; unknown ones are passed over. Raises ValueError for a
body whose frame is broken; a single span or record that is broken becomes Malformed."""

import base64
import struct
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from penstock.otlp.records import (
    ATTRIBUTES_MAX,
    DEPTH_MAX,
    RECORD_BYTES_MAX,
    Attributes,
    LogRecord,
    Malformed,
    Origin,
    Span,
    SpanEvent,
)

Record = TypeVar("Record")
#: A field's number, and its value: a number, or where its bytes begin and end.
_Field = tuple[int, int, int]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_double = struct.Struct("<d").unpack_from
_SIGN = 1 << 63
_EVENTS_MAX = 16_384


def read_spans(body: bytes) -> Iterator[tuple[Origin, Span | Malformed]]:
    return _records(body, _span)


def read_logs(body: bytes) -> Iterator[tuple[Origin, LogRecord | Malformed]]:
    return _records(body, _log_record)


def _records(
    body: bytes, read: Callable[[bytes, int, int], Record]
) -> Iterator[tuple[Origin, Record | Malformed]]:
    """Requests for traces and for logs differ in their innermost messages alone. A resource and a
    scope may stand behind their records, so that each is looked for first."""
    for number, begin, end in _fields(body, 0, len(body)):
        if number != 1 or end < 0:
            continue
        resource: Attributes = {}
        for inner, at, stop in _fields(body, begin, end):
            if inner == 1 and stop >= 0:
                resource = _attributes_of(body, at, stop)
        for inner, at, stop in _fields(body, begin, end):
            if inner == 2 and stop >= 0:
                yield from _of_scope(body, at, stop, resource, read)


def _of_scope(
    body: bytes,
    begin: int,
    end: int,
    resource: Attributes,
    read: Callable[[bytes, int, int], Record],
) -> Iterator[tuple[Origin, Record | Malformed]]:
    origin = Origin(resource)
    for number, at, stop in _fields(body, begin, end):
        if number == 1 and stop >= 0:
            for inner, inner_at, inner_stop in _fields(body, at, stop):
                if inner == 1 and inner_stop >= 0:
                    origin.scope = _text(body, inner_at, inner_stop)
    for number, at, stop in _fields(body, begin, end):
        if number == 2 and stop >= 0:
            try:
                if stop - at > RECORD_BYTES_MAX:
                    raise ValueError(f"it is over the limit of {RECORD_BYTES_MAX} bytes")
                record: Record | Malformed = read(body, at, stop)
            except ValueError as error:
                record = Malformed(str(error))
            yield origin, record


#: Fields of a span and of a record that hold an id.
_SPAN_IDS = {1: "trace_id", 2: "span_id", 4: "parent_id"}
_RECORD_IDS = {9: "trace_id", 10: "span_id"}


def _span(body: bytes, begin: int, end: int) -> Span:
    span = Span()
    for number, at, stop in _fields(body, begin, end):
        if stop < 0:
            if number == 7:
                span.start_ns = at
            elif number == 8:
                span.end_ns = at
        elif number == 9:
            _add_attribute(body, at, stop, span.attributes)
        elif number in _SPAN_IDS:
            setattr(span, _SPAN_IDS[number], body[at:stop].hex())
        elif number == 5:
            span.name = _text(body, at, stop)
        elif number == 11:
            if len(span.events) >= _EVENTS_MAX:
                raise ValueError(f"the span has more than {_EVENTS_MAX} events")
            span.events.append(_span_event(body, at, stop))
        elif number == 15:
            _read_status(body, at, stop, span)
    return span


def _read_status(body: bytes, begin: int, end: int, span: Span) -> None:
    for number, at, stop in _fields(body, begin, end):
        if number == 2 and stop >= 0:
            span.status_message = _text(body, at, stop)
        elif number == 3 and stop < 0:
            span.status_code = at


def _span_event(body: bytes, begin: int, end: int) -> SpanEvent:
    event = SpanEvent()
    for number, at, stop in _fields(body, begin, end):
        if number == 2 and stop >= 0:
            event.name = _text(body, at, stop)
        elif number == 3 and stop >= 0:
            _add_attribute(body, at, stop, event.attributes)
    return event


def _log_record(body: bytes, begin: int, end: int) -> LogRecord:
    record = LogRecord()
    for number, at, stop in _fields(body, begin, end):
        if stop < 0:
            if number == 1:
                record.time_ns = at
            elif number == 11:
                record.observed_ns = at
        elif number == 6:
            _add_attribute(body, at, stop, record.attributes)
        elif number == 5:
            record.body = _value(body, at, stop, DEPTH_MAX)
        elif number in _RECORD_IDS:
            setattr(record, _RECORD_IDS[number], body[at:stop].hex())
        elif number == 12:
            record.event_name = _text(body, at, stop)
    return record


def _attributes_of(body: bytes, begin: int, end: int, depth: int = DEPTH_MAX) -> Attributes:
    """Of a resource, or of a map: both have them as their first field."""
    attributes: Attributes = {}
    for number, at, stop in _fields(body, begin, end):
        if number == 1 and stop >= 0:
            _add_attribute(body, at, stop, attributes, depth)
    return attributes


def _add_attribute(
    body: bytes, begin: int, end: int, into: Attributes, depth: int = DEPTH_MAX
) -> None:
    name, value = "", None
    for number, at, stop in _fields(body, begin, end):
        if number == 1 and stop >= 0:
            name = _text(body, at, stop)
        elif number == 2 and stop >= 0:
            value = _value(body, at, stop, depth)
    if len(into) >= ATTRIBUTES_MAX:
        raise ValueError(f"more than {ATTRIBUTES_MAX} attributes")
    into[name] = value


def _value(body: bytes, begin: int, end: int, depth: int) -> Any:
    if not depth:
        raise ValueError(f"a value nests deeper than {DEPTH_MAX} levels")
    value: Any = None
    for number, at, stop in _fields(body, begin, end):
        if number == 1 and stop >= 0:
            value = _text(body, at, stop)
        elif stop < 0:
            value = _number_of(number, at, value)
        elif number == 5:
            value = [
                _value(body, inner_at, inner_stop, depth - 1)
                for inner, inner_at, inner_stop in _fields(body, at, stop)
                if inner == 1 and inner_stop >= 0
            ]
        elif number == 6:
            value = _attributes_of(body, at, stop, depth - 1)
        elif number == 7:
            value = base64.b64encode(body[at:stop]).decode()
    return value


def _number_of(field: int, bits: int, default: Any) -> Any:
    """What these bits are in this field of a value."""
    if field == 2:
        return bool(bits)
    if field == 3:
        return bits - (1 << 64) if bits & _SIGN else bits
    return _double(bits.to_bytes(8, "little"))[0] if field == 4 else default


def _text(body: bytes, begin: int, end: int) -> str:
    """Exporters cut texts in the middle of a character: what is left of one is replaced."""
    return body[begin:end].decode("utf-8", "replace")


def _fields(body: bytes, at: int, end: int) -> Iterator[_Field]:
    """Of the message between these places. A number's third part is -1."""
    while at < end:
        key = body[at]
        at += 1
        if key > 127:
            key, at = _varint(body, at - 1, end)
        kind = key & 7
        if kind == _BYTES:
            if at >= end:
                raise ValueError("it ends within a field")
            size = body[at]
            at += 1
            if size > 127:
                size, at = _varint(body, at - 1, end)
            stop = at + size
            if stop > end:
                raise ValueError("a field is longer than what holds it")
            yield key >> 3, at, stop
            at = stop
        elif kind == _VARINT:
            value, at = _varint(body, at, end)
            yield key >> 3, value, -1
        elif kind in (_FIXED64, _FIXED32):
            stop = at + (8 if kind == _FIXED64 else 4)
            if stop > end:
                raise ValueError("it ends within a number")
            yield key >> 3, int.from_bytes(body[at:stop], "little"), -1
            at = stop
        else:
            raise ValueError(f"there is no wire type {kind} in OTLP")


def _varint(body: bytes, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end:
        byte = body[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7
        if shift > 63:
            raise ValueError("a number has more than ten bytes")
    raise ValueError("it ends within a number")


# Answers


def encode_partial_success(rejected: int, why: str) -> bytes:
    """Of ExportTraceServiceResponse and ExportLogsServiceResponse alike; empty when all is well."""
    if not rejected:
        return b""
    return _bytes_field(1, b"\x08" + _encoded(rejected) + _bytes_field(2, why.encode()))


def encode_status(code: int, message: str) -> bytes:
    """google.rpc.Status, with which OTLP refuses a request."""
    return b"\x08" + _encoded(code) + _bytes_field(2, message.encode())


def _bytes_field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | _BYTES]) + _encoded(len(content)) + content


def _encoded(value: int) -> bytes:
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    parts.append(value)
    return bytes(parts)
