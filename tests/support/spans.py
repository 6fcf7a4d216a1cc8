"""Spans and log records as exporters make them, in both encodings of OTLP."""

import base64
import json
from collections.abc import Iterable, Mapping
from typing import Any

from google.protobuf.json_format import MessageToDict, ParseDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from penstock.ingest.otlp.conversion import Converted, TelemetryBatch
from penstock.ingest.otlp.protobuf import read_logs, read_metrics, read_spans

BEGAN_US = 1_795_219_200_000_000
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
Row = dict[str, Any]


def attribute(name: str, value: Any) -> Row:
    return {"key": name, "value": _value(value)}


def _value(value: Any) -> Row:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_value(item) for item in value]}}
    if isinstance(value, dict):
        return {"kvlistValue": {"values": [attribute(*pair) for pair in value.items()]}}
    return {"stringValue": value}


def attributes(values: Mapping[str, Any]) -> list[Row]:
    return [attribute(name, value) for name, value in values.items()]


def span(number: int, values: Mapping[str, Any], *, at_ms: int = 0, lasts_ms: int = 100,
         trace: str = TRACE, name: str = "chat m", events: Iterable[tuple[str, Any]] = (),
         parent: int | None = None, **more: Any) -> Row:  # fmt: skip
    began_ns = (BEGAN_US + at_ms * 1000) * 1000
    made = {
        "traceId": trace,
        "spanId": f"{number:016x}",
        "name": name,
        "startTimeUnixNano": str(began_ns),
        "endTimeUnixNano": str(began_ns + lasts_ms * 1_000_000),
        "attributes": attributes(values),
        "events": [
            {"name": name, "timeUnixNano": str(began_ns), "attributes": attributes(told)}
            for name, told in events
        ],
    }
    if parent is not None:
        made["parentSpanId"] = f"{parent:016x}"
    return made | more


def record(values: Mapping[str, Any], *, at_ms: int = 0, body: Any = None, **more: Any) -> Row:
    at_ns = (BEGAN_US + at_ms * 1000) * 1000
    made = {"timeUnixNano": str(at_ns), "attributes": attributes(values)}
    return made | ({"body": _value(body)} if body is not None else {}) | more


def traces(spans: Iterable[Row], resource: Mapping[str, Any] | None = None,
           scope: str = "scope") -> Row:  # fmt: skip
    held = {"attributes": attributes(resource or {"service.name": "my-agent"})}
    scoped = {"scope": {"name": scope}, "spans": list(spans)}
    return {"resourceSpans": [{"resource": held, "scopeSpans": [scoped]}]}


def logs(records: Iterable[Row], resource: Mapping[str, Any] | None = None,
         scope: str = "scope") -> Row:  # fmt: skip
    held = {"attributes": attributes(resource or {"service.name": "my-agent"})}
    scoped = {"scope": {"name": scope}, "logRecords": list(records)}
    return {"resourceLogs": [{"resource": held, "scopeLogs": [scoped]}]}


def metric(name: str, *points: tuple[Mapping[str, Any], Mapping[str, Any]], at_ms: int = 0,
           cumulative: bool = False) -> Row:  # fmt: skip
    """A counter, or a histogram whose points have a `sum`; each point has attributes and values."""
    at_ns = (BEGAN_US + at_ms * 1000) * 1000
    times: Row = {"timeUnixNano": str(at_ns), "startTimeUnixNano": str(BEGAN_US * 1000)}
    data = [times | {"attributes": attributes(told), **value} for told, value in points]
    kind = "histogram" if "sum" in points[0][1] else "sum"
    how = 2 if cumulative else 1
    return {"name": name, kind: {"dataPoints": data, "aggregationTemporality": how}}


def metrics(told: Iterable[Row], resource: Mapping[str, Any] | None = None) -> Row:
    held = {"attributes": attributes(resource or {"service.name": "my-agent"})}
    scoped = {"scope": {"name": "scope"}, "metrics": list(told)}
    return {"resourceMetrics": [{"resource": held, "scopeMetrics": [scoped]}]}


_REQUESTS: dict[str, Any] = {
    "resourceSpans": ExportTraceServiceRequest,
    "resourceLogs": ExportLogsServiceRequest,
    "resourceMetrics": ExportMetricsServiceRequest,
}


def as_protobuf(document: Row) -> bytes:
    kind = _REQUESTS[next(iter(document))]
    return bytes(ParseDict(_with_base64(document), kind()).SerializeToString())


def as_canonical_json(body: bytes) -> bytes:
    """The body of spans as a plain protobuf library writes JSON: with ids in base64."""
    request = ExportTraceServiceRequest.FromString(body)
    return json.dumps(MessageToDict(request)).encode()


def _with_base64(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_base64(item) for item in value]
    if not isinstance(value, dict):
        return value
    ids = ("traceId", "spanId", "parentSpanId")
    return {
        name: base64.b64encode(bytes.fromhex(item)).decode() if name in ids else _with_base64(item)
        for name, item in value.items()
    }


def converted(document: Row, batch: TelemetryBatch | None = None) -> list[Converted]:
    batch = batch or TelemetryBatch(BEGAN_US)
    body = as_protobuf(document)
    if "resourceSpans" in document:
        return list(batch.spans(read_spans(body)))
    if "resourceMetrics" in document:
        return list(batch.metrics(read_metrics(body)))
    return list(batch.logs(read_logs(body)))


def events_of(*documents: Row) -> list[Row]:
    """All events but the session's starts, in order of time; each document is a request."""
    events = [event for document in documents for each in converted(document)
              for event in each.events]  # fmt: skip
    kept = {event["event_id"]: event for event in reversed(events)}.values()
    return sorted(
        (event for event in kept if event["type"] != "session_start"),
        key=lambda event: (event["ts"], event["event_id"]),
    )


def story(*documents: Row) -> list[tuple[str, Any]]:
    """What happened, in short: the type of each event, and its text or output."""
    told = {"user_message": "text", "model_call": "text", "tool_result": "output",
            "error": "message", "x_span": "kind"}  # fmt: skip
    return [
        (event["type"], event["payload"].get(told.get(event["type"], "")))
        for event in events_of(*documents)
    ]
