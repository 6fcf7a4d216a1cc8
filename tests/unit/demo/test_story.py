"""The table of the demonstration tells what was measured from what is true."""

from penstock_jobs.simulator.demo.labels import JudgeMiss, judge_sentences
from penstock_jobs.simulator.demo.story import (
    ACTS,
    COLUMNS,
    Chapter,
    StoryEnding,
    UserReaction,
    curve_lines,
    table_rows,
)

ENDING = StoryEnding("demo-0002", UserReaction(0.9, 0.2), UserReaction(0.88, 0.25), 0.9, 0.85)


def chapter(measured: UserReaction, score: float | None) -> Chapter:
    return Chapter(
        number=1, act=ACTS[0], parent="demo-0000", sessions=220, right=0.35, measured=measured,
        known=UserReaction(0.75, 0.5), checkpoint="demo-0001", score=score, score_before=0.4,
        verdict="PASS", outcome="rolled_back", why="", stages=(),
    )  # fmt: skip


def test_columns_tell_what_was_measured_from_what_is_true() -> None:
    first = chapter(UserReaction(0.8, 0.4, 0.034, 0.06), 0.5)
    [row, last] = table_rows([first], ENDING)
    assert dict(zip(COLUMNS, row, strict=True)) == {
        "cycle": "1",
        "served by": "demo-0000",
        "right: truth": "35%",
        "edits kept: measured": "80% ± 3",
        "edits kept: truth": "75%",
        "dissatisfied: measured": "40% ± 6",
        "dissatisfied: truth": "50%",
        "benchmark before → after": "0.40 → 0.50",
        "gate": "PASS",
        "outcome": "demo-0001 rolled back",
    }
    assert (last[0], last[-1]) == ("after", "serves")


def test_what_nobody_knows_is_no_number() -> None:
    row, _ = table_rows([chapter(UserReaction(None, None), None)], ENDING)
    assert (row[3], row[5], row[7]) == ("—", "—", "")


def test_the_curve_has_a_line_for_each_checkpoint_that_served() -> None:
    first = chapter(UserReaction(0.5, 0.4), 0.5)
    _, *lines = curve_lines([first], ENDING)
    assert [line.split() for line in lines] == [
        ["demo-0000", "████████", "35%", "████████████", "50%", "0.40"],
        ["demo-0002", "██████████████████████", "90%", "██████████████████████", "90%", "0.85"],
    ]


def test_the_largest_miss_of_the_judge_is_named_wherever_it_was() -> None:
    true = UserReaction(0.9, 0.5)
    misses = [
        JudgeMiss.of("demo-0000", UserReaction(0.9, 0.42), true, None),
        JudgeMiss.of("demo-0005", UserReaction(0.9, 0.26), true, (0.47, 0.1)),
        JudgeMiss.of("demo-0006", UserReaction(0.9, None), true, None),
    ]
    said = judge_sentences(misses)
    assert "up to 24 points from the truth, for demo-0005" in said
    assert "labels of messages that chance draws correct it: that was up to 3 points" in said
    assert "labels" not in judge_sentences(misses[:1])
    assert judge_sentences(misses[2:]) == "The judge read no message."
