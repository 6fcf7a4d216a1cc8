"""What users made of edits: whole lines of the file as they left it, in the call that wrote it."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from penstock.shards.validation import ShardValidator
from penstock_jobs.rewards.bucket import EditParameters
from penstock_jobs.rewards.texts.replay import replay
from penstock_jobs.shards.conversation.conversation import ChatMessage, openai_message
from penstock_jobs.shards.conversation.session_events import ToolCall
from penstock_jobs.shards.rows.preferences import Correction, Preference, correction_of
from penstock_jobs.shards.rows.token_credit import EditMark
from tests.support.shards.making import make_row, table_of

SECOND = 1_000_000
HEAD, TAIL = "import subprocess\n\n\ndef f(a, b):\n", "    return a\n"
RUN = "    subprocess.run([a, b], check=False)\n"


def correction(before: str, after: str, left: str) -> Correction | None:
    """An edit of a file, which the user is seen to have left otherwise ten minutes later."""
    own: dict[str, Any] = {"session_id": "s", "event_id": None, "path": "a.py"}
    edit = own | {"seq": 1, "ts": 0, "edit_id": "e1", "before": before, "after": after}
    look = own | {"seq": 2, "ts": 601 * SECOND, "text": left}
    [tracked] = replay(
        [edit | {"checkpoint": None, "turn": 1}],
        [look | {"deleted": False, "branch_changed": False}],
        [],
        turns_us=[0],
        ended_us=None,
        as_of_us=3600 * SECOND,
        terms=EditParameters(horizons_s=(600,)).terms(),
    )
    return correction_of(tracked, EditMark("e1", "t1", 0, 1))


def asked(arguments: str) -> ChatMessage:
    return ChatMessage("assistant", "", 1, tool_calls=(ToolCall("t1", "edit", arguments),))


def put(found: Correction | None, **arguments: str) -> dict[str, str] | str:
    """The arguments of the call with what the user left, or why there is no pair."""
    assert found is not None
    message = found.in_message(asked(json.dumps(arguments)))
    if isinstance(message, str):
        return message
    corrected: dict[str, str] = json.loads(message.tool_calls[0].arguments)
    return corrected


def test_a_rewrite_of_more_than_the_edit_is_taken_by_whole_lines_or_not_at_all() -> None:
    before, after = "    run([a, b], check=True)\n", RUN
    left = '    run(a, b, "fast")\n'
    found = correction(HEAD + before + TAIL, HEAD + after + TAIL, HEAD + left + TAIL)
    # The agent replaced two stretches of a line that the user wrote anew as a whole.
    assert put(found, old="check=True", new="check=False") == "changed_edit_not_in_call"
    cut = {"old": "run([a, b], check=True)", "new": "subprocess.run([a, b], check=False)"}
    assert put(found, **cut) == cut | {"new": left.strip()}
    assert put(found, old=before, new=after) == {"old": before, "new": left}
    assert put(found, text=HEAD + after + TAIL) == {"text": HEAD + left + TAIL}
    inside = "subprocess.run([a, b], check=False"
    assert put(found, new=inside) == "changed_edit_not_at_lines"


def test_lines_that_are_not_the_users_alone_make_no_pair() -> None:
    """The user also rewrote the line before, so nobody knows which of theirs stand for which."""
    found = correction(HEAD + TAIL, HEAD + RUN + TAIL, "import os\nos.system(a)\n" + TAIL)
    assert put(found, new=RUN) == "changed_edit_not_at_lines"
    assert put(found, path="a.py") == "changed_edit_not_in_call"


@pytest.mark.parametrize("ascii_only", [False, True])
def test_json_stays_as_it_was_written_around_a_text(ascii_only: bool) -> None:
    new, left = '    print("ü")\n', '    print("ö", 1)\n'
    found = correction(HEAD + TAIL, HEAD + new + TAIL, HEAD + left + TAIL)
    assert found is not None
    around = '{"a" :1,  "text":%s, "b": [null]}'
    text, expected = (around % json.dumps(own, ensure_ascii=ascii_only) for own in (new, left))
    message = found.in_message(asked(text))
    assert isinstance(message, ChatMessage)
    assert message.tool_calls[0].arguments == expected
    for odd in ("{", "[1, 2]", "[" * 100_000):
        assert found.in_message(asked(odd)) == "changed_edit_not_in_call"


# Whatever agents and users do


LINES = st.sampled_from(
    ["def f(a, b):", RUN[:-1], "    run(a, b)", "    return a", "        x = 1", "}", "", "x = 1"]
)
PIECES = st.sampled_from(["subprocess.run(", "run(a, b)", "    ", "check=True", "\nx = 2\n", ""])
WRITTEN = st.one_of(
    st.lists(PIECES, max_size=5).map("".join),
    st.lists(LINES, min_size=1, max_size=4).map(lambda lines: "\n".join([*lines, ""])),
)


@st.composite
def cut(draw: st.DrawFn, text: str, low: int, high: int) -> tuple[int, int]:
    """A stretch of a text between two places, cut anywhere or at lines."""
    lines = [0, *(at + 1 for at, letter in enumerate(text) if letter == "\n"), len(text)]
    lines = [at for at in lines if low <= at <= high] or [low]
    place = st.one_of(st.integers(low, high), st.sampled_from(lines))
    start, end = sorted((draw(place), draw(place)))
    return start, end


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_chosen_text_is_whole_lines_that_the_user_left(data: st.DataObject) -> None:
    before = "\n".join(data.draw(st.lists(LINES, min_size=3, max_size=8)))
    start, end = data.draw(cut(before, 0, len(before)))
    new = data.draw(WRITTEN)
    made = before[:start] + new + before[end:]
    one, other = data.draw(cut(made, max(start - 20, 0), min(start + len(new) + 20, len(made))))
    left = made[:one] + data.draw(WRITTEN) + made[other:]
    found = correction(before, made, left) if before != made else None
    if found is None:
        return
    # What the call holds: the file, or a part of it that is cut anywhere.
    around = data.draw(cut(made, 0, start))[0], data.draw(cut(made, start + len(new), len(made)))[1]
    low, high = data.draw(st.sampled_from([(0, len(made)), (start, start + len(new)), around]))
    written = made[low:high]
    rejected = asked(json.dumps({"path": "a.py", "text": written}))
    message = found.in_message(rejected)
    event(message if isinstance(message, str) else "pair")
    if isinstance(message, str):
        return
    chosen = json.loads(message.tool_calls[0].arguments)["text"]
    # Each line is one that somebody wrote, and all of them stand in the file as they are here.
    whole = made[:low] + chosen + made[high:]
    assert {*whole.split("\n")} <= {*made.split("\n"), *left.split("\n")}
    body = chosen.removesuffix("\n")
    assert any(f"\n{' ' * indent}{body}\n" in f"\n{left}\n" for indent in range(17))
    sides = [openai_message(message)], [openai_message(rejected)]
    ShardValidator().check(table_of([paired(Preference("edited", 0, *sides, [left]))]))


def paired(*pairs: Preference) -> dict[str, Any]:
    texts = {"messages": pairs[0].rejected, "preferences": pairs}
    encoded = {name: msgspec.json.encode(value).decode() for name, value in texts.items()}
    return make_row("g") | encoded
