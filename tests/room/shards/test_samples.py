"""Rows of a shard from sessions: what they say, what is left out and why."""

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.errors import InvalidInput
from penstock.events.redaction.line_redaction import LineRedactor
from penstock.events.redaction.rules import rule_book
from penstock.shards.schema import HINT_COLUMNS, ROUTE_ROWS, SHARD_ROWS
from penstock.shards.validation import ShardValidator
from penstock_jobs.shards.conversation.token_payload import TOKENS_REDACTED, ExpectedTokens
from penstock_jobs.shards.recipe import Tokens
from penstock_jobs.shards.rows.rendered_branches import ChatTemplate, Renderer
from penstock_jobs.shards.rows.samples import LeftOutBranches, SampleRows, TokenizerMismatch
from tests.support import planted_secrets
from tests.support.shards.talks import SECOND, START_US, Talk, asks, routes, tokens
from tests.support.tokenizer_files import PLAIN, tokenizer_json

Row = dict[str, Any]
DIGEST = "ab" * 32
ENGINE = Tokens("engine")


def make_renderer(template: str = PLAIN) -> Renderer:
    return Renderer(ChatTemplate(template, "here"), tokenizer_json(), "made")


def sample(
    *talks: Talk, options: Tokens = ENGINE, renderer: Renderer | None = None, **chain: Any
) -> tuple[list[Row], SampleRows]:
    rows = SampleRows(options, renderer)
    rows.add_chain([talk.conversation() for talk in talks], {"s-1": "train"}, **chain)
    table = rows.table()
    assert table.schema == SHARD_ROWS
    table.validate(full=True)
    ShardValidator().check(table, rows.routes())
    return table.to_pylist(), rows


def two_branches() -> Talk:
    talk = (
        Talk().start(task_id="t", group_id="g", license="MIT", tools=[{"name": "read"}]).user("go")
    )
    talk.model(
        "a", calls=[asks("c1")], model="m", tokens=tokens([1, 2], [3, 4], tokenizer="own"),
        sampling={"temperature": 0.5},
    )  # fmt: skip
    talk.result("c1", "one")
    talk.model("b", tokens=tokens([1, 2, 3, 4, 5], [6], tokenizer="own"))
    talk.model("c", tokens=tokens([9], [8, 8], tokenizer="own", policy_version_runs=[[0, 5]]))
    return talk.add("session_end", {"reason": "completed"})


def test_a_row_says_all_that_is_known_of_a_branch() -> None:
    (first, second), rows = sample(two_branches())
    assert first["messages"] == (
        '[{"role":"user","content":"go"},'
        '{"role":"assistant","content":"a","tool_calls":[{"id":"c1","type":"function",'
        '"function":{"name":"read","arguments":"{\\"path\\":  \\"a.py\\"}"}}]},'
        '{"role":"tool","content":"one","tool_call_id":"c1","name":"read"},'
        '{"role":"assistant","content":"b"}]'
    )
    del first["messages"]
    tools = json.loads(first.pop("tools"))
    sample_id = first.pop("sample_id")
    assert len(sample_id) == 64
    assert first == {
        "trajectory_id": "s-1", "rollout_id": "s-1", "group_id": "g", "task_id": "t",
        "session_id": "s-1", "branch_index": 0, "n_branches": 2, "chain_pos": 0,
        "is_last_step": False, "parent_sample_id": None, "link_kind": None,
        "input_ids": [1, 2, 3, 4, 5, 6], "loss_mask": [0, 0, 1, 1, 0, 1],
        "prompt_len": 2, "n_tokens": 6, "n_trainable": 3,
        "rollout_logprobs": [0, 0, -0.5, -0.5, 0, -0.5],
        "policy_version_runs": [{"start": 2, "version": 7}],
        "min_policy_version": 7, "max_policy_version": 7, "temperature": None,
        "temperature_runs": None,
        "advantage": None, "reward": None, "reward_components": [], "token_rewards": None,
        "turn_spans": [
            {"start": 0, "end": 2, "turn": 1, "role": 1, "sampled": False, "event_seq": 2},
            {"start": 2, "end": 4, "turn": 1, "role": 2, "sampled": True, "event_seq": 3},
            {"start": 4, "end": 5, "turn": 1, "role": 3, "sampled": False, "event_seq": 4},
            {"start": 5, "end": 6, "turn": 1, "role": 2, "sampled": True, "event_seq": 5},
        ],
        "routed_rows": None, "status": "completed", "stop_reason": "continued",
        "mask_reason": None, "error_kind": None, "loss_weight": 1.0, "token_source": "engine",
        "tokenizer_sha256": "own", "tokenizer_id": "own", "template_sha256": None,
        "model_name": None, "checkpoint_id": "ckpt-1", "source_system": "by-hand",
        "license": "MIT", "split": "train", "consent": "train",
        "created_at": first["created_at"], "preferences": None, "documents": None,
        **dict.fromkeys(HINT_COLUMNS),
    }  # fmt: skip
    assert first["created_at"].timestamp() == START_US / SECOND + 5
    assert tools == [{"name": "read"}]
    assert (second["trajectory_id"], second["branch_index"]) == ("s-1#1", 1)
    assert (second["parent_sample_id"], second["link_kind"]) == (sample_id, "fork")
    assert (second["stop_reason"], second["is_last_step"]) == ("completed", True)
    assert (second["min_policy_version"], second["prompt_len"]) == (5, 1)
    weights = [message.get("weight") for message in json.loads(second["messages"])]
    assert weights == [None, 0, None, 0, None]
    assert rows.left_out == []


def test_the_system_prompt_and_the_tools_are_in_the_row() -> None:
    """Exports of messages write both columns as they are."""
    offered = {"system": "Be careful.", "tools": [{"name": "read"}]}
    for at_start, in_call in ((offered, {}), ({}, offered)):
        talk = Talk().start(**at_start).user("go").model("a", tokens=tokens([1], [2]), **in_call)
        [row] = sample(talk)[0]
        first = json.loads(row["messages"])[0]
        assert (first["role"], first["content"]) == ("system", "Be careful.")
        assert json.loads(row["tools"]) == offered["tools"]


def test_an_id_is_of_the_session_the_branch_and_the_tokens() -> None:
    def ids(session: str, completion: int) -> list[str]:
        talk = Talk(session).user("go").model("a", tokens=tokens([1], [completion]))
        talk.model("b", tokens=tokens([1], [completion]))
        return [row["sample_id"] for row in sample(talk)[0]]

    assert ids("s-1", 2) == ids("s-1", 2)
    assert len({*ids("s-1", 2), *ids("s-2", 2), *ids("s-1", 3)}) == 6


def test_how_a_session_ended() -> None:
    for finish, stopped, end, status, reason in (
        ("stop", None, "completed", "completed", "completed"),
        ("stop", None, "user_stop", "aborted", "user_stop"),
        ("stop", None, "timeout", "truncated", "rollout_timeout"),
        ("stop", None, "crash", "failed", "crash"),
        ("stop", None, None, "completed", None),
        (None, None, None, "completed", None),
        ("length", None, "completed", "truncated", "max_tokens"),
        ("model_context_window_exceeded", None, "completed", "truncated", "context_overflow"),
        ("abort", None, "completed", "aborted", "aborted"),
        ("content_filter", None, "completed", "failed", "content_filter"),
        (None, "interrupt", "completed", "aborted", "interrupted"),
        (None, "error", "completed", "failed", "error"),
    ):
        talk = Talk().user("go").model("a", tokens=tokens([1], [2]), finish_reason=finish)
        if stopped is not None:
            talk.add(stopped, {})
        if end is not None:
            talk.add("session_end", {"reason": end})
        [row], _ = sample(talk)
        assert (row["status"], row["stop_reason"]) == (status, reason)


# Where tokens come from


def text_only() -> Talk:
    return Talk().user("go").model("a", tokens={"prompt_ids": [], "completion_ids": []}).model("b")


def mixed() -> Talk:
    return text_only().user("go on").model("c", tokens=tokens([1, 2, 3], [4]))


def broken() -> Talk:
    return Talk().user("go").model("a", tokens=tokens([1], [2], logprobs=[-1, -1]))


def redacted() -> Talk:
    """As redaction leaves a call whose text was masked."""
    secret = planted_secrets.aws_key(random.Random(1))
    payload = {"text": f"use {secret}", "tokens": tokens([1, 2], [3])}
    event = {"session_id": "s", "type": "model_call", "payload": payload}
    redactor = LineRedactor(rule_book("mask", "off"), lambda: b"k")
    [line] = redactor.redact([json.dumps(event).encode()], "default", 10_000).lines
    after = json.loads(line)["payload"]
    return Talk().user("go").model(after["text"], tokens=after["tokens"])


@pytest.mark.parametrize(
    ("talk", "source", "expected"),
    [
        (text_only(), "engine", "no_engine_tokens"),
        (redacted(), "engine", "redacted_tokens"),
        (redacted(), "prefer-engine", ["renderer"]),
        (broken(), "engine", "broken_tokens"),
        (Talk().user("go"), "engine", "nothing_written"),
        (Talk().user("go"), "render", "nothing_written"),
        (Talk(), "prefer-engine", "nothing_written"),
        (mixed(), "engine", ["engine"]),
        (mixed(), "prefer-engine", ["engine"]),
        (mixed(), "render", ["renderer"]),
        (text_only(), "prefer-engine", ["renderer"]),
        (broken(), "prefer-engine", ["renderer"]),
    ],
)
def test_recipes_say_where_tokens_come_from(
    talk: Talk, source: Any, expected: str | list[str]
) -> None:
    rows, found = sample(talk, options=Tokens(source), renderer=make_renderer())
    if isinstance(expected, str):
        assert rows == []
        assert found.left_out == [LeftOutBranches("s-1", expected, 0)]  # type: ignore[arg-type]
    else:
        assert [row["token_source"] for row in rows] == expected
        assert found.left_out == []


def test_ids_of_calls_after_what_was_masked_are_not_trained() -> None:
    """They were taken in by a gateway that had not seen it, or before it."""
    talk = Talk().user("go").model("a", tokens=tokens([1], [2]))
    talk.add("file_observed", {"text": "masked"}, redacted=True)
    talk.model("b", tokens=tokens([1, 2, 3], [4]))
    [row], found = sample(talk)
    assert row["input_ids"] == [1, 2]
    assert [(problem.kind, problem.event_id) for _, problem in found.problems] == [
        (TOKENS_REDACTED, "e4")
    ]
    rows, found = sample(redacted().model("b", tokens=tokens([1, 2, 3], [4])))
    assert (rows, found.left_out) == ([], [LeftOutBranches("s-1", "redacted_tokens", 0)])


def test_whoever_goes_on_from_a_session_has_read_what_was_masked_in_it() -> None:
    first = Talk("s-0").add("user_message", {"text": "masked"}, redacted=True)
    later = Talk("s-1", 5).start(parent_session="s-0", link="resume").user("go")
    later.model("a", tokens=tokens([1], [2]))
    rows, found = sample(first, later)
    assert rows == []
    assert LeftOutBranches("s-1", "redacted_tokens", 0) in found.left_out


def test_what_another_tokenizer_sampled_is_rendered_only_where_that_is_allowed() -> None:
    other = Talk().user("go").model("a", tokens=tokens([1], [2], tokenizer=DIGEST))
    renderer = make_renderer()
    with pytest.raises(TokenizerMismatch, match=r"s-1 .* digest is not [0-9a-f]{64}"):
        sample(other, options=Tokens("prefer-engine"), renderer=renderer)
    allowed = Tokens("prefer-engine", other_tokenizer="render")
    [row], _ = sample(other, options=allowed, renderer=renderer)
    assert row["token_source"] == "renderer"
    # One that is named otherwise may be the same; ids that it does not have are noted.
    named = Talk().user("go").model("a", tokens=tokens([1], [2], tokenizer="mine"))
    [row], rows = sample(named, options=Tokens("prefer-engine"), renderer=renderer)
    assert (row["token_source"], rows.strange) == ("engine", [])
    strange = Talk().user("go").model("a", tokens=tokens([1], [10**6], tokenizer="mine"))
    [row], rows = sample(strange, options=Tokens("prefer-engine"), renderer=renderer)
    assert (row["token_source"], rows.strange) == ("renderer", ["s-1"])


def test_rendered_rows_have_what_a_renderer_knows() -> None:
    renderer = make_renderer()
    [row], _ = sample(text_only(), options=Tokens("render"), renderer=renderer)
    assert row["rollout_logprobs"] is row["policy_version_runs"] is None
    assert row["tokenizer_sha256"] == renderer.tokenizer_sha256
    assert row["template_sha256"] == renderer.template_sha256
    with pytest.raises(InvalidInput, match="no tokenizer"):
        SampleRows(Tokens("prefer-engine"))


def test_broken_calls_are_said_in_the_row_and_by_session() -> None:
    talk = Talk().user("go").model("a", tokens=tokens([1], [2]))
    talk.model("b", tokens=tokens([1, 2], [3], logprobs=[0.1]))
    [row], rows = sample(talk.model("c", tokens=tokens([1, 2, 3], [4])))
    assert (row["error_kind"], row["mask_reason"]) == ("logprobs_positive", "broken_calls")
    assert [(session, one.kind) for session, one in rows.problems] == [
        ("s-1", "logprobs_positive"),
    ]  # fmt: skip
    weights = [message.get("weight") for message in json.loads(row["messages"])]
    assert weights == [None, None, 0, None]


def test_the_tokenizer_is_the_recipe_s_unless_the_engine_names_its_digest() -> None:
    def found(named: str | None, expected: str | None) -> list[str]:
        talk = Talk().user("go").model("a", tokens=tokens([1], [2], tokenizer=named))
        rows = SampleRows(Tokens("engine"))
        rows.expected = ExpectedTokens(expected)
        rows.add_chain([talk.conversation()], {})
        return [str(row["tokenizer_sha256"]) for row in rows.table().to_pylist()]

    assert found("sha256:" + DIGEST, None) == [DIGEST]
    assert found("org/model", DIGEST) == [DIGEST]
    assert found("org/model", None) == ["org/model"]
    assert found(None, None) == ["unknown"]
    assert found("cd" * 32, DIGEST) == []


# Lengths


def test_what_is_too_long_is_dropped_and_counted() -> None:
    rows, found = sample(two_branches(), options=Tokens("engine", max_length=5))
    assert [row["input_ids"] for row in rows] == [[9, 8, 8]]
    assert (rows[0]["branch_index"], rows[0]["n_branches"]) == (0, 1)
    assert (rows[0]["parent_sample_id"], rows[0]["link_kind"]) == (None, "fork")
    assert found.left_out == [LeftOutBranches("s-1", "too_long", 1)]


# Chains


def a_chain() -> list[Talk]:
    root = Talk("root").start(group_id="g", task_id="t").user("go")
    root.model("a", tokens=tokens([1], [2])).model("b", tokens=tokens([5], [6]))
    helper = Talk("helper", 10).start(parent_session="root", link="subagent").user("look")
    helper.model("c", tokens=tokens([7], [8]))
    after = Talk("after", 20).start(parent_session="root", link="compaction").user("on")
    return [after.model("d", tokens=tokens([9], [10])), root, helper]


def test_the_sessions_of_a_chain_are_one_rollout() -> None:
    rows, _ = sample(*a_chain())
    assert {(row["rollout_id"], row["group_id"], row["task_id"]) for row in rows} == {
        ("root", "g", "t"),
    }  # fmt: skip
    places = [(row["session_id"], row["chain_pos"], row["branch_index"]) for row in rows]
    assert places == [("root", 0, 0), ("root", 0, 1), ("helper", 1, 0), ("after", 2, 0)]
    assert [row["is_last_step"] for row in rows] == [False, False, False, True]
    assert [row["link_kind"] for row in rows] == [None, "fork", "subagent", "compaction"]
    ids = [row["sample_id"] for row in rows]
    assert [row["parent_sample_id"] for row in rows] == [None, ids[0], ids[1], ids[1]]
    # Only chosen ones have rows.
    rows, found = sample(*a_chain(), chosen={"helper", "after"}, rollout_id="r")
    assert [(row["session_id"], row["chain_pos"], row["rollout_id"]) for row in rows] == [
        ("helper", 1, "r"), ("after", 2, "r"),
    ]  # fmt: skip
    assert [row["parent_sample_id"] for row in rows] == [None, None]
    assert found.left_out == []


def test_a_branch_over_a_compaction_has_the_messages_of_both_contexts() -> None:
    talk = Talk().user("go").model("a", call_id="m", tokens=tokens([1], [2]))
    talk.add("compaction", {"summary_call_id": "m"}).model("b", tokens=tokens([1, 2, 3], [4]))
    [row], _ = sample(talk)
    contents = [message["content"] for message in json.loads(row["messages"])]
    assert contents == ["go", "a", "a", "b"]


# Experts


def test_experts_have_a_row_for_each_sample() -> None:
    talk = Talk().user("go").model("a", tokens=tokens([1, 2], [3], routed_experts=routes(3)))
    rows, found = sample(talk.model("b", tokens=tokens([9], [9])))
    assert [row["routed_rows"] for row in rows] == [3, None]
    table = found.routes()
    assert table is not None
    assert table.schema == ROUTE_ROWS
    assert table["sample_id"].to_pylist() == [row["sample_id"] for row in rows]
    assert table["routed_experts"].to_pylist() == [
        bytes([0, 100, 0, 100, 1, 101, 1, 101, 2, 102, 2, 102]), None,
    ]  # fmt: skip
    assert table["start"].to_pylist() == [0, None]
    assert table["dtype"].to_pylist() == ["uint8", None]
    assert sample(two_branches())[1].routes() is None


# All together


CALLS = st.lists(
    st.tuples(
        st.sampled_from(
            ["whole", "fork", "broken", "none", "compaction", "rollback", "experts"]
        ),
        st.booleans(),
    ),
    max_size=8,
)  # fmt: skip


@settings(max_examples=40)
@given(CALLS, st.sampled_from(["engine", "render", "prefer-engine"]))
def test_rows_keep_the_rules_of_a_shard(calls: list[tuple[str, bool]], source: Any) -> None:
    talk, prompt = Talk(), [1]
    for number, (kind, has_version) in enumerate(calls):
        talk.user("go")
        said = tokens(prompt, [number + 2, 3])
        if not has_version:
            said["policy_version_runs"] = None
        match kind:
            case "fork":
                said["prompt_ids"] = [99, *prompt]
            case "rollback":
                said["policy_version_runs"] = [[0, 7 - number]]
            case "experts":
                said["routed_experts"] = routes(len(prompt) + 1)
            case "broken":
                said["logprobs"] = [0.5]
            case "none":
                said = {}
            case "compaction":
                talk.add("compaction", {"summary_call_id": f"m{number - 1}"})
        payload = {"text": "a", "call_id": f"m{number}", "tokens": said}
        talk.add("model_call", payload, seq=number // 2)  # two of each number
        prompt = [*prompt, number + 2, 3, 4]
    options = Tokens(source, max_length=40)
    rows, _ = sample(talk, options=options, renderer=make_renderer())
    trained: list[int] = []
    for index, row in enumerate(rows):
        ids, mask, spans = row["input_ids"], row["loss_mask"], row["turn_spans"]
        assert len(ids) == len(mask) == row["n_tokens"] <= 40
        assert sum(mask) == row["n_trainable"] > 0
        assert mask.index(1) == row["prompt_len"]
        assert row["branch_index"] == index
        assert [one["start"] for one in spans] == [0, *(one["end"] for one in spans)][:-1]
        for span in spans:
            assert set(mask[span["start"] : span["end"]]) == {int(span["sampled"])}
        if row["rollout_logprobs"] is not None:
            assert len(row["rollout_logprobs"]) == len(ids)
            assert all(value <= 0 for value in row["rollout_logprobs"])
        if (runs := row["policy_version_runs"]) is not None:
            assert runs[0]["start"] == row["prompt_len"]
        numbers = (one["event_seq"] for one in spans if one["sampled"])
        trained += [number for number in numbers if number is not None]
        json.loads(row["messages"])
    assert len(trained) == len(set(trained))
    assert [row["is_last_step"] for row in rows] == [False] * (len(rows) - 1) + [True] * bool(rows)
