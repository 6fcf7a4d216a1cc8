"""asked_again: a request that has to be repeated was not done."""

from pathlib import Path

import pytest

from penstock_jobs.rewards.measures.dissatisfied import (
    AskedAgainParameters,
    LocalJudgeParameters,
    asked_again,
    dissatisfied_follow_up,
)
from penstock_jobs.rewards.requests import repeated_share, words_of
from tests.support.lakes import Event
from tests.support.reward_events import answered, bucket_of, said
from tests.support.rewards.stories import Row

REQUEST = "Let compute_prices apply the discount of each customer group before taxes"
CHINESE = "请让计算价格的函数在计税之前先应用每个客户组的折扣"
PARAMETERS = AskedAgainParameters()


def told(tmp_path: Path, events: list[Event], name: str = "asked_again") -> list[Row]:
    bucket = bucket_of(tmp_path / name, events)
    rows = asked_again(bucket, PARAMETERS)
    if name == "dissatisfied_follow_up":
        rows = dissatisfied_follow_up(bucket, LocalJudgeParameters(unsure=(0.5, 0.5)))
    found = [row for row in rows.to_pylist() if row["target_kind"] == "request"]
    return sorted(found, key=lambda row: int(row["target_id"]))


def after(tmp_path: Path, request: str, message: str, name: str = "asked_again") -> Row:
    events = [said(1, request), answered(2, text="Done."), said(3, message)]
    (row,) = told(tmp_path, events, name)
    return row


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (REQUEST, REQUEST),
        (REQUEST, f"You did a half of it. Again: {REQUEST}"),
        (REQUEST, f"STILL MISSING!! {REQUEST.upper()}"),
        (CHINESE, f"还是不对, {CHINESE}"),
    ],
)
def test_the_same_again_is_worth_minus_one_with_what_the_judge_saw(
    tmp_path: Path, request_: str, message: str
) -> None:
    row = after(tmp_path, request_, message)
    judged = after(tmp_path, request_, message, "dissatisfied_follow_up")
    assert row["value"] + (judged["value"] or 0) == pytest.approx(-1)
    assert row["target_id"] == judged["target_id"] == "1"


@pytest.mark.parametrize(
    "message",
    ["thanks", "Great. Now write a test for compute_prices.", "Why does the export take so long?"],
)
def test_what_is_new_is_no_repetition(tmp_path: Path, message: str) -> None:
    assert after(tmp_path, REQUEST, message)["value"] == 0


def test_words_are_those_of_three_characters_or_pairs() -> None:
    assert words_of("a new 按组 of_it x1") == {"new", "of_it", "按组"}


def test_a_part_counts_by_the_length_of_its_words() -> None:
    assert repeated_share("alpha bravo delta gamma", "delta alpha other bravo") == 0.75


def test_a_word_is_not_said_again_by_an_empty_message(tmp_path: Path) -> None:
    row = after(tmp_path, "fix it", "fix it")
    assert (row["state"], row["reason"]) == ("censored", "short_request")


def test_silence_is_censored(tmp_path: Path) -> None:
    events = [said(1, REQUEST), said(2, REQUEST), answered(3, text="Done.")]
    (row,) = told(tmp_path, events)
    assert (row["target_id"], row["reason"]) == ("1", "silence")


def test_what_a_program_wrote_is_no_request(tmp_path: Path) -> None:
    note = f"<system-reminder>{REQUEST}</system-reminder>"
    events = [said(1, REQUEST), answered(2, text="Done."), said(3, note)]
    (row,) = told(tmp_path, events)
    assert row["reason"] == "silence"


def test_the_free_share_is_below_one() -> None:
    with pytest.raises(ValueError, match="free_share"):
        AskedAgainParameters(free_share=1.0)
