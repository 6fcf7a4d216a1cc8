"""What the next message says of a turn, as a reward."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock_jobs.rewards.measures.dissatisfied import (
    LocalJudgeParameters,
    dissatisfied_follow_up,
)
from tests.support.lakes import Event, make_event
from tests.support.reward_events import answered, bucket_of, said

PRAISE = "perfect, thanks! Next: add a button that exports the table as CSV"
REPROACH = "no, that is wrong, you broke the login. revert it"


def rewards(directory: Path, events: list[Event]) -> dict[str, dict[str, Any]]:
    rows: pa.Table = dissatisfied_follow_up(bucket_of(directory, events), LocalJudgeParameters())
    return {row["target_id"]: row for row in rows.to_pylist() if row["target_kind"] == "turn"}


def test_a_reproach_is_worse_than_praise(tmp_path: Path) -> None:
    events = [
        said(1, "fix the login"), answered(2, text="Done."),
        said(3, PRAISE), answered(4, text="Done."), said(5, REPROACH),
    ]  # fmt: skip
    found = rewards(tmp_path, events)
    assert set(found) == {"1", "2"}
    assert -0.5 < found["1"]["value"] <= 0
    assert -1 <= found["2"]["value"] < -0.5


def test_silence_is_censored_and_never_good(tmp_path: Path) -> None:
    found = rewards(tmp_path, [said(1), answered(2, text="Done.")])
    assert (found["1"]["state"], found["1"]["reason"]) == ("censored", "silence")
    assert found["1"]["value"] is None


def test_who_stops_the_session_has_abandoned_it(tmp_path: Path) -> None:
    end = make_event("s", 3, "session_end", payload={"reason": "user_stop"})
    assert rewards(tmp_path, [said(1), answered(2, text="Done."), end])["1"]["value"] == -1


def test_a_definition_cannot_ask_for_another_judge() -> None:
    with pytest.raises(ValueError, match="the local judge has version"):
        LocalJudgeParameters(judge="0")
