"""The JSON encoding of OTLP. 64-bit numbers are texts or numbers; ids are hexadecimal, or base64
from plain protobuf libraries. Raises ValueError for an invalid body; a broken record becomes
Malformed."""

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from penstock.ingest.otlp.records import (
    ATTRIBUTES_MAX,
    CUMULATIVE,
    DEPTH_MAX,
    Attributes,
    DataPoint,
    LogRecord,
    Malformed,
    Metric,
    Origin,
    Span,
    SpanEvent,
)

Record = TypeVar("Record")
_Object = Mapping[str, Any]

#: Memory of each decoded value, however short its text: `{}` has two bytes.
VALUE_BYTES = 100
_STATUS_CODES = {"STATUS_CODE_UNSET": 0, "STATUS_CODE_OK": 1, "STATUS_CODE_ERROR": 2}


def memory_bytes(body: bytes) -> int:
    """An upper bound of the memory of a decoded body, besides its texts: every value follows one of
    these characters."""
    return VALUE_BYTES * (1 + body.count(b",") + body.count(b"[") + body.count(b"{"))


def read_spans(body: bytes) -> Iterator[tuple[Origin, Span | Malformed]]:
    return spans_of(_decoded(body, "resourceSpans"))


def read_logs(body: bytes) -> Iterator[tuple[Origin, LogRecord | Malformed]]:
    return logs_of(_decoded(body, "resourceLogs"))


def read_metrics(body: bytes) -> Iterator[tuple[Origin, Metric | Malformed]]:
    return metrics_of(_decoded(body, "resourceMetrics"))


def spans_of(document: _Object) -> Iterator[tuple[Origin, Span | Malformed]]:
    return _records(document, ("resourceSpans", "scopeSpans", "spans"), _span)


def logs_of(document: _Object) -> Iterator[tuple[Origin, LogRecord | Malformed]]:
    return _records(document, ("resourceLogs", "scopeLogs", "logRecords"), _log_record)


def metrics_of(document: _Object) -> Iterator[tuple[Origin, Metric | Malformed]]:
    return _records(document, ("resourceMetrics", "scopeMetrics", "metrics"), _metric)


def _decoded(body: bytes, name: str) -> _Object:
    try:
        document = msgspec.json.decode(body)
    except RecursionError:
        raise ValueError("it nests too deep") from None
    if not isinstance(document, dict):
        raise ValueError("it is no JSON object")
    of_resources = document.get(name)
    if of_resources is not None and not isinstance(of_resources, list):
        raise ValueError(f"its {name} is no list")
    return document


def _records(
    document: _Object, names: tuple[str, str, str], read: Callable[[_Object], Record]
) -> Iterator[tuple[Origin, Record | Malformed]]:
    of_resources, of_scopes, of_records = names
    for resource in _objects(document, of_resources):
        attributes = _attributes(_objects(_object(resource, "resource"), "attributes"))
        for scoped in _objects(resource, of_scopes):
            scope = _object(scoped, "scope")
            origin = Origin(attributes, _text(scope, "name"))
            for record in _objects(scoped, of_records):
                try:
                    yield origin, read(record)
                except (ValueError, TypeError, OverflowError, RecursionError) as error:
                    yield origin, Malformed(str(error))


def _span(span: _Object) -> Span:
    status = _object(span, "status")
    code = status.get("code", 0)
    return Span(
        trace_id=_id(span, "traceId", 16),
        span_id=_id(span, "spanId", 8),
        parent_id=_id(span, "parentSpanId", 8),
        name=_text(span, "name"),
        start_ns=_number(span.get("startTimeUnixNano")),
        end_ns=_number(span.get("endTimeUnixNano")),
        attributes=_attributes(_objects(span, "attributes")),
        events=[
            SpanEvent(_text(event, "name"), _attributes(_objects(event, "attributes")))
            for event in _objects(span, "events")
        ],
        status_code=_STATUS_CODES.get(code, 0) if isinstance(code, str) else _number(code),
        status_message=_text(status, "message"),
    )


def _log_record(record: _Object) -> LogRecord:
    body = record.get("body")
    return LogRecord(
        time_ns=_number(record.get("timeUnixNano")),
        observed_ns=_number(record.get("observedTimeUnixNano")),
        body=_value(body, DEPTH_MAX) if isinstance(body, dict) else body,
        attributes=_attributes(_objects(record, "attributes")),
        trace_id=_id(record, "traceId", 16),
        span_id=_id(record, "spanId", 8),
        event_name=_text(record, "eventName"),
    )


_METRIC_KINDS = ("sum", "histogram", "gauge", "exponentialHistogram", "summary")
_CUMULATIVE = (CUMULATIVE, "AGGREGATION_TEMPORALITY_CUMULATIVE")


def _metric(metric: _Object) -> Metric:
    data = next(filter(None, (_object(metric, name) for name in _METRIC_KINDS)), {})
    points = [_data_point(point) for point in _objects(data, "dataPoints")]
    is_cumulative = data.get("aggregationTemporality") in _CUMULATIVE
    return Metric(_text(metric, "name"), points, is_cumulative)


def _data_point(point: _Object) -> DataPoint:
    value = next((point[name] for name in ("asInt", "asDouble", "sum") if name in point), 0)
    return DataPoint(
        float(value),
        _number(point.get("count", 1)),
        _number(point.get("timeUnixNano")),
        _number(point.get("startTimeUnixNano")),
        _attributes(_objects(point, "attributes")),
    )


def _attributes(pairs: list[_Object], depth: int = DEPTH_MAX) -> Attributes:
    if len(pairs) > ATTRIBUTES_MAX:
        raise ValueError(f"more than {ATTRIBUTES_MAX} attributes")
    return {_text(pair, "key"): _value(_object(pair, "value"), depth) for pair in pairs}


def _value(value: _Object, depth: int) -> Any:
    if not depth:
        raise ValueError(f"a value nests deeper than {DEPTH_MAX} levels")
    for name, content in value.items():
        match name:
            case "stringValue" | "boolValue":
                return content
            case "intValue":
                return _number(content)
            case "doubleValue":
                return float(content)
            case "bytesValue":
                return content
            case "arrayValue":
                return [
                    _value(item, depth - 1) if isinstance(item, dict) else None
                    for item in _list(content, "values")
                ]
            case "kvlistValue":
                return _attributes(_objects(content, "values"), depth - 1)
    return None


def _text(values: _Object, name: str) -> str:
    text = values.get(name)
    return text if isinstance(text, str) else ""


def _object(values: _Object, name: str) -> _Object:
    inner = values.get(name)
    return inner if isinstance(inner, dict) else {}


def _list(values: Any, name: str) -> list[Any]:
    inner = values.get(name) if isinstance(values, dict) else None
    return inner if isinstance(inner, list) else []


def _objects(values: Any, name: str) -> list[_Object]:
    return [item for item in _list(values, name) if isinstance(item, dict)]


def _number(value: Any) -> int:
    return int(value) if value is not None else 0


def _id(values: _Object, name: str, size: int) -> str:
    text = _text(values, name)
    if not text or len(text) == 2 * size:
        return text.lower()
    try:
        return base64.b64decode(text, validate=True).hex()
    except binascii.Error:
        raise ValueError(f"{name} is no id: {text[:64]!r}") from None
