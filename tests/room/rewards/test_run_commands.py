"""`penstock rewards run | backfill | compare | rates`, as a person types them."""

import json
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from tests.support.commands import penstock
from tests.support.lakes import Event, hand_lake, make_event
from tests.support.reward_events import answered, edited, said
from tests.support.reward_runs import seen, thumbs, worked

MINE = """
name = "mine"
[[reward]]
name = "explicit_feedback"
weight = 1.0
"""


def rewards(data: Path, *arguments: str) -> CompletedProcess[str]:
    return penstock("rewards", *arguments, "--data", str(data))


def asked(data: Path, *arguments: str) -> Any:
    done = rewards(data, *arguments, "--json")
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def mine(tmp_path: Path) -> str:
    (tmp_path / "mine.toml").write_text(MINE)
    return str(tmp_path / "mine.toml")


def test_run_ends_with_what_is_scored_and_why_the_rest_is_not(tmp_path: Path) -> None:
    with hand_lake(tmp_path) as lake:
        lake.store([*worked("s"), seen("s", 603), *worked("t"), thumbs("t", 9)])
    first = rewards(tmp_path, "run")
    assert first.returncode == 0, first.stderr
    assert "2 sessions, 2 changed and 0 matured, 8 events" in first.stderr
    [line] = [one for one in first.stdout.splitlines() if one.startswith("edit_persistence")]
    assert line.split()[:3] == ["edit_persistence", "edit", "3"], "twice at once, once at 600 s"
    assert "unobserved 11" in line
    assert any(one.split()[:2] == ["scored", "2"] for one in first.stdout.splitlines())
    second = rewards(tmp_path, "run")
    assert "No session changed or matured" in second.stderr
    assert second.stdout == ""


def test_backfill_and_compare(tmp_path: Path, mine: str) -> None:
    with hand_lake(tmp_path) as lake:
        lake.store([*worked("s"), thumbs("s", 9), *worked("t"), thumbs("t", 9, "down")])
    asked(tmp_path, "run", "--definition", mine)
    asked(tmp_path, "run", "--since", "2026-11-22T00:00:00Z")
    compared = rewards(tmp_path, "compare", "mine", "default")
    assert "No session was computed by both" in compared.stderr
    assert asked(tmp_path, "backfill")["sessions"] == 2
    found = asked(tmp_path, "compare", "mine", "default")
    of_name = {one["name"]: one for one in found["rewards"]}
    assert of_name["explicit_feedback"]["sessions"] == 2
    assert of_name["explicit_feedback"]["difference"] == 0
    assert of_name["reward"]["before"] == 0.0
    assert of_name["reward"]["correlation"] == pytest.approx(1.0)
    assert of_name["reward"]["bounds_before"] == [0.0, 0.0]
    unknown = rewards(tmp_path, "compare", "mine", "nobody")
    assert unknown.returncode == 2
    assert "it has not run; known:" in unknown.stderr


def by_checkpoint(name: str, number: int, *, broken: bool) -> list[Event]:
    session, at = f"{name}-{number}", number if name == "c1" else 1000 + number
    events = [said(at, "go", session), answered(at, session, text="Done.")]
    if broken:
        call = {"tool": "grep", "ok": False, "error_class": "invalid_arguments", "call_id": "t"}
        calls = [{"id": "t", "name": "grep", "arguments": {}}]
        events = [events[0], answered(at, session, tool_calls=calls)]
        events.append(make_event(session, at, "tool_result", event_id="r", payload=call))
    else:
        events.append(edited(at, "a.py", "a\n", "a\nb\n", session) | {"event_id": "edit"})
    return [one | {"checkpoint": name} for one in events]


def test_rates_say_what_moved_from_one_checkpoint_to_the_next(tmp_path: Path, mine: str) -> None:
    with hand_lake(tmp_path) as lake:
        for name in ("c1", "c2"):
            for number in range(60):
                broken = name == "c2" and number % 2 == 0
                lake.send(by_checkpoint(name, number, broken=broken))
        lake.writer().drain()
    asked(tmp_path, "run", "--definition", mine)
    found = rewards(tmp_path, "rates", "--definition", "mine")
    assert found.returncode == 1
    assert "from c1 to c2:" in found.stderr
    assert "ALARM negative_by_rule: moved, from 0.000 to 0.500" in found.stderr
    assert any("invalid_tool_calls" in one and "30" in one for one in found.stdout.splitlines())
    back = asked(tmp_path, "rates", "c2", "c1", "--definition", "mine")
    [moved] = [one for one in back["changes"] if one["rate"] == "negative_by_rule"]
    assert (moved["verdict"], moved["before"], moved["after"]) == ("moved", 0.5, 0.0)
    assert [one["checkpoint"] for one in back["checkpoints"]] == ["c1", "c2"]
    # Nobody judged a session of c1, and only the broken ones of c2 are known.
    facts = ("known", "unknown", "value", "low", "high")
    means = [[mean[name] for name in facts] for one in back["checkpoints"] for mean in one["means"]]
    assert means == [[0, 60, None, -1.0, 1.0], [30, 30, -1.0, -1.0, 0.0]]
    unknown = rewards(tmp_path, "rates", "c1", "c9", "--definition", "mine")
    assert unknown.returncode == 2
    assert "it has no sessions; known checkpoints: c1, c2" in unknown.stderr


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["run", "--definition", "none.toml"], "neither a file nor one of comparing, default"),
        (["show", "s", "--definition", "default+git"], "neither a file nor one of"),
        (["run", "--since", "soon"], "neither a time nor an age"),
        (["run", "--git", "."], "it needs --project"),
        (["compare", "a", "b"], "it has not run; known: none"),
        (["rates"], "it has not run"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, arguments: list[str], why: str) -> None:
    with hand_lake(tmp_path) as lake:
        lake.store([said(1)])
    done = rewards(tmp_path, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert why in done.stderr
