"""`penstock simulate`, as a person runs it."""

import json
from pathlib import Path
from statistics import mean

import pytest

from penstock_jobs.simulator.policy import POLICIES
from tests.room.cli.conftest import Run

BY_EDIT = """select session_id, target_id, horizon_s, value from rewards
    where name = 'edit_persistence' and target_kind = 'edit' and value is not null
    and superseded_at is null"""


def test_sessions_go_in_and_their_rewards_are_the_truth(run: Run, tmp_path: Path) -> None:
    events, truth = tmp_path / "events.ndjson", tmp_path / "truth.jsonl"
    made = run(
        "simulate", "--sessions", "100", "--start", "2026-01-05T09:00Z",
        "--out", str(events), "--truth", str(truth), "--json",
    )  # fmt: skip
    assert made.status == 0
    assert made.json()["sessions"] == len(truth.read_text().splitlines())
    assert made.json()["events"] == len(events.read_text().splitlines())
    assert run("import", str(events)).status == 0
    assert run("rewards", "run").status == 0
    rows = run("query", BY_EDIT, "--json").json()
    true = {
        (one["session_id"], edit["edit_id"], int(horizon)): survived
        for one in map(json.loads, truth.read_text().splitlines())
        for edit in one["edits"]
        for horizon, survived in edit["survival"].items()
    }
    both = [
        (row["value"], true[row["session_id"], row["target_id"], row["horizon_s"]])
        for row in rows
        if row["horizon_s"] == 600
    ]
    wrong = [abs(value - known[0]) for value, known in both if known is not None]
    assert len(wrong) > 100
    assert mean(wrong) <= 0.02


def test_without_a_sink_the_events_come_out(run: Run) -> None:
    done = run("simulate", "--sessions", "3")
    assert done.status == 0
    assert {json.loads(line)["source"] for line in done.out.splitlines()} == {"simulator"}
    assert done.out == run("simulate", "--sessions", "3", "--rate", "100000").out
    assert "3 sessions" in done.err


def test_checkpoints_have_the_policies_that_are_named(run: Run, tmp_path: Path) -> None:
    file, truth = tmp_path / "policy.json", tmp_path / "truth.jsonl"
    file.write_bytes(POLICIES["tiny"].to_json())
    done = run(
        "simulate", "--sessions", "30", "--out", str(tmp_path / "o"), "--truth", str(truth),
        "--checkpoint", "good", "--checkpoint", f"hack={file}", "--checkpoint", "talks=asks",
    )  # fmt: skip
    assert done.status == 0
    found = [json.loads(line) for line in truth.read_text().splitlines()]
    versions = {one["checkpoint"]: one["policy_version"] for one in found}
    assert versions == {"good": 3, "hack": 6, "talks": 4}


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--out", "a", "--to", "http://127.0.0.1:1"), "name only one"),
        (("--json",), "the events go there"),
        (("--key", "k"), "needs --to"),
        (("--start", "yesterday"), "not a time with a zone"),
        (("--start", "2026-01-05T09:00"), "not a time with a zone"),
        (("--checkpoint", "=good"), "has no name"),
        (("--checkpoint", "a=nonsense"), "none of weak"),
        (("--checkpoint", "nonsense"), "such as nonsense=good"),
        (("--truth", "missing/truth.jsonl"), "No such file"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("simulate", "--sessions", "1", *arguments)
    assert done.status == 2
    assert why in done.err
    assert "events" not in done.out or json.loads(done.out)["exit_status"] == 2
