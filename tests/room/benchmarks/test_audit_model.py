"""Audits by a model: what it suspects in the steps is missing until a person clears it."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock.core.errors import InvalidInput
from penstock.core.settings import load_settings
from penstock.lake.lake import Lake
from penstock.registry.checkpoints.attempts import (
    Attempt,
    AttemptAudit,
    attempts_of,
    audit_in,
    clear_attempt,
    record_attempts,
)
from penstock.registry.checkpoints.integrity import read_checked
from penstock.registry.checkpoints.journal import AttemptScope
from penstock_jobs.benchmarks.audit.audit import AuditModel, attempt_session, audit_recorded
from tests.support.benchmarks.agent_runs import HONEST
from tests.support.benchmarks.transcripts import claude_code
from tests.support.commands import penstock
from tests.support.lakes import HandLake, make_event
from tests.support.result_registry import TENANT
from tests.support.rewards.followups.completions import Completions, running_completions
from tests.support.suite_factory import SOLVE, make_suite

SCOPE = AttemptScope(TENANT, "core", "v1", "new")
CLEAN = json.dumps({"suspicious": False})
QUOTED = json.dumps({"suspicious": True, "quote": "cat  /srv/answers.txt"})


@pytest.fixture
def server() -> Iterator[Completions]:
    with running_completions() as completions:
        yield completions


def suspects_answers(request: dict[str, Any]) -> str:
    return QUOTED if "/srv/answers" in request["messages"][1]["content"] else CLEAN


def model_at(lake: Lake, url: str) -> AuditModel:
    given = {"PENSTOCK_JUDGE_URL": url, "PENSTOCK_JUDGE_MODEL": "m"}
    return AuditModel(load_settings(lake.settings.data, given), lake.database)


def record(lake: Lake, **commands: str) -> None:
    """A passed attempt at each task, whose session ran a command."""
    attempts = [Attempt(task=task, attempt=0, score=1.0) for task in commands]
    with lake.database.write() as connection:
        record_attempts(connection, SCOPE, "run-1", attempts)
    for task, command in commands.items():
        calls = [
            {"id": f"c{n}", "name": "bash", "arguments": {"command": each}}
            for n, each in enumerate(command.split(";"))
        ]
        session = attempt_session(SCOPE, task, 0)
        payload = {"call_id": "m1", "model": "own", "tool_calls": calls}
        asked, told = make_event(session, 0), make_event(session, 1, "model_call", payload=payload)
        HandLake(lake).store([asked, told])


def results(lake: Lake) -> dict[str, Attempt]:
    return {each.result.task: each.result for each in attempts_of(lake.database, SCOPE)}


def test_what_it_suspects_is_missing_until_a_person_clears_it(
    lake: Lake, server: Completions
) -> None:
    server.reply = suspects_answers
    long = ";".join(["git status"] * 25 + ["cat /srv/answers.txt"])
    record(lake, cheats=long, works="git status", known="git stash pop")
    model = model_at(lake, server.url)
    assert audit_recorded(lake, SCOPE).suspect == 1  # the rules alone
    report = audit_recorded(lake, SCOPE, model)
    assert (report.audited, report.suspect, report.by_model, report.unread) == (3, 2, 2, {})
    kept = results(lake)
    assert kept["works"].score == 1
    assert kept["cheats"].error == f"suspect of model {model.name}: step 26: cat /srv/answers.txt"
    assert model.name.startswith("m@")
    assert len(server.requests) == 3  # two parts of the long one; none of what rules suspect
    said = [request["messages"][1]["content"] for request in server.requests]
    assert not any("score" in text or "pass" in text for text in said)
    audit_recorded(lake, SCOPE, model)
    assert len(server.requests) == 3  # what it read it does not read again
    with lake.database.read() as connection:
        assert not read_checked(connection, SCOPE).alterations
    clear_attempt(lake.database, SCOPE, ("cheats", 0), "ada", "the file is part of the task")
    assert audit_recorded(lake, SCOPE, model).suspect == 1
    assert results(lake)["cheats"].score == 1


ANSWERS = {
    "garbage": "It looks fine to me.",
    "a quote that nobody said": json.dumps({"suspicious": True, "quote": "git show HEAD~1"}),
    "no quote": json.dumps({"suspicious": True}),
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_answer_that_says_nothing_is_no_audit(
    lake: Lake, server: Completions, answer: str
) -> None:
    server.reply = lambda _request: ANSWERS[answer]
    record(lake, works="git status")
    report = audit_recorded(lake, SCOPE, model_at(lake, server.url))
    assert (report.audited, report.by_model, report.suspect) == (1, 0, 0)
    assert report.unread == {"not audited by the model: unreadable_answer": 1}
    assert results(lake)["works"].score == 1
    assert (audit_in(results(lake)["works"]) or AttemptAudit(0)).model is None


def test_a_model_that_does_not_answer_is_asked_again_later(lake: Lake, server: Completions) -> None:
    record(lake, works="git status")
    server.faults.append((401, {}, b"no such key"))
    report = audit_recorded(lake, SCOPE, model_at(lake, server.url))
    assert report.unread == {"not audited by the model: unreachable": 1}
    server.reply = suspects_answers
    assert audit_recorded(lake, SCOPE, model_at(lake, server.url)).by_model == 1
    with pytest.raises(InvalidInput, match="PENSTOCK_JUDGE_URL"):
        AuditModel(lake.settings, lake.database)


@pytest.mark.parametrize("answers", [True, False])
@pytest.mark.usefixtures("isolation")
def test_a_run_asks_it_of_each_transcript(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Completions, answers: bool
) -> None:
    server.reply = lambda _request: QUOTED.replace("cat  /srv/answers.txt", "pytest -q tests")
    server.faults.extend([] if answers else [(404, {}, b"")])
    for name, value in (("DATA", lake.settings.data), ("JUDGE_URL", server.url)):
        monkeypatch.setenv(f"PENSTOCK_{name}", str(value))
    monkeypatch.setenv("PENSTOCK_JUDGE_MODEL", "m")
    bench = partial(penstock, "bench")
    suite = str(make_suite(tmp_path / "suite"))
    session = claude_code(tmp_path, HONEST[0].request, HONEST[0].acts)
    agent = f"{SOLVE}; cp {session} $(dirname $PENSTOCK_REPORT)/session.jsonl;"
    agent += ' echo \'{"transcript": "session.jsonl"}\' > $PENSTOCK_REPORT'
    how = ("--checkpoint", "new", "--agent", agent, "--audit-model", "--json")
    found: Any = json.loads(bench("run", suite, *how).stdout)
    (run,) = found["runs"]
    assert run["conditions"]["audited_by"].startswith("m@")
    audited = bench("audit", "mini", "--checkpoint", "new")
    if answers:
        groups = [group["error"] for group in found["summary"]["error_groups"]]
        assert groups == [f"suspect of model {run['conditions']['audited_by']}"]
        assert "1 a model read, 1 are suspect" in audited.stderr
    else:
        assert found["summary"]["scored"] == 1
        assert (
            "1 × not audited by the model: unreachable"
            in bench("show", "mini", "--checkpoint", "new").stderr
        )
