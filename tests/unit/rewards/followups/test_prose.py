"""What a text cannot have without certain marks is not searched for: nothing is missed by it."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock_jobs.rewards.followups.judge import fresh_examples, held_out_examples
from penstock_jobs.rewards.followups.message_parts import SHAPES, take_apart

PIECES = st.sampled_from(
    [
        "Traceback (most recent", 'File "a.py", line 3', "ValueError: x", "  at a.b (", "panic: ",
        "x.go:3", "error[E042]", "--> a/b.rs:3", "panicked at", "SIGSEGV", "ld: ", "clang",
        "src/x.ts:1:2", "error TS12", "ERR!", "[ERROR]", "E  ", "ASSERTionerror", "expecTED: ",
        "reCEIVED: ", "TOBE(", "3 failed", "2 tests fail", "FAILED", "test_x", "$ ls", "exit code",
        "x: line 3:", "No such file", "WARN", "2026-01-02 10:10", "404", "413", "429", "503",
        "Caused by:", "\n", " ", "\u2028", "word", ".", "-", "/", "\u017f", "\u0130", "\u0131",
    ]
)  # fmt: skip


@given(st.lists(PIECES, max_size=8).map("".join))
@example("a\u017f\u017fertError")
@example("Rece\u0131ved: ")
def test_marks_miss_nothing(text: str) -> None:
    for name, shape in SHAPES.items():
        found = shape.pattern.search(text) is not None
        assert shape.is_in(text, text.lower()) == found, name


@pytest.mark.parametrize("name", SHAPES)
def test_marks_miss_nothing_in_the_examples(name: str) -> None:
    for one in [*fresh_examples(), *held_out_examples()]:
        text, shape = one.message.text, SHAPES[name]
        assert shape.is_in(text, text.lower()) == (shape.pattern.search(text) is not None)


def test_a_long_run_without_spaces_is_no_trouble() -> None:
    parts = take_apart("a/" * 3_000 + "b.py:3")
    assert dict(zip(SHAPES, parts.shapes, strict=True))["compiler"]
