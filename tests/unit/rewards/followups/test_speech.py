"""What the user says themselves, and what it comes down to."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock_jobs.rewards.followups.features import columns, features, read
from penstock_jobs.rewards.followups.judge import Message, Tests
from penstock_jobs.rewards.followups.local_judge import LocalJudge
from penstock_jobs.rewards.followups.speech import SHAPES, speech_of


@pytest.mark.parametrize(
    "pasted",
    [
        "```\nERROR it failed\n```",
        "> I could not test it",
        "2026-03-02 10:11:09 ERROR retry 1 of 3",
        "[12:04:11] WARN cache miss",
        'Traceback (most recent call last):\n  File "a.py", line 3, in push\nKeyError: 3',
        "$ make test",
        "npm ERR! code ELIFECYCLE",
        "make: *** [build] Error 2",
        '{"error": null, "page": 1}',
        "psycopg.errors.UndefinedColumn: column does not exist",
    ],
)
def test_what_is_pasted_is_not_said(pasted: str) -> None:
    speech = speech_of(f"have a look\n{pasted}\nall fine now")
    assert speech.clauses == ("have a look", "all fine now")
    assert speech.pasted > 0


@pytest.mark.parametrize(
    "said", ["ok next", "npm install works now", "a ValueError would be better here, I think"]
)
def test_what_is_said_is_not_taken_for_pasted(said: str) -> None:
    assert speech_of(said).text == said.lower()


@pytest.mark.parametrize(
    ("text", "end"),
    [
        (
            "great, but the button belongs in the header, thanks!",
            "the button belongs in the header",
        ),
        ("it works. now the docs please", "now the docs please"),
        ("schön, aber die Summen fehlen", "die summen fehlen"),
        ("很好看\uff0c不过按钮应该放在页头", "按钮应该放在页头"),
        ("thanks", "thanks"),
        ("", ""),
    ],
)
def test_what_it_comes_down_to(text: str, end: str) -> None:
    assert read(Message(text=text)).end_text == end


@pytest.mark.parametrize(
    "text", ["fix the error handling", "Fehlerbehandlung bitte auch dort", "错误处理也改一下"]
)
def test_a_failing_word_that_is_the_subject_is_taken_out(text: str) -> None:
    reading = read(Message(text=text))
    assert "§" in reading.text
    assert "fails" not in reading.groups


@settings(max_examples=30)
@given(st.text(max_size=200), st.text(max_size=50))
def test_any_text_has_features_within_the_columns(text: str, agent: str) -> None:
    rows = features([Message(text=text, agent=agent)])
    assert rows.column.min() >= 0
    assert rows.column.max() < columns()


def test_long_runs_cost_no_more_than_their_length() -> None:
    for run in ("." * 6_000, "a@" * 3_000, "_" * 6_000, "> " * 3_000, "但" * 6_000):
        assert read(Message(text=run)).text is not None


OUTCOMES: tuple[Tests | None, ...] = (None, "passed", "failed")


@pytest.mark.parametrize("text", ["No, that is wrong. I had to revert it.", "hm, about that", "ok"])
def test_what_an_agent_can_bring_about_says_nothing_of_its_work(text: str) -> None:
    """Else a trivial test that passes, and a claim, would buy a better word from the judge."""
    judge = LocalJudge()
    [plain, *others] = judge.judge(
        [
            Message(text=text, agent=agent, edited=True, tests=tests)
            for agent in ("Here it is.", "Done: all tests pass, everything works perfectly now.")
            for tests in OUTCOMES
        ]
    )
    assert {judged.dissatisfied for judged in others} == {plain.dissatisfied}


# What a text cannot have without certain marks is not searched for: nothing is missed by it

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
