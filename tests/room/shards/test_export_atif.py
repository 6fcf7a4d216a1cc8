"""Documents in Harbor's interchange format."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from penstock_jobs.shards.recipe import Tokens
from penstock_jobs.shards.rows.samples import SampleRows
from tests.support.export_rows import (
    ARGUMENTS,
    EXAMPLES,
    TOOLS,
    Row,
    exported,
    in_order,
    library,
    shard_rows,
    talked,
)
from tests.support.shards.talks import Talk, asks, tokens


def documents(out: Path) -> list[Row]:
    return [json.loads(path.read_text("utf-8")) for path in sorted(out.glob("part-*/*.json"))]


def has_object_arguments(row: Row) -> bool:
    call = json.loads(row["messages"])[2]["tool_calls"][0]["function"]["arguments"]
    return call in (ARGUMENTS, "{}")


@EXAMPLES
@given(shard_rows())
def test_a_document_has_what_the_row_has(rows: list[Row]) -> None:
    with exported(rows, "atif") as (out, told):
        kept = [row for row in rows if has_object_arguments(row)]
        left = len(rows) - len(kept)
        assert told.left_out == ({"arguments_no_object": left} if left else {})
        found = documents(out)
        assert [one["trajectory_id"] for one in found] == [row["trajectory_id"] for row in kept]
        for one, row in zip(found, kept, strict=True):
            assert one["schema_version"] == "ATIF-v1.8"
            assert one["session_id"] == row["session_id"]
            assert one["agent"].get("tool_definitions") == (
                json.loads(row["tools"]) if row["tools"] else None
            )
            assert_tokens(one["steps"], row)
            assert messages_of(one["steps"]) == [
                {name: value for name, value in message.items() if name != "name"}
                for message in json.loads(row["messages"])
            ]
            assert_rl(one["extra"]["rl"], row)


def assert_tokens(steps: list[Row], row: Row) -> None:
    answers = [step["metrics"] for step in steps if "metrics" in step]
    sampled = [span for span in row["turn_spans"] if span["sampled"]]
    assert len(answers) == len(sampled)
    for metrics, span in zip(answers, sampled, strict=True):
        inside = slice(span["start"], span["end"])
        assert metrics["prompt_token_ids"] == row["input_ids"][: span["start"]].tolist()
        assert metrics["completion_token_ids"] == row["input_ids"][inside].tolist()
        logprobs = row["rollout_logprobs"]
        expected = None if logprobs is None else np.float64(logprobs[inside]).tolist()
        assert metrics.get("logprobs") == expected


def messages_of(steps: list[Row]) -> list[Row]:
    """The steps as messages again; arguments as objects."""
    messages: list[Row] = []
    for step in steps:
        role = "assistant" if step["source"] == "agent" else step["source"]
        message: Row = {"role": role, "content": step["message"]}
        if "reasoning_content" in step:
            message["reasoning_content"] = step["reasoning_content"]
        if "tool_calls" in step:
            message["tool_calls"] = [_call(one) for one in step["tool_calls"]]
        if step.get("is_copied_context"):
            message["weight"] = 0
        messages.append(message)
        messages += [
            {"role": "tool", "content": one["content"], "tool_call_id": one["source_call_id"]}
            for one in step.get("observation", {}).get("results", ())
        ]
    return messages


def _call(one: Row) -> Row:
    arguments = ARGUMENTS if one["arguments"] else "{}"
    assert one["arguments"] == json.loads(arguments)
    function = {"name": one["function_name"], "arguments": arguments}
    return {"id": one["tool_call_id"], "type": "function", "function": function}


def assert_rl(told: Row, row: Row) -> None:
    for name in ("sample_id", "group_id", "reward", "advantage", "status", "consent", "split"):
        assert told.get(name) == row[name]
    assert told.get("policy_version_runs") == row["policy_version_runs"]
    assert told["reward_components"] == row["reward_components"]


OTHERS: dict[str, dict[str, Any]] = {
    "turns_differ": {"messages": '[{"role":"user","content":"go"}]'},
    "result_without_call": {"messages": '[{"role":"tool","content":"x","tool_call_id":"c"}]'},
    "tools_no_list": {"tools": '{"read":{}}'},
    "no_messages": {"messages": "[]"},
}


@pytest.mark.parametrize(("reason", "fields"), OTHERS.items())
def test_what_the_format_cannot_hold_is_left_out(reason: str, fields: dict[str, Any]) -> None:
    with exported([talked("g", 0), talked("g", 1, **fields)], "atif") as (out, told):
        assert told.left_out == {reason: 1}
        assert len(documents(out)) == 1


def chain() -> list[Row]:
    """A session that was compacted, a subagent of it, and one whose next part is left out."""
    begun = talked("g", 0)
    going_on = {"parent_sample_id": begun["sample_id"], "rollout_id": begun["rollout_id"]}
    subagent = talked("g", 1, **going_on, link_kind="subagent", chain_pos=1)
    compacted = talked("g", 2, **going_on, link_kind="compaction", chain_pos=2)
    other = talked("h", 0)
    broken = talked(
        "h", 1, parent_sample_id=other["sample_id"], link_kind="compaction", arguments="{"
    )
    return in_order([begun, subagent, compacted, other, broken])


def test_what_was_compacted_names_the_file_that_goes_on() -> None:
    with exported(chain(), "atif") as (out, _):
        begun, subagent, compacted, other = documents(out)
        then = out / "part-00000" / begun["continued_trajectory_ref"]
        assert json.loads(then.read_text())["trajectory_id"] == compacted["trajectory_id"]
        assert subagent["extra"]["rl"]["link_kind"] == "subagent"
        for one in (subagent, compacted, other):
            assert "continued_trajectory_ref" not in one


def test_sessions_as_they_are_built_fit() -> None:
    """The last answer is of a branch of its own; what was said before it is context there."""
    talk = Talk().start(task_id="t", group_id="g", tools=[{"name": "read"}]).user("go")
    talk.model("a", calls=[asks("c1")], tokens=tokens([1, 2], [3, 4], tokenizer="own"))
    talk.result("c1", "one")
    talk.model("b", tokens=tokens([1, 2, 3, 4, 5], [6], tokenizer="own"))
    talk.model("c", tokens=tokens([9], [8, 8], tokenizer="own"))
    built = SampleRows(Tokens("engine"), None)
    built.add_chain([talk.conversation()], {"s-1": "train"})
    with exported(built.table().to_pylist(), "atif") as (out, told):
        assert told.left_out == {}
        first, second = documents(out)
    ids = [
        (step["metrics"]["prompt_token_ids"], step["metrics"]["completion_token_ids"])
        for one in (first, second)
        for step in one["steps"]
        if "metrics" in step
    ]
    assert ids == [([1, 2], [3, 4]), ([1, 2, 3, 4, 5], [6]), ([9], [8, 8])]
    copied = [step.get("is_copied_context") for step in second["steps"]]
    assert copied == [None, True, True, None]


def test_models_of_the_format_accept_every_document() -> None:
    atif = library("atif")
    rows = [talked("k", 0, said_before=True), talked("k", 1, rendered=True, tools=TOOLS)]
    with exported(in_order(chain() + rows), "atif") as (out, _):
        for one in documents(out):
            read = atif.Trajectory.model_validate(one)
            assert read.model_dump(exclude_none=True)["steps"] == one["steps"]
