"""POST /v1/query of a real server: its two forms, its errors, and its limits."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from penstock.backends.http.client import HttpAnswer

ARROW_STREAM = "application/vnd.apache.arrow.stream"


@pytest.fixture(scope="module")
def service(start: Callable[..., Any]) -> Iterator[Any]:
    with start(query_answer_bytes_max=100_000) as running:
        for key, text in (("ingest", "mine"), ("bolt", "theirs")):
            events = b"\n".join(
                json.dumps(
                    {
                        "session_id": f"s-{i}",
                        "ts": "2026-11-21T10:00:00Z",
                        "type": "user_message",
                        "payload": {"text": text},
                    }
                ).encode()
                for i in range(50)
            )
            assert running.post("/v1/events", events, key).json()["accepted"] == 50
        yield running


def ask(service: Any, sql: str, key: str = "read", **more: object) -> HttpAnswer:
    reply: HttpAnswer = service.post("/v1/query", json.dumps({"sql": sql} | more).encode(), key)
    return reply


def problem(reply: HttpAnswer, status: int) -> str:
    assert reply.headers["content-type"] == "application/problem+json"
    body = reply.json()
    assert (reply.status, body["status"]) == (status, status)
    detail: str = body["detail"]
    return detail


def test_json_answer(service: Any) -> None:
    reply = ask(service, "select session_id, text from user_messages order by 1 limit 2")
    assert reply.headers["content-type"] == "application/json"
    answer = reply.json()
    assert answer.pop("snap") >= 0
    assert answer == {
        "columns": ["session_id", "text"],
        "rows": [{"session_id": "s-0", "text": "mine"}, {"session_id": "s-1", "text": "mine"}],
        "complete": True,
    }


def test_arrow_answer(service: Any) -> None:
    body = json.dumps({"sql": "select session_id, ts from events"}).encode()
    reply = service.post("/v1/query", body, "read", Accept=f"{ARROW_STREAM}, */*;q=0.1")
    assert reply.headers["content-type"] == ARROW_STREAM
    table = pa.ipc.open_stream(reply.body).read_all()
    assert table.num_rows == 50
    assert table.schema.field("ts").type == pa.timestamp("us", tz="UTC")


def test_as_of_a_time_before_there_was_anything_the_answer_has_its_columns(service: Any) -> None:
    answer = ask(service, "select session_id from events", as_of="2020-01-01T00:00:00Z").json()
    assert (answer["columns"], answer["rows"]) == (["session_id"], [])


@pytest.mark.parametrize(
    ("sql", "detail"),
    [
        ("select nope from events", "The query failed: "),
        ("selec 1", "The query "),
        ("drop view events", "The query was refused: "),
        ("select * from read_csv('/etc/passwd')", "The query was refused: "),
        ("", "The query "),
    ],
)
def test_bad_query_is_400_and_says_why(service: Any, sql: str, detail: str) -> None:
    assert problem(ask(service, sql), 400).startswith(detail)


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b"", "The request body cannot be used: Object missing required field `sql`."),
        (b"select 1", "The request body cannot be used: JSON is malformed: "),
        (b"[]", "The request body cannot be used: Expected `object`, got `array`."),
        (b"{}", "The request body cannot be used: Object missing required field `sql`."),
        (b'{"sql": "select 1", "asof": "x"}', "The request body cannot be used: Object contains"),
        (b'{"sql": "\xff"}', "The request body cannot be used: "),
        (b'{"sql": ' + b"[" * 5000, "The request body cannot be used: "),
    ],
)
def test_body_that_is_no_query_is_400(service: Any, body: bytes, detail: str) -> None:
    assert problem(service.post("/v1/query", body, "read"), 400).startswith(detail)


def test_body_of_a_query_is_bounded(service: Any) -> None:
    body = json.dumps({"sql": "select 1 -- " + "x" * 1024 * 1024}).encode()
    assert "over the limit of 1048576 bytes" in problem(service.post("/v1/query", body), 413)


def test_unknown_snapshot_is_404(service: Any) -> None:
    assert "The snapshot nope is unknown" in problem(ask(service, "select 1", as_of="nope"), 404)


def test_answer_that_is_too_large_is_422(service: Any) -> None:
    detail = problem(ask(service, "select repeat(payload, 1000) from events"), 422)
    assert "100000 bytes of answer" in detail
    assert "PENSTOCK_QUERY_ANSWER_BYTES_MAX" in detail


# The description of it all


def test_openapi_is_whole(service: Any) -> None:
    """Version 3.1, every reference leads somewhere, and every operation names its key."""
    reply = service.get("/openapi.json")
    assert reply.headers["content-type"].startswith("application/")
    document = reply.json()
    assert document["openapi"].startswith("3.1")
    assert document["info"]["title"] == "Penstock"
    assert document["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"
    references = [found for found in _walk(document) if "$ref" in found]
    assert references
    for reference in references:
        target = document
        for step in reference["$ref"].removeprefix("#/").split("/"):
            target = target[step]
    for path, methods in document["paths"].items():
        for operation in methods.values():
            assert operation["responses"]["200"]["content"], path
            assert operation["summary"]
            if path.startswith("/v1/"):
                assert operation["security"] == [{"bearer": []}]


def _walk(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from _walk(inner)
