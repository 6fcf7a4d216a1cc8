"""POST /v1/traces and /v1/logs of a real server, as exporters and as strangers use them."""

import gzip
import json
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from tests.support.spans import as_protobuf, metric, metrics, span, traces
from tests.unit.otlp.test_genai import ASKED, BYE, chat, conversation

MIB = 1024 * 1024
PROTOBUF, JSON = "application/x-protobuf", "application/json"


@pytest.fixture(scope="module")
def service(start: Callable[..., Any]) -> Iterator[Any]:
    limits = {"event_bytes_max": MIB, "body_bytes_max": 4 * MIB, "body_decoded_bytes_max": 20 * MIB}
    room = {"tenant_inflight_bytes_max": 20 * MIB, "inflight_bytes_max": 80 * MIB}
    with start(**limits, **room) as running:
        yield running


def in_session(name: str, spans: list[dict[str, Any]]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(json.dumps(traces(spans)).replace("s-1", name))
    return document


def stored(service: Any, session: str) -> list[str]:
    sql = f"select type from events where session_id = '{session}' order by ts, type"
    return [row["type"] for row in service.query(sql)]


KINDS = ["session_start", "x_span", "user_message", "model_call", "tool_result", "model_call",
         "user_message", "model_call"]  # fmt: skip


@pytest.mark.smoke
@pytest.mark.parametrize("form", [PROTOBUF, JSON])
@pytest.mark.parametrize("packed", [False, True])
def test_a_conversation_is_stored_once_however_often_it_is_sent(
    service: Any, form: str, packed: bool
) -> None:
    name = f"{form[-4:]}-{packed}"
    document = in_session(name, conversation())
    body = as_protobuf(document) if form == PROTOBUF else json.dumps(document).encode()
    headers = {"Content_Type": form}
    if packed:
        body, headers["Content_Encoding"] = gzip.compress(body), "gzip"
    for _ in range(2):
        reply = service.post("/v1/traces", body, "ingest", **headers)
        assert (reply.status, reply.headers["content-type"]) == (200, form)
        assert reply.body == (b"" if form == PROTOBUF else b"{}")
    assert sorted(stored(service, name)) == sorted(KINDS)


def test_the_sdk_sends_and_is_answered(service: Any) -> None:
    exporter = OTLPSpanExporter(
        endpoint=f"{service.server.url}/v1/traces",
        headers={"Authorization": f"Bearer {service.keys['ingest']}"},
        compression=Compression.Gzip,
    )
    provider = TracerProvider(resource=Resource({"service.name": "sdk-agent"}))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with provider.get_tracer("test").start_as_current_span("chat coder") as current:
        current.set_attribute("gen_ai.operation.name", "chat")
        current.set_attribute("gen_ai.conversation.id", "by-sdk")
        current.set_attribute("gen_ai.input.messages", json.dumps([ASKED]))
        current.set_attribute("gen_ai.output.messages", json.dumps([BYE]))
    provider.shutdown()
    assert stored(service, "by-sdk") == ["session_start", "user_message", "model_call"]


def test_what_is_broken_is_refused_alone_and_said(service: Any) -> None:
    broken = chat(3, [ASKED], BYE, 0) | {"spanId": ""}
    large = chat(4, [ASKED], {"role": "assistant", "content": "x" * 2 * MIB}, 5)
    document = in_session("partial", [chat(2, [ASKED], BYE, 0), broken, large])
    body = as_protobuf(document)
    reply = service.post("/v1/traces", body, "ingest", Content_Type=PROTOBUF)
    partial = ExportTraceServiceResponse.FromString(reply.body).partial_success
    assert (reply.status, partial.rejected_spans) == (200, 2)
    assert "number 2: the span 'chat m' has no trace id" in partial.error_message
    assert "number 3: " in partial.error_message
    said = service.post("/v1/traces", json.dumps(document).encode(), Content_Type=JSON).json()
    assert said["partialSuccess"]["rejectedSpans"] == "2"
    assert stored(service, "partial").count("model_call") == 1


def test_spans_of_no_agent_are_taken_and_not_stored(service: Any) -> None:
    name = 'otlp_records_total{outcome="ignored",signal="spans"}'
    before = service.metric(name)
    document = traces([span(number, {"http.route": "/"}, name="GET /") for number in range(1, 4)])
    reply = service.post("/v1/traces", as_protobuf(document), Content_Type=PROTOBUF)
    assert (reply.status, reply.body) == (200, b"")
    assert service.metric(name) == before + 3


def test_unknown_metrics_are_named_and_cost_the_others_nothing(service: Any) -> None:
    known = metric("claude_code.cost.usage", ({"session.id": "cost"}, {"asDouble": 0.5}))
    document = metrics([metric("my.own", ({}, {"asInt": "1"})), known])
    for form, body in ((PROTOBUF, as_protobuf(document)), (JSON, json.dumps(document).encode())):
        headers = {"Content_Type": form, "Content_Encoding": "gzip"}
        reply = service.post("/v1/metrics", gzip.compress(body), "ingest", **headers)
        assert (reply.status, b"compared by my.own" in reply.body) == (200, True)
    assert stored(service, "cost") == ["session_start", "x_metric"]


@pytest.mark.parametrize(
    ("body", "headers", "status", "code"),
    [
        (b"\xff\xff\xff", {"Content_Type": PROTOBUF}, 400, 3),
        (b"[1]", {"Content_Type": JSON}, 400, 3),
        (b'{"resourceSpans": 3, "resourceLogs": {}, "resourceMetrics": 1}',
         {"Content_Type": JSON}, 400, 3),
        (b"{}", {"Content_Type": JSON, "Content_Encoding": "br"}, 415, 3),
        (b"x" * 5 * MIB, {"Content_Type": PROTOBUF}, 413, 8),
        (gzip.compress(b"\0" * 21 * MIB), {"Content_Type": PROTOBUF, "Content_Encoding": "gzip"},
         413, 8),
        (gzip.compress(b'{"resourceSpans":[' + b"{}," * MIB + b"{}]}"),
         {"Content_Type": JSON, "Content_Encoding": "gzip"}, 413, 8),
    ],
)  # fmt: skip
def test_a_body_that_cannot_be_taken_is_refused_as_a_whole(
    service: Any, body: bytes, headers: dict[str, str], status: int, code: int
) -> None:
    for path in ("/v1/traces", "/v1/logs", "/v1/metrics"):
        reply = service.post(path, body, "ingest", **headers)
        assert reply.status == status, reply.body
        assert reply.headers["content-type"] == headers["Content_Type"]
        if headers["Content_Type"] == JSON:
            assert reply.json()["code"] == code
        else:
            assert reply.body[:2] == bytes([8, code])


def test_other_content_types_are_refused(service: Any) -> None:
    reply = service.post("/v1/traces", b"{}", "ingest", Content_Type="text/plain")
    assert reply.status == 415
    assert reply.headers["accept-post"] == "application/x-protobuf, application/json"
    assert "http/protobuf" in reply.json()["detail"]


def test_a_key_that_may_not_send_is_refused(service: Any) -> None:
    reply = service.post("/v1/traces", b"", "read", Content_Type=PROTOBUF)
    assert (reply.status, reply.body[:2]) == (403, bytes([8, 7]))
    reply = service.post("/v1/traces", b"", "none such", Content_Type=JSON)
    assert (reply.status, reply.json()["code"]) == (401, 16)


def test_a_key_may_come_as_the_variable_of_exporters_has_it(service: Any) -> None:
    headers = {"Authorization": f"Bearer%20{service.keys['ingest']}", "Content-Type": PROTOBUF}
    request = urllib.request.Request(f"{service.server.url}/v1/logs", b"", headers, method="POST")
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 200


def test_a_used_up_quota_says_when_to_come_back(start: Callable[..., Any]) -> None:
    with start(tenant_events_per_hour_max=2) as service:
        document = in_session("quota", [chat(2, [ASKED], BYE, 0)])
        body = as_protobuf(document)
        assert service.post("/v1/traces", body, "ingest", Content_Type=PROTOBUF).status == 200
        reply = service.post("/v1/traces", body, "ingest", Content_Type=PROTOBUF)
        assert (reply.status, reply.body[:2]) == (429, bytes([8, 8]))
        assert int(reply.headers["retry-after"]) > 0
        reply = service.post("/v1/logs", b"{}", "ingest", Content_Type=JSON)
        assert (reply.status, reply.json()["code"]) == (429, 8)
        assert "events_per_hour of 2 is used up" in reply.json()["message"]


def test_events_that_would_take_many_times_the_body_are_refused(service: Any) -> None:
    long = {f"penstock.{name}": name * 100 for name in ("repo", "branch", "commit", "user")}
    spans = [
        span(number, {"gen_ai.operation.name": "chat", "session.id": str(number)})
        for number in range(1, 20_000)
    ]
    body = gzip.compress(as_protobuf(traces(spans, long)))
    headers = {"Content_Type": PROTOBUF, "Content_Encoding": "gzip"}
    reply = service.post("/v1/traces", body, "ingest", **headers)
    assert reply.status == 413
    assert b"as events" in reply.body


def test_secrets_are_taken_out_on_the_way(service: Any) -> None:
    said = {"role": "user", "content": "my key is ghp_" + "a1B2" * 9}
    document = in_session("secret", [chat(2, [said], BYE, 0)])
    service.post("/v1/traces", as_protobuf(document), Content_Type=PROTOBUF)
    sql = "select payload from events where session_id = 'secret' and type = 'user_message'"
    [row] = service.query(sql)
    assert "a1B2a1B2" not in str(row)
