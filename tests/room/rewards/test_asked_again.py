"""asked_again: a request that has to be repeated was not done."""

from pathlib import Path

import pytest

from penstock_jobs.rewards.measures.dissatisfied import (
    RequestParameters,
    asked_again,
    words_of,
)
from tests.support.lakes import Event
from tests.support.reward_events import answered, bucket_of, said
from tests.support.rewards.stories import Row

REQUEST = "Let compute_prices apply the discount of each customer group before taxes"
PARAMETERS = RequestParameters()


def rows(tmp_path: Path, events: list[Event]) -> list[Row]:
    table = asked_again(bucket_of(tmp_path / "lake", events), PARAMETERS)
    found = [row for row in table.to_pylist() if row["target_kind"] == "turn"]
    return sorted(found, key=lambda row: int(row["target_id"]))


def after(tmp_path: Path, request: str, message: str) -> Row:
    events = [said(1, request), answered(2, text="Done."), said(3, message)]
    (row,) = rows(tmp_path, events)
    return row


@pytest.mark.parametrize(
    "message",
    [
        REQUEST,
        f"You did a half of it. Again: {REQUEST}",
        f"STILL MISSING!! {REQUEST.upper()}",
    ],
)
def test_the_same_again_is_worth_minus_one(tmp_path: Path, message: str) -> None:
    assert after(tmp_path, REQUEST, message)["value"] == -1


@pytest.mark.parametrize(
    "message",
    ["thanks", "Great. Now write a test for compute_prices.", "Why does the export take so long?"],
)
def test_what_is_new_is_no_repetition(tmp_path: Path, message: str) -> None:
    assert after(tmp_path, REQUEST, message)["value"] == 0


def test_a_part_counts_above_the_free_share(tmp_path: Path) -> None:
    # Four words of five letters; three come again: (0.75 − 0.4) / 0.6.
    row = after(tmp_path, "alpha bravo delta gamma", "delta alpha other bravo")
    assert row["value"] == pytest.approx(-0.35 / 0.6)


def test_scripts_without_spaces(tmp_path: Path) -> None:
    request = "请让计算价格的函数在计税之前先应用每个客户组的折扣"
    assert after(tmp_path, request, f"还是不对, {request}")["value"] == -1
    assert set(words_of("按组")) == {"按组"}


def test_a_word_is_not_said_again_by_an_empty_message(tmp_path: Path) -> None:
    row = after(tmp_path, "fix it", "fix it")
    assert (row["state"], row["reason"]) == ("censored", "short_request")


def test_silence_is_censored_and_what_follows_an_idle_turn_is_about_nothing(
    tmp_path: Path,
) -> None:
    events = [said(1, REQUEST), said(2, REQUEST), answered(3, text="Done."), said(4, "thanks")]
    events += [answered(5, text="You are welcome.")]
    first, last = rows(tmp_path, events)
    assert (first["target_id"], first["value"]) == ("2", 0)
    assert (last["target_id"], last["reason"]) == ("3", "silence")


def test_what_a_program_wrote_is_no_request(tmp_path: Path) -> None:
    note = f"<system-reminder>{REQUEST}</system-reminder>"
    events = [said(1, REQUEST), answered(2, text="Done."), said(3, note)]
    (row,) = rows(tmp_path, events)
    assert row["reason"] == "silence"


def test_the_free_share_is_below_one() -> None:
    with pytest.raises(ValueError, match="free_share"):
        RequestParameters(free_share=1.0)
