"""One attempt: what the agent gets, how it is scored, and what says nothing about the model."""

import json
import math
import sys
from typing import Any

import msgspec
import pytest

from penstock_jobs.benchmarks.attempt import AgentReport, AgentUnusable, score_of, seed_of
from penstock_jobs.benchmarks.sandbox.sandbox import ProgramEnd
from tests.room.benchmarks.conftest import Attempting
from tests.support.suite_factory import SOLVE

NO_EDIT = {"task.toml": 'prompt = "Why?"\nexpect = "no_edit"\n'}
GRADED = """
    import json, os
    from pathlib import Path
    score = float(Path("answer").read_text())
    json.dump({"score": score}, open(os.environ["PENSTOCK_RESULT"], "w"))
"""


def reporting(report: object, then: str = "true") -> str:
    return f"{SOLVE}; echo '{json.dumps(report)}' > $PENSTOCK_REPORT; {then}"


def test_a_solution_passes_and_anything_else_fails(attempt: Attempting) -> None:
    passed = attempt(SOLVE)
    assert (passed.result.score, passed.result.error, passed.result.edited) == (1.0, None, True)
    assert 0 < (passed.result.latency_s or 0) < 20
    failed = attempt("echo 41 > answer")
    assert (failed.result.score, failed.result.error, failed.result.edited) == (0.0, None, True)
    idle = attempt("true").result
    assert (idle.score, idle.edited, idle.asked, idle.completion_tokens) == (0.0, False, None, None)


def test_what_the_agent_is_told(attempt: Attempting) -> None:
    say = "{ env; cat $PENSTOCK_PROMPT_FILE; ls -A; } > all; grep -q 42 nowhere; exit 1"
    check = {"check/check.py": "print(open('all').read()); raise SystemExit(1)"}
    found = attempt(say, check, serving="http://127.0.0.1:9/v1", environment={"MY_KEY": "secret"})
    told = dict(one.split("=", 1) for one in found.output.splitlines() if "=" in one)
    names = {one for one in told if not one.startswith("_")} - {"PWD", "SHLVL", "OLDPWD", "LANG"}
    assert names == {
        "PATH", "HOME", "MY_KEY", "PENSTOCK_PROMPT_FILE", "PENSTOCK_MODEL_URL",
        "PENSTOCK_CHECKPOINT", "PENSTOCK_SUITE", "PENSTOCK_TASK", "PENSTOCK_ATTEMPT",
        "PENSTOCK_SEED", "PENSTOCK_REPORT", "PENSTOCK_SESSION",
    }  # fmt: skip
    assert told["PENSTOCK_MODEL_URL"] == "http://127.0.0.1:9/v1"
    assert told["PENSTOCK_SEED"] == str(seed_of("mini", "one", 0))
    assert "Answer the question one." in found.output
    assert found.output.rstrip().endswith("question.txt")


def test_seeds_are_the_same_for_every_checkpoint_and_differ_else() -> None:
    assert seed_of("core", "t", 0) == seed_of("core", "t", 0) == 396349780
    assert len({seed_of("core", task, n) for task in "abc" for n in range(100)}) == 300


def test_the_check_is_nowhere_before_the_score(attempt: Attempting) -> None:
    skipped = f"-path {sys.prefix} -prune"  # Python itself is there, wherever it lies
    places = "/penstock /tmp /dev /run /home /var"
    look = f"find {places} {skipped} -o -name 'check*' -printf '%f' 2>/dev/null > found; "
    look += "ls -R /penstock >> found; env | grep -v ^PATH >> found"
    check = {"check/check.py": "print(open('found').read())"}
    found = attempt(look, check)
    assert found.result.score == 1
    assert "check" not in found.output.lower().replace("penstock_checkpoint", "")


def test_nothing_of_the_agent_reaches_the_check_but_its_tree(attempt: Attempting) -> None:
    plant = "echo 42 > /tmp/answer; echo 42 > $HOME/answer; "
    plant += "(setsid sh -c 'sleep 0.5; echo 42 > answer' &)"
    check = {
        "check/check.py": """
            import os, time
            from pathlib import Path
            time.sleep(0.7)
            there = [Path("/tmp/answer"), Path.home() / "answer", Path("answer")]
            raise SystemExit(1 if any(one.exists() for one in there) else 0)
        """
    }
    assert attempt(plant, check).result.score == 1


def test_links_that_it_plants_lead_nowhere(attempt: Attempting, tmp_path_factory: Any) -> None:
    secret = tmp_path_factory.mktemp("host") / "secret"
    secret.write_text("42")
    found = attempt(f"ln -s {secret} answer")
    assert (found.result.score, found.result.edited) == (0.0, True)
    guess = "ln -s /penstock/check/check.py answer; ln -s ../../check.py other"
    check = {
        "check/check.py": """
            from pathlib import Path
            raise SystemExit(1 if Path("answer").exists() or Path("other").exists() else 0)
        """
    }
    assert attempt(guess, check).result.score == 1


def test_the_tree_does_not_shadow_the_check(attempt: Attempting) -> None:
    shadow = "echo 'raise SystemExit(0)' > check.py; echo 'import os; os._exit(0)' > pathlib.py"
    assert attempt(shadow).result.score == 0


def test_a_graded_score(attempt: Attempting) -> None:
    files = {"check/check.py": GRADED}
    assert attempt("echo 0.25 > answer", files).result.score == 0.25
    for wrong in ("1.5", "-0.1", "nan", "inf"):
        result = attempt(f"echo {wrong} > answer", files).result
        assert (result.score, result.status) == (None, "error")
    nothing = attempt("true", files).result
    assert (nothing.score, nothing.status) == (0.0, "scored")  # a Python error ends with 1


@pytest.mark.parametrize(
    ("ended", "result", "score"),
    [
        (ProgramEnd(0, None, 1, ""), None, 1.0),
        (ProgramEnd(1, None, 1, ""), None, 0.0),
        (ProgramEnd(2, None, 1, "usage"), None, None),
        (ProgramEnd(137, None, 1, ""), b'{"score": 1.0}', None),
        (ProgramEnd(None, "time", 1, ""), b'{"score": 1.0}', None),
        (ProgramEnd(None, "memory", 1, ""), None, None),
        (ProgramEnd(0, None, 1, ""), b'{"score": 0.5}', 0.5),
        (ProgramEnd(1, None, 1, ""), b'{"score": 1}', 1.0),
        (ProgramEnd(0, None, 1, ""), b'{"score": "1"}', None),
        (ProgramEnd(0, None, 1, ""), b'{"score": true}', None),
        (ProgramEnd(0, None, 1, ""), b'{"score": null}', None),
        (ProgramEnd(0, None, 1, ""), b"{}", None),
        (ProgramEnd(0, None, 1, ""), b"\xff", None),
        (ProgramEnd(0, None, 1, ""), b'{"score": 1e999}', None),
        (ProgramEnd(0, None, 1, ""), b'{"a": ' + b"[" * 60_000, None),
    ],
)
def test_how_a_check_ends(ended: ProgramEnd, result: bytes | None, score: float | None) -> None:
    found = score_of(ended, result)
    assert found.score == score
    assert (found.error is None) == (score is not None)
    assert found.score is None or math.isfinite(found.score)


def test_a_check_that_hangs_or_crashes_is_an_error_and_no_new_attempt(attempt: Attempting) -> None:
    limits = "[limits]\nseconds = 5\ncheck_seconds = 1\n"
    hangs = attempt(SOLVE, {"check/check.py": "import time; time.sleep(60)"}, limits)
    assert (hangs.result.score, hangs.result.retries) == (None, 0)
    assert hangs.result.error == "the check went over its time"
    crashes = attempt(SOLVE, {"check/check.py": "import os; os.abort()"}, limits)
    assert "status 134" in (crashes.result.error or "")


@pytest.mark.parametrize(
    ("agent", "score", "mark"),
    [
        (f"{SOLVE}; sleep 60", 1.0, "timed out"),
        ("sleep 60", 0.0, "timed out"),
        (f"{SOLVE}; exit 3", 1.0, "the agent ended with status 3"),
    ],
)
def test_however_it_ends_it_is_scored_as_it_left_the_tree(
    attempt: Attempting, agent: str, score: float, mark: str
) -> None:
    found = attempt(agent, {}, "[limits]\nseconds = 1\n")
    assert (found.result.score, found.result.retries, found.marks) == (score, 0, (mark,))


def test_a_full_disk_does_not_keep_the_check_from_running(attempt: Attempting) -> None:
    check = "open('more', 'w').write('x' * 1_000_000); raise SystemExit(0)"
    fill = "dd if=/dev/zero of=big bs=1M count=100 2>/dev/null; true"
    limits = "[limits]\nseconds = 20\ndisk_mib = 4\n"
    assert attempt(fill, {"check/check.py": check}, limits).result.score == 1


def test_reasons_outside_the_model_are_tried_again_and_then_an_error(attempt: Attempting) -> None:
    for agent in (f"{SOLVE}; exit 75", reporting({"error": "the server was full"})):
        result = attempt(agent).result
        assert (result.score, result.status, result.retries) == (None, "error", 2)
    assert result.error == "the agent says: the server was full"
    garbled = attempt(f"{SOLVE}; echo '{{' > $PENSTOCK_REPORT").result
    assert (garbled.score, garbled.retries) == (None, 2)


def test_a_serving_address_that_is_gone_says_nothing_about_the_model(attempt: Attempting) -> None:
    dial = "python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 9)).recv(1)'; true"
    result = attempt(dial, serving="http://127.0.0.1:9", tries_max=1).result
    assert result.error == "no answer from 127.0.0.1:9"


def test_an_agent_that_is_not_there_is_nobodys_failure(attempt: Attempting) -> None:
    with pytest.raises(AgentUnusable, match=r"(?s)could not be run.*not found"):
        attempt("no-such-agent --model x")


def test_what_the_agent_reports(attempt: Attempting) -> None:
    report = {
        "completion_tokens": 812, "prompt_tokens": 4000, "cost_usd": 0.004, "steps": 7,
        "tool_calls": 9, "invalid_tool_calls": 2, "asked": True, "answer": "so", "more": [1],
    }  # fmt: skip
    result = attempt(reporting(report)).result
    assert (result.completion_tokens, result.prompt_tokens, result.cost_usd) == (812, 4000, 0.004)
    assert (result.steps, result.tool_calls, result.invalid_tool_calls) == (7, 9, 2)
    assert result.asked is True
    for wrong in ({"steps": -1}, {"cost_usd": "much"}, {"completion_tokens": 2**63}):
        assert attempt(reporting(wrong), tries_max=1).result.status == "error"


@pytest.mark.parametrize(
    "text", [b'{"a": ' + b"[" * 60_000, b'{"cost_usd": 1e308}', b'{"steps": -1}', b"NaN"]
)
def test_a_report_that_nobody_can_mean_cannot_be_read(text: bytes) -> None:
    with pytest.raises((ValueError, RecursionError)):
        msgspec.json.decode(text, type=AgentReport)


def test_the_check_sees_what_was_reported(attempt: Attempting) -> None:
    check = """
        import json, os
        report = json.load(open(os.environ["PENSTOCK_REPORT"]))
        edited = os.environ["PENSTOCK_EDITED"] == "1"
        raise SystemExit(0 if report.get("asked") and not edited else 1)
    """
    files = {"check/check.py": check}
    assert attempt("echo '{\"asked\": true}' > $PENSTOCK_REPORT", files).result.score == 1
    assert attempt(reporting({"asked": True}), files).result.score == 0
    assert attempt("true", files).result.score == 0


def test_where_nothing_is_to_be_edited_an_edit_fails(attempt: Attempting) -> None:
    always = NO_EDIT | {"check/check.py": "raise SystemExit(0)"}
    assert attempt("mkdir __pycache__; touch __pycache__/x", always).result.score == 1
    assert attempt("echo >> question.txt", always).result.score == 0


def test_without_isolation_it_works_alike(attempt: Attempting) -> None:
    plain = {"isolated": False}
    assert attempt(SOLVE, **plain).result.score == 1
    assert attempt("cat nothing", **plain).result.score == 0
    limits = "[limits]\nseconds = 3\n"
    slow = attempt(f"{SOLVE}; sleep 60 & sleep 60", {}, limits, **plain)
    assert (slow.result.score, slow.marks) == (1.0, ("timed out",))
    assert attempt("exit 75", **plain).result.retries == 2
    with pytest.raises(AgentUnusable, match="could not be run"):
        attempt("no-such-agent", **plain)
