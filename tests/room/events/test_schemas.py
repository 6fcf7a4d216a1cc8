"""The schemas of events, the examples of the page, and keys that are nearly right."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from penstock.events.event import PAYLOADS, SCHEMA_VERSION, event_schema, inlined
from penstock.events.near_misses import LINES_MAX, NearMisses, NearMissSample
from penstock.events.validation import ValidatedLines, validate_line, validate_lines
from tests.support.commands import penstock
from tests.support.lakes import START_US, body_of, make_event
from tests.support.repository import ROOT

PAGE = ROOT / "docs" / "events.md"
MAX = 1_000_000
MINUTE_US = 60_000_000


def misses_of(judged: ValidatedLines) -> NearMisses:
    assert judged.rejections == []
    return NearMissSample().look_at(judged.unknown, "acme", 0)


def examples() -> list[str]:
    [block] = re.findall(r"```jsonl\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    return [line for line in block.splitlines() if line]


def test_the_page_has_an_example_of_each_type() -> None:
    kinds = [json.loads(line)["type"] for line in examples()]
    assert {kind for kind in kinds if not kind.startswith("x_")} == PAYLOADS.keys()
    assert any(kind.startswith("x_") for kind in kinds)


@pytest.mark.parametrize("line", examples(), ids=lambda line: json.loads(line)["type"])
def test_each_example_is_accepted_and_every_key_is_known(line: str) -> None:
    validate_line(line.encode(), MAX)
    judged = validate_lines([line.encode()], 1, MAX)
    assert misses_of(judged).counts == {}
    event = json.loads(line)
    if event["type"] in PAYLOADS:
        schema = inlined(event_schema(event["type"]))
        assert event.keys() <= schema["properties"].keys()
        payload = schema["properties"]["payload"]
        assert set(payload.get("required", ())) <= event["payload"].keys()
        assert event["payload"].keys() <= payload["properties"].keys()


def test_the_schema_has_its_version_and_no_open_reference() -> None:
    schema = event_schema()
    assert schema["$id"] == f"urn:penstock:event:{SCHEMA_VERSION}"
    assert len(schema["oneOf"]) == len(PAYLOADS) + 1
    assert "$ref" not in json.dumps(inlined(schema))
    usage = event_schema("model_call")["$defs"]["Usage"]["properties"]
    assert usage.keys() == {"prompt", "completion", "thinking", "cached"}


def test_the_command_prints_it() -> None:
    assert json.loads(penstock("events", "schema", "edit").stdout)["title"] == "edit"
    assert json.loads(penstock("events", "schema").stdout) == event_schema()
    unknown = penstock("events", "schema", "edti")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert "known: session_start" in unknown.stderr


def call(number: int, **payload: Any) -> dict[str, Any]:
    return make_event("s", number, "model_call", payload=payload)


@pytest.mark.parametrize(
    ("payload", "key", "known"),
    [
        ({"usage": {"prompt_tokens": 3}}, "payload.usage.prompt_tokens", "payload.usage.prompt"),
        ({"usage": {"inputTokens": 3}}, "payload.usage.inputTokens", "payload.usage.prompt"),
        ({"usage": {"Cached": 3}}, "payload.usage.Cached", "payload.usage.cached"),
        ({"promptTokens": 3}, "payload.promptTokens", "payload.usage.prompt"),
        ({"toolCalls": []}, "payload.toolCalls", "payload.tool_calls"),
        ({"content": "x"}, "payload.content", "payload.text"),
        ({"tokens": {"logProbs": []}}, "payload.tokens.logProbs", "payload.tokens.logprobs"),
    ],
)  # fmt: skip
def test_a_key_that_is_nearly_right_is_accepted_and_told(
    payload: dict[str, Any], key: str, known: str
) -> None:
    events = [call(1, text="fine"), call(2, **payload), call(3, **payload)]
    lines = body_of(events).replace(b"\n", b"\n\n", 1).split(b"\n")
    misses = misses_of(validate_lines(lines, 10, MAX))
    [miss] = [miss for miss in misses.counts if miss.key == key]
    assert miss.known == known
    assert (misses.counts[miss], misses.lines[miss]) == (2, 12)


def test_some_lines_of_each_source_and_type_are_looked_at_in_a_minute() -> None:
    sample = NearMissSample()

    def looked(source: str, minute: int, tenant: str = "acme") -> int:
        events = [call(n, promptTokens=3) | {"source": source} for n in range(2 * LINES_MAX)]
        judged = validate_lines(body_of(events).split(b"\n"), 1, MAX)
        found = sample.look_at(judged.unknown, tenant, minute * MINUTE_US)
        return sum(found.counts.values())

    assert [looked(source, 7) for source in ("a", "a", "b")] == [LINES_MAX, 0, LINES_MAX]
    assert [looked("a", 7, "bolt"), looked("a", 8)] == [LINES_MAX, LINES_MAX]


@pytest.mark.parametrize(
    "event",
    [
        call(1, text="x", usage=None, trace_id="7", vendor={"prompt_tokens": 3}),
        call(1, usage={"prompt": 3, "total": 9}),
        make_event("s", 1, "x_mine", payload={"prompt_tokens": 3, "usage": {"promptTokens": 1}}),
        make_event("s", 1, trace_id="7"),
        make_event("s", 1, "x_mine", payload={"usage": 3}),
        call(1) | {"payload": {"arguments": {"content": "x"}}},
    ],
)
def test_keys_of_one_s_own_are_no_near_misses(event: dict[str, Any]) -> None:
    assert misses_of(validate_lines([json.dumps(event).encode()], 1, MAX)).counts == {}


def test_names_beside_the_payload_are_told_too() -> None:
    event = {"session_id": "s", "ts": START_US, "type": "user_message", "userId": "u"}
    line = json.dumps(event | {"payload": {"text": "x"}}).encode()
    assert list(misses_of(validate_lines([line], 1, MAX)).counts) == [("userId", "user")]


def test_an_import_says_which_keys_nothing_reads(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(body_of([call(1, usage={"prompt_tokens": 3})]))
    done = penstock("import", str(tmp_path / "a.jsonl"), "--data", str(tmp_path / "data"))
    assert done.returncode == 0
    told = "`payload.usage.prompt_tokens` is not read; did you mean `payload.usage.prompt`?"
    assert told in done.stderr
