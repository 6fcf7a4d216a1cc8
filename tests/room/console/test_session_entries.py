"""What the page of a session is made of."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock_jobs.rewards.measures.verdict import REQUEST
from penstock_jobs.sessions.edit_fates import EditFate
from penstock_jobs.sessions.entries import (
    DIFF_LINES_MAX,
    TEXT_CHARS_MAX,
    Entry,
    EntryPlace,
    Rewards,
    diff_of,
    entries_of,
    request_of,
)
from penstock_jobs.sessions.reading import EventRecord
from penstock_jobs.sessions.tokens import TokenTexts, token_calls
from tests.support.tokenizer_files import tokenizer_json

AT = datetime(2026, 11, 20, 9, tzinfo=UTC)


def event(kind: str, payload: Any, **fields: Any) -> EventRecord:
    return EventRecord(AT, kind, msgspec.Raw(msgspec.json.encode(payload)), **fields)


def reward(kind: str, target: str, name: str, **fields: Any) -> dict[str, Any]:
    row = {"target_kind": kind, "target_id": target, "name": name, "horizon_s": None}
    return row | {"value": 0.5, "state": "scored", "reason": None} | fields


def entries(*events: EventRecord, rows: Any = (), place: EntryPlace | None = None) -> list[Entry]:
    place = place or EntryPlace()
    return list(entries_of(events, Rewards(rows), {}, place, last=True))


def test_a_change_shows_first_what_went_and_then_what_came() -> None:
    diff = diff_of("a\nb\nc\nd\n", "a\nB\nC\nd\n", None)
    assert [line.sign + line.text for line in diff.lines] == [" a", "-b", "-c", "+B", "+C", " d"]
    assert (diff.added, diff.removed) == (2, 2)


def test_lines_far_from_a_change_are_folded() -> None:
    before = "".join(f"{number}\n" for number in range(40))
    diff = diff_of(before, before.replace("\n20\n", "\nx\n"), None)
    folded = [line.text for line in diff.lines if line.sign == "…"]
    assert folded == ["17 unchanged lines", "16 unchanged lines"]
    assert len(diff.lines) == 2 + 3 + 2 + 3


def test_added_lines_say_what_became_of_them() -> None:
    fate = EditFate(1, 300, None, {"x": ["gone"], "y": ["surviving"]})
    diff = diff_of("", "x\ny\nz\n", fate)
    assert [line.fate for line in diff.lines] == ["gone", "surviving", "unknown"]


def test_long_texts_and_diffs_are_cut_and_say_so() -> None:
    diff = diff_of("a\n" * DIFF_LINES_MAX, "b\n", None)
    assert (diff.too_long, diff.lines) == (True, [])
    [message, _] = entries(event("user_message", {"text": "x" * (TEXT_CHARS_MAX + 7)}))
    assert message.text is not None
    assert len(message.text.text) == TEXT_CHARS_MAX
    assert message.text.left_out == 7


def test_rewards_stand_at_what_they_are_about() -> None:
    rows = [
        reward("turn", "1", "dissatisfied"),
        reward("model_call", "c1", "reward"),
        reward("edit", "e1", "line_survival", horizon_s=30),
        reward("edit", "e1", "line_survival", horizon_s=300, value=0.25),
        reward("edit", "e1", "line_survival", horizon_s=900, value=None, state="pending"),
    ]
    shown = entries(
        event("user_message", {"text": "one"}),
        event("model_call", {"call_id": "c1", "text": "yes", "tokens": {"completion_ids": [1]}}),
        event("edit", {"path": "a", "edit_id": "e1", "before": "", "after": "x\n"}),
        event("user_message", {"text": "two"}),
        rows=rows,
    )
    assert [entry.turn for entry in shown] == [1, 1, 1, 2, 2]
    assert [row["name"] for row in shown[1].rewards] == ["reward"]
    assert shown[1].has_tokens
    [survival] = shown[2].rewards
    assert survival["value"] == 0.25  # the latest horizon that has a value
    assert [row["name"] for row in shown[3].turn_rewards] == ["dissatisfied"]
    assert Rewards(rows, 30).of("edit", "e1")[0]["horizon_s"] == 30


def test_what_a_turn_and_its_request_both_say_stands_once() -> None:
    rows = [
        reward("turn", "1", REQUEST, value=1.0),
        reward("turn", "1", "dissatisfied", value=0.25),
        reward("turn", "1", "turn_length", value=0.1),
        reward("request", "1", "dissatisfied", value=0.25),
        reward("request", "1", "reward", value=0.5),
    ]
    *_, end = entries(event("user_message", {"text": "one"}), rows=rows)
    assert [row["name"] for row in end.turn_rewards] == ["turn_length"]
    assert [row["name"] for row in end.request_rewards] == ["dissatisfied", "reward"]


def test_arguments_are_shown_by_name_and_what_a_program_sent_is_context() -> None:
    calls = [
        {"id": "1", "name": "edit", "arguments": {"path": "a.py", "lines": [1, 2]}},
        {"id": "2", "name": "run", "arguments": "no JSON"},
    ]
    events = [
        event("user_message", {"text": "cwd: /", "synthetic": True}),
        event("user_message", {"text": "mend\nthe cart"}),
        event("model_call", {"tool_calls": calls}),
    ]
    context, said, agent, _ = entries(*events)
    assert (context.is_context, said.is_context) == (True, False)
    edit, run = agent.calls
    assert [(name, text.text) for name, text in edit.fields] == [
        ("path", "a.py"),
        ("lines", "[1,2]"),
    ]
    assert (run.fields, run.arguments.text) == ([], "no JSON")
    assert request_of(events) == "mend the cart"
    assert request_of(events[:1]) == ""


def test_a_part_goes_on_where_the_one_before_ended() -> None:
    place = EntryPlace(events=10, turn=3)
    [message, _] = entries(event("user_message", {"text": "more"}), place=place)
    assert (message.number, message.turn) == (11, 4)


def test_payloads_that_nobody_can_read_are_shown_all_the_same() -> None:
    shown = entries(
        event("model_call", {"text": 7}), event("edit", {}), event("error", {"message": "<b>"})
    )
    assert [entry.kind for entry in shown] == ["note", "edit", "problem", "note"]


def test_tokens_have_their_versions_and_how_expected_they_were() -> None:
    tokens = {
        "prompt_ids": [5, 6],
        "completion_ids": [7, 8, 9],
        "logprobs": [-0.01, -0.7, -9.0],
        "policy_version_runs": [[0, 3], [2, 4]],
    }
    [call, broken] = token_calls(
        [
            event("model_call", {"call_id": "c", "tokens": tokens}, checkpoint="ckpt"),
            event("model_call", {"tokens": {"completion_ids": [1], "logprobs": []}}),
            event("model_call", {"text": "without"}),
        ],
        TokenTexts(""),
    )
    assert (call.prompt, call.completion, call.versions) == (2, 3, ["3", "4"])
    assert [(token.version, token.surprise) for token in call.tokens] == [
        ("3", 0), ("3", 2), ("4", 4),
    ]  # fmt: skip
    assert broken.mean_logprob is None


def test_ids_of_a_known_tokenizer_have_their_texts(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    file = tmp_path / "tokenizer.json"
    file.write_bytes(tokenizer_json())
    ids = tokenizers.Tokenizer.from_file(str(file)).encode("a::b").ids
    texts = TokenTexts(f"mine={file}")
    for name in ("mine", ""):
        found, problem = texts.of(name, ids)
        assert (len(found), problem) == (len(ids), "")
        assert "".join(found).startswith("a::b")
    assert texts.of("another", ids) == ([], "")
    assert texts.of("mine", [2**31]) == ([""], "")
    missing, why = TokenTexts("mine=" + str(tmp_path / "none")).of("mine", ids)
    assert not missing
    assert "none" in why


def test_looks_in_a_row_are_one_entry() -> None:
    look = {"path": "a.py", "text": "x"}
    shown = entries(
        event("file_observed", look),
        event("file_observed", look),
        event("file_observed", {"path": "b.py", "deleted": True}),
        event("user_message", {"text": "?"}),
    )
    assert [entry.title for entry in shown][:2] == ["a.py was observed", "b.py was deleted"]
    assert shown[0].about.startswith("2 times, until ")
    assert [entry.kind for entry in shown][:3] == ["note", "note", "user"]
