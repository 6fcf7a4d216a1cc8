"""`penstock rewards`, as a person types it."""

import json
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.support.commands import penstock
from tests.support.lakes import hand_lake, make_event
from tests.support.reward_events import answered, edited, said


def rewards(*arguments: str) -> CompletedProcess[str]:
    return penstock("rewards", *arguments)


@pytest.fixture
def data(tmp_path: Path) -> str:
    before, after = "a = 1\n", "a = 1\nb = compute(2)\n"
    with hand_lake(tmp_path) as lake:
        lake.store(
            [
                said(1, "add b"),
                answered(2, text="Done."),
                edited(3, "src/app.py", before, after),
                make_event("s", 40, "file_observed", payload={"path": "src/app.py", "text": after}),
                said(50, "great, now the tests"),
            ]
        )
    return str(tmp_path)


def test_list_names_each_reward_and_prints_its_page() -> None:
    listed = rewards("list")
    assert listed.returncode == 0
    assert "edit_persistence" in listed.stdout
    page = rewards("list", "edit_persistence")
    assert page.stdout.startswith("edit_persistence: how much of what the agent wrote")
    assert "To game it" in page.stdout
    unknown = rewards("list", "edit_persistance")
    assert unknown.returncode == 2
    assert "edit_persistence" in unknown.stderr


def test_show_prints_each_edit_beside_what_became_of_it(data: str) -> None:
    shown = rewards("show", "s", "--data", data)
    assert shown.returncode == 0, shown.stderr
    assert "edit e3: src/app.py" in shown.stdout
    assert "+b = compute(2)" in shown.stdout
    [line] = [one for one in shown.stdout.splitlines() if one.startswith("edit_persistence")][:1]
    assert line.split()[1] == "1.000"
    assert "turn 1" in shown.stdout
    assert "dissatisfied_follow_up" in shown.stdout


def test_show_as_json_has_a_row_for_each_value_and_state(data: str, tmp_path: Path) -> None:
    definition = tmp_path / "mine.toml"
    definition.write_text(
        'name = "mine"\n[[reward]]\nname = "edit_persistence"\nweight = 2\nhorizon_s = 30\n'
    )
    shown = rewards("show", "s", "--data", data, "--definition", str(definition), "--json")
    rows = json.loads(shown.stdout)["rewards"]
    assert {row["name"] for row in rows} == {"edit_persistence", "reward"}
    states = {row["horizon_s"]: row["state"] for row in rows if row["target_kind"] == "edit"}
    assert states[0] == "scored"
    assert states[30] == "scored"
    assert states[900] == "censored"
    of_sessions = [row for row in rows if row["target_kind"] == "session"]
    [whole] = [row for row in of_sessions if row["name"] == "reward"]
    assert (whole["value"], whole["state"], whole["target_id"]) == (1.0, "scored", "s")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["nobody"], "No segment holds the session 'nobody'"),
        (["s", "--tenant", "other"], "of the tenant other"),
        (["s", "--definition", "none.toml"], "neither a file nor one of comparing, default"),
    ],
)
def test_show_says_what_is_wrong(data: str, arguments: list[str], why: str) -> None:
    shown = rewards("show", *arguments, "--data", data)
    assert (shown.returncode, shown.stdout) == (2, "")
    assert why in shown.stderr


def test_judge_says_how_good_it_is_on_labels_that_it_never_saw() -> None:
    found = json.loads(rewards("judge", "--json").stdout)
    assert set(found) == {"held out", "fresh"}
    for one in found.values():
        assert one["examples"] >= 90
        assert 0 < one["dissatisfied"]["precision"] <= 1
