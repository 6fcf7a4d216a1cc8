"""Exports of those who trace calls: what was said once is there once, whatever the order."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.session_sources import FIXTURES, events_of, payloads, report_of

BUCKET = FIXTURES / "langfuse/bucket/observations_v2/2026-11-20T10-00-00Z.jsonl"


@pytest.mark.parametrize(
    ("case", "session"),
    [
        ("langfuse/bucket", "conversation-7"),
        ("phoenix/trace", "chat-9"),
        ("mlflow/version-3", "chat-1"),
        ("tensorzero/listed", "019a9f00-0000-7000-8000-0000000000e1"),
    ],
)
def test_calls_that_go_on_from_each_other_are_one_session(case: str, session: str) -> None:
    events = [event for event in events_of(FIXTURES / case) if event["session_id"] == session]
    kinds = [event["type"] for event in events][:6]
    assert kinds == [
        "session_start", "user_message", "model_call", "tool_result", "edit", "model_call"
    ]  # fmt: skip
    assert [call["text"] for call in payloads(events, "model_call")][:2] == [
        "I change it.",
        "Done.",
    ]
    (edit,) = payloads(events, "edit")
    assert (edit["path"], edit["before"], edit["after"]) == ("note.py", "a = 1", "a = 2")
    assert not any(call.get("is_copied_context") for call in payloads(events, "model_call"))


def test_a_call_that_does_not_go_on_is_a_session_of_its_own() -> None:
    events = events_of(BUCKET)
    (own,) = {event["session_id"] for event in events} - {"conversation-7"}
    start, _asked, call = [event["payload"] for event in events if event["session_id"] == own]
    assert start == {"parent_session": "conversation-7", "system": "You search."}
    assert call["text"] == "Nowhere."


def test_a_call_that_failed_is_an_error_and_its_repetition_goes_on(tmp_path: Path) -> None:
    rows = [json.loads(line) for line in BUCKET.read_text().splitlines()]
    failed = next(row for row in rows if row["id"] == "g4")
    again = failed | {
        "id": "g5",
        "start_time": "2026-11-20 09:03:00.000000",
        "end_time": "2026-11-20 09:03:01.000000",
        "output": json.dumps({"role": "assistant", "content": "Sure."}),
    }
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(r) + "\n" for r in [*rows, again]))
    events = [e for e in events_of(tmp_path) if e["session_id"] == "conversation-7"]
    assert [error["message"] for error in payloads(events, "error")] == ["rate limited"]
    assert [user["text"] for user in payloads(events, "user_message")][2:] == ["Sure?"]
    assert payloads(events, "model_call")[-1]["text"] == "Sure."


def test_tokens_are_counted_as_each_export_counts_them() -> None:
    usage = [
        payloads(events_of(FIXTURES / case), "model_call")[0].get("usage")
        for case in ("langfuse/bucket", "phoenix/trace", "mlflow/version-3", "tensorzero/listed")
    ]
    assert usage == [
        {"prompt": 100, "completion": 7, "cached": 90},
        {"prompt": 40, "completion": 8, "cached": 32},
        {"prompt": 30, "completion": 6},
        None,
    ]


def test_scores_annotations_and_feedback_are_rewards() -> None:
    def rewards(case: str) -> list[tuple[object, ...]]:
        told = payloads(events_of(FIXTURES / case), "x_reward")
        return [(each["name"], each["value"], each["given_by"]) for each in told]

    assert rewards("langfuse/bucket") == [
        ("helpful", 1, "langfuse:annotation"),
        ("tone", "kind", "langfuse:eval"),
    ]
    assert rewards("phoenix/trace") == [("quality", 0.9, "phoenix:human")]
    assert rewards("mlflow/version-3") == [("right", True, "mlflow:human")]


def test_in_the_other_order_and_as_a_document_it_is_the_same(tmp_path: Path) -> None:
    rows = [json.loads(line) for line in BUCKET.read_text().splitlines()]
    (tmp_path / "rows.json").write_text(json.dumps(rows[::-1]))
    (tmp_path / "rows.jsonl.gz").write_bytes(gzip.compress(BUCKET.read_bytes()))
    as_lines = events_of(BUCKET)
    assert events_of(tmp_path / "rows.json") == as_lines
    assert events_of(tmp_path / "rows.jsonl.gz") == as_lines


def test_parquet_says_the_same_as_json(tmp_path: Path) -> None:
    rows = [json.loads(line) for line in BUCKET.read_text().splitlines()]
    usage = [row.pop("usage_details", {}) for row in rows]
    for row in rows:  # as a table has them: every column, and none without a type
        for name in ("metadata", "tags", "cost_details", "tool_definitions"):
            row.pop(name, None)
    counts = pa.array([list(each.items()) for each in usage], pa.map_(pa.string(), pa.int64()))
    table = pa.Table.from_pylist(rows).append_column("usage_details", counts)
    pq.write_table(table, tmp_path / "rows.parquet")
    lines = [row | {"usage_details": each} for row, each in zip(rows, usage, strict=True)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert events_of(tmp_path / "rows.parquet") == events_of(tmp_path / "rows.jsonl")


def test_a_table_of_spans_as_parquet_has_times_of_nanoseconds(tmp_path: Path) -> None:
    (span, _other) = json.loads((FIXTURES / "phoenix/table/spans.json").read_text())
    table = pa.Table.from_pylist([span | {"attributes.input.value": "Look."}])
    for name in ("start_time", "end_time"):
        nanoseconds = pa.array([span[name] * 1_000_000 + 1], pa.timestamp("ns", "UTC"))
        table = table.set_column(table.schema.get_field_index(name), name, nanoseconds)
    pq.write_table(table, tmp_path / "spans.parquet")
    (call,) = payloads(events_of(tmp_path), "model_call")
    assert (call["latency_ms"], call["tool_calls"][0]["name"]) == (1000.0, "ls")


@pytest.mark.parametrize("content", [b"PAR1", b"PAR1" + b"\xff" * 500 + b"PAR1"])
def test_a_broken_parquet_file_is_no_export(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "rows.parquet").write_bytes(content)
    (tmp_path / "rows.jsonl").write_bytes(BUCKET.read_bytes())
    report = report_of(tmp_path)
    assert report.formats["langfuse"].sources == 1
