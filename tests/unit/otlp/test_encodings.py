"""Both encodings of OTLP say the same; nothing that is sent breaks the reader, or costs it more
than its size."""

import json
import random
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans

from penstock.ingest.otlp import json_form, protobuf
from penstock.ingest.otlp.conversion import TelemetryBatch
from penstock.ingest.otlp.records import DEPTH_MAX, Malformed, Span
from tests.support.spans import TRACE, as_canonical_json, as_protobuf, logs, record, span, traces

_texts = st.text('aé\U0001f469"\\\0\n\u2028[{.', max_size=12)
_values = st.recursive(
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_texts, inner, max_size=4),
    max_leaves=10,
)
_attributes = st.dictionaries(_texts, _values, max_size=6)


@settings(max_examples=30)
@given(st.lists(_attributes, max_size=3), _attributes)
def test_spans_say_the_same_in_all_encodings(spans: list[Any], resource: dict[str, Any]) -> None:
    sent = [
        span(number + 1, each, events=[("told", each)], parent=9)
        for number, each in enumerate(spans)
    ]
    document = traces(sent, resource or {"a": "b"})
    body = as_protobuf(document)
    read = list(protobuf.read_spans(body))
    assert [each.attributes for _, each in read if isinstance(each, Span)] == spans
    assert list(json_form.read_spans(json.dumps(document).encode())) == read
    assert list(json_form.read_spans(as_canonical_json(body))) == read


@settings(max_examples=30)
@given(st.lists(_attributes, max_size=3), _values)
def test_records_say_the_same_in_both_encodings(records: list[Any], body: Any) -> None:
    sent = [
        record(each, body=body, traceId=TRACE, spanId="00f067aa0ba902b7", severityText="INFO")
        for each in records
    ]
    document = logs(sent)
    read = list(protobuf.read_logs(as_protobuf(document)))
    assert list(json_form.read_logs(json.dumps(document).encode())) == read
    assert len(read) == len(records)


@given(st.binary(max_size=300))
def test_no_bytes_break_a_reader(body: bytes) -> None:
    for form in (protobuf, json_form):
        for read in (form.read_spans, form.read_logs):
            with suppress(ValueError):
                list(read(body))


def test_no_damage_to_a_body_breaks_what_is_made_of_it() -> None:
    """Bytes of a good body are changed, cut and repeated: what comes is events, or a reason."""
    chance = random.Random(7)
    said = json.dumps([{"role": "user", "content": "hi"}])
    told = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": said, "n": 3, "x": [1, {}]}
    whole = as_protobuf(traces([span(1, told), span(2, told)]))
    for _ in range(800):
        body = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            body[chance.randrange(len(body))] = chance.randrange(256)
        del body[chance.randrange(len(body)) :][: chance.choice([0, 0, 5])]
        with suppress(ValueError):
            list(TelemetryBatch(0).spans(protobuf.read_spans(bytes(body))))


@pytest.mark.parametrize("form", ["protobuf", "json"])
def test_a_deep_value_costs_its_span_alone(form: str) -> None:
    deep: Any = "x"
    for _ in range(DEPTH_MAX + 1):
        deep = [deep]
    document = traces([span(1, {"deep": deep}), span(2, {"flat": 1})])
    if form == "json":
        read = list(json_form.read_spans(json.dumps(document).encode()))
    else:
        read = list(protobuf.read_spans(as_protobuf(document)))
    assert isinstance(read[0][1], Malformed)
    assert "deeper" in read[0][1].why
    assert isinstance(read[1][1], Span)


def test_a_span_with_too_many_attributes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for form in (protobuf, json_form):
        monkeypatch.setattr(form, "ATTRIBUTES_MAX", 50)
    many = {str(number): 1 for number in range(51)}
    for read in (
        list(protobuf.read_spans(as_protobuf(traces([span(1, many)])))),
        list(json_form.read_spans(json.dumps(traces([span(1, many)])).encode())),
    ):
        assert "attributes" in read[0][1].why  # type: ignore[union-attr]


def test_json_that_nests_without_end_is_refused() -> None:
    body = b'{"resourceSpans":' + b"[" * 100_000
    with pytest.raises(ValueError, match="deep"):
        list(json_form.read_spans(body))


def test_numbers_of_either_kind_are_read() -> None:
    sent = {
        "resourceSpans": [{"scopeSpans": [{"spans": [{
            "traceId": TRACE.upper(), "spanId": "00f067aa0ba902b7",
            "startTimeUnixNano": 5, "endTimeUnixNano": "7",
            "attributes": [{"key": "n", "value": {"intValue": 3}}],
            "status": {"code": "STATUS_CODE_ERROR", "message": "no"},
        }]}]}]
    }  # fmt: skip
    [(_, read)] = json_form.read_spans(json.dumps(sent).encode())
    assert isinstance(read, Span)
    assert (read.trace_id, read.start_ns, read.end_ns) == (TRACE, 5, 7)
    assert (read.attributes, read.status_code, read.status_message) == ({"n": 3}, 2, "no")


def test_a_resource_behind_its_spans_counts_for_them() -> None:
    inner = as_protobuf(traces([span(1, {})]))
    [(origin, read)] = protobuf.read_spans(_reversed(inner))
    assert origin.resource == {"service.name": "my-agent"}
    assert isinstance(read, Span)


def _reversed(body: bytes) -> bytes:
    [whole] = ExportTraceServiceRequest.FromString(body).resource_spans
    spans = ResourceSpans(scope_spans=whole.scope_spans).SerializeToString()
    content = bytes(spans + ResourceSpans(resource=whole.resource).SerializeToString())
    return b"\x0a" + bytes([len(content) & 127 | 128, len(content) >> 7]) + content
