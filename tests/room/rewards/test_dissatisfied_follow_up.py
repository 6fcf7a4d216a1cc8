"""What the next message says of a turn, as a reward."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock_jobs.rewards.definition import find_definition
from penstock_jobs.rewards.followups.judge import Judgement, Message
from penstock_jobs.rewards.followups.labels import SessionLabels, StoredLabel, digest_of
from penstock_jobs.rewards.followups.llm_judge import judge_version
from penstock_jobs.rewards.measures.dissatisfied import (
    JudgeUnfit,
    LocalJudgeParameters,
    dissatisfied_follow_up,
    judged_follow_up,
)
from penstock_jobs.rewards.requests import RawJudgeParameters
from tests.support.lakes import Event, make_event
from tests.support.reward_events import answered, bucket_of, said

UNCLEAR_TALK = [said(1, "fix it"), answered(2, text="Done."), said(3, "hm, about that")]
PRAISE = "perfect, thanks! Next: add a button that exports the table as CSV"
REPROACH = "no, that is wrong, you broke the login. revert it"


def rewards(directory: Path, events: list[Event]) -> dict[str, dict[str, Any]]:
    rows: pa.Table = dissatisfied_follow_up(bucket_of(directory, events), LocalJudgeParameters())
    return {row["target_id"]: row for row in rows.to_pylist() if row["target_kind"] == "request"}


def test_a_reproach_is_worse_than_praise(tmp_path: Path) -> None:
    events = [
        said(1, "fix the login"), answered(2, text="Done."),
        said(3, PRAISE), answered(4, text="Done."), said(5, REPROACH),
    ]  # fmt: skip
    found = rewards(tmp_path, events)
    assert set(found) == {"1", "2"}
    assert -0.5 < found["1"]["value"] <= 0
    assert -1 <= found["2"]["value"] < -0.5


def test_silence_is_censored_and_who_stops_the_session_has_abandoned_it(tmp_path: Path) -> None:
    events = [said(1), answered(2, text="Done.")]
    found = rewards(tmp_path / "silent", events)
    assert (found["1"]["value"], found["1"]["reason"]) == (None, "silence")
    end = make_event("s", 3, "session_end", payload={"reason": "user_stop"})
    assert rewards(tmp_path / "stopped", [*events, end])["1"]["value"] == -1


@pytest.mark.parametrize("parameters", [LocalJudgeParameters, RawJudgeParameters])
def test_a_definition_cannot_ask_for_a_judge_that_is_not_there(parameters: Any) -> None:
    with pytest.raises(ValueError, match=r"the local judge has version .*, not 0"):
        parameters(judge="0")


def test_what_the_judge_cannot_tell_is_censored_and_never_0(tmp_path: Path) -> None:
    bucket = bucket_of(tmp_path, UNCLEAR_TALK)
    [row, _] = dissatisfied_follow_up(bucket, LocalJudgeParameters(unsure=(0.0, 1.0))).to_pylist()
    assert (row["state"], row["reason"], row["value"]) == ("censored", "unsure", None)
    [row, _] = dissatisfied_follow_up(bucket, LocalJudgeParameters(unsure=(0.5, 0.5))).to_pylist()
    assert row["state"] == "scored"
    [judged, _] = judged_follow_up(bucket, RawJudgeParameters()).to_pylist()
    assert (judged["target_id"], judged["value"]) == ("2", -row["value"])


class Model:
    """Finds every message dissatisfied."""

    name = "llm"
    version = judge_version("m", LocalJudgeParameters.message_chars_max)

    def judge(self, messages: Sequence[Message]) -> list[Judgement]:
        return [Judgement("corrects", 0.9, 0.9) for _ in messages]


@pytest.mark.parametrize(("unsure", "asked"), [((0.0, 1.0), True), ((0.5, 0.5), False)])
def test_a_model_settles_only_what_the_judge_cannot_tell(
    unsure: tuple[float, float], asked: bool, tmp_path: Path
) -> None:
    bucket = replace(bucket_of(tmp_path, UNCLEAR_TALK), llm_judge=Model())
    parameters = LocalJudgeParameters(unsure=unsure, settled_by="m")
    [row, _] = dissatisfied_follow_up(bucket, parameters).to_pylist()
    assert (row["value"] == -0.9) == asked
    with pytest.raises(JudgeUnfit, match="no judge is set"):
        dissatisfied_follow_up(replace(bucket, llm_judge=None), parameters)


def test_being_unclear_wins_nothing_in_the_default(tmp_path: Path) -> None:
    """A policy whose answers make users write what no judge can read must not be worth more than
    one that they thank: what nobody settled counts as the judge's probability."""
    parameters = LocalJudgeParameters(unsure=(0.0, 1.0), unsettled="judged")
    bucket = bucket_of(tmp_path, UNCLEAR_TALK)
    [row, _] = dissatisfied_follow_up(bucket, parameters).to_pylist()
    [judged, _] = judged_follow_up(bucket, RawJudgeParameters()).to_pylist()
    assert (row["state"], row["value"], row["reason"]) == ("scored", -judged["value"], "unsure")
    [term] = [
        term for term in find_definition().terms if term.reward.name == "dissatisfied_follow_up"
    ]
    assert term.weight > 0
    assert term.parameters.unsettled == "judged"
    assert (term.reward.version, term.parameters.judge) == (3, RawJudgeParameters().judge)


def test_a_model_settles_what_the_judge_cannot_tell_in_the_default_too(tmp_path: Path) -> None:
    label = StoredLabel(
        "s", 2, digest_of(Message(text="hm, about that")), "moves_on",
        drawn=True, until_us=0, by="llm m", is_model=True, at=0,
    )  # fmt: skip
    bucket = replace(bucket_of(tmp_path, UNCLEAR_TALK), labels=SessionLabels.of([label]))
    parameters = LocalJudgeParameters(unsure=(0.0, 1.0), unsettled="judged")
    [row, _] = dissatisfied_follow_up(bucket, parameters).to_pylist()
    assert (row["value"], row["reason"]) == (0, None)


class Unreachable(Model):
    def judge(self, messages: Sequence[Message]) -> list[Any]:
        return ["unreachable" for _ in messages]


def test_a_model_that_could_not_be_asked_is_asked_again(tmp_path: Path) -> None:
    bucket = replace(bucket_of(tmp_path, UNCLEAR_TALK), llm_judge=Unreachable())
    parameters = LocalJudgeParameters(unsure=(0.0, 1.0), settled_by="m", unsettled="judged")
    [row, _] = dissatisfied_follow_up(bucket, parameters).to_pylist()
    assert (row["state"], row["reason"]) == ("scored", "unreachable")
    assert row["due_us"] is not None
