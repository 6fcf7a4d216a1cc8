"""The protobuf encoding of OTLP, decoded one span at a time by Google's library to save memory.

Raises ValueError for a body with a broken frame; a single broken span or record becomes Malformed.
"""

import base64
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, TypeVar

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.logs.v1 import logs_pb2
from opentelemetry.proto.metrics.v1 import metrics_pb2
from opentelemetry.proto.resource.v1 import resource_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

from penstock.ingest.otlp.records import (
    ATTRIBUTES_MAX,
    CUMULATIVE,
    DEPTH_MAX,
    RECORD_BYTES_MAX,
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

_EVENTS_MAX = 16_384
_POINTS_MAX = 65_536
_FILES = (common_pb2, resource_pb2, trace_pb2, logs_pb2, metrics_pb2)
_LATER = {"resource_spans", "scope_spans", "spans", "resource_logs", "scope_logs", "log_records",
          "resource_metrics", "scope_metrics", "metrics"}  # fmt: skip


@cache
def _kind(name: str) -> Any:
    """Build a message type of OTLP. Lazily read parts are bytes, and so are texts: exporters cut
    them within characters."""
    return message_factory.GetMessageClass(
        _pool().FindMessageTypeByName(f"opentelemetry.proto.{name}")
    )


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    for module in _FILES:
        file = descriptor_pb2.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
        for message in file.message_type:
            for held in (message, *message.nested_type):
                for field in held.field:
                    if field.type == field.TYPE_STRING or field.name in _LATER:
                        field.type = field.TYPE_BYTES
                        field.ClearField("type_name")
        pool.Add(file)
    return pool


def read_spans(body: bytes) -> Iterator[tuple[Origin, Span | Malformed]]:
    return _records(body, "trace", ("TracesData", "ResourceSpans", "ScopeSpans", "Span"), _span)


def read_logs(body: bytes) -> Iterator[tuple[Origin, LogRecord | Malformed]]:
    names = "LogsData", "ResourceLogs", "ScopeLogs", "LogRecord"
    return _records(body, "logs", names, _log_record)


def read_metrics(body: bytes) -> Iterator[tuple[Origin, Metric | Malformed]]:
    names = "MetricsData", "ResourceMetrics", "ScopeMetrics", "Metric"
    return _records(body, "metrics", names, _metric)


def _records(
    body: bytes, signal: str, names: Sequence[str], read: Callable[[Any], Record]
) -> Iterator[tuple[Origin, Record | Malformed]]:
    request, of_resource, of_scope, of_record = (_kind(f"{signal}.v1.{name}") for name in names)
    for resource_bytes in _held(_decoded(request, body)):
        resource = _decoded(of_resource, resource_bytes)
        attributes = _attributes(resource.resource.attributes)
        for scope_bytes in _held(resource):
            scope = _decoded(of_scope, scope_bytes)
            origin = Origin(attributes, _text(scope.scope.name))
            for content in _held(scope):
                try:
                    if len(content) > RECORD_BYTES_MAX:
                        raise ValueError(f"it is over the limit of {RECORD_BYTES_MAX} bytes")
                    yield origin, read(_decoded(of_record, content))
                except ValueError as error:
                    yield origin, Malformed(str(error))


def _held(message: Any) -> Any:
    return next(getattr(message, name) for name in _LATER if hasattr(message, name))


def _decoded(kind: Any, content: bytes) -> Any:
    try:
        return kind.FromString(content)
    except DecodeError as error:
        raise ValueError(str(error)) from None


def _span(span: Any) -> Span:
    if len(span.events) > _EVENTS_MAX:
        raise ValueError(f"the span has more than {_EVENTS_MAX} events")
    return Span(
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        _text(span.name),
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        _attributes(span.attributes),
        [SpanEvent(_text(event.name), _attributes(event.attributes)) for event in span.events],
        span.status.code,
        _text(span.status.message),
    )


def _log_record(record: Any) -> LogRecord:
    return LogRecord(
        record.time_unix_nano,
        record.observed_time_unix_nano,
        _value(record.body, DEPTH_MAX),
        _attributes(record.attributes),
        record.trace_id.hex(),
        record.span_id.hex(),
        _text(record.event_name),
    )


def _metric(metric: Any) -> Metric:
    kind = metric.WhichOneof("data")
    data = getattr(metric, kind) if kind is not None else metric
    told = getattr(data, "data_points", ())
    if len(told) > _POINTS_MAX:
        raise ValueError(f"the metric has more than {_POINTS_MAX} data points")
    how = getattr(data, "aggregation_temporality", 0)
    return Metric(_text(metric.name), list(map(_data_point, told)), how == CUMULATIVE)


def _data_point(point: Any) -> DataPoint:
    is_number = hasattr(point, "as_double")
    name = point.WhichOneof("value") or "as_int" if is_number else "sum"
    return DataPoint(
        float(getattr(point, name)),
        1 if is_number else point.count,
        point.time_unix_nano,
        point.start_time_unix_nano,
        _attributes(point.attributes),
    )


def _attributes(pairs: Any, depth: int = DEPTH_MAX) -> Attributes:
    if len(pairs) > ATTRIBUTES_MAX:
        raise ValueError(f"more than {ATTRIBUTES_MAX} attributes")
    return {_text(pair.key): _value(pair.value, depth) for pair in pairs}


def _value(value: Any, depth: int) -> Any:
    if not depth:
        raise ValueError(f"a value nests deeper than {DEPTH_MAX} levels")
    match value.WhichOneof("value"):
        case None:
            return None
        case "string_value":
            return _text(value.string_value)
        case "array_value":
            return [_value(item, depth - 1) for item in value.array_value.values]
        case "kvlist_value":
            return _attributes(value.kvlist_value.values, depth - 1)
        case "bytes_value":
            return base64.b64encode(value.bytes_value).decode()
        case number:
            return getattr(value, number)


def _text(content: bytes) -> str:
    return content.decode("utf-8", "replace")


def encode_partial_success(rejected: int, why: str) -> bytes:
    """The answer for any signal; empty if there is nothing to say."""
    told = ExportTracePartialSuccess(rejected_spans=rejected, error_message=why)
    answer = ExportTraceServiceResponse(partial_success=told) if rejected or why else None
    return bytes(answer.SerializeToString()) if answer is not None else b""


def encode_status(code: int, message: str) -> bytes:
    """Encode google.rpc.Status, by which OTLP refuses requests. It has the same fields."""
    told = ExportTracePartialSuccess(rejected_spans=code, error_message=message)
    return bytes(told.SerializeToString())
