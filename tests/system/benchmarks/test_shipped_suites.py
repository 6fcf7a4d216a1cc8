"""The suites that ship measure something, and the scripted agents can be told apart on them.

Each check runs here as a plain program on a copy of the tree; that the runner runs it so too is
for its own tests.
"""

import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from penstock.registry.gate.policy import parse
from tests.support.repository import ROOT

EXAMPLES = ROOT / "examples"
SUITES = EXAMPLES / "suites"
AGENT = EXAMPLES / "agents/scripted.py"
TASKS_LEAST = {"core": 40, "eager": 12, "intent": 12}
ANSWERS: dict[str, dict[str, Any]] = json.loads(AGENT.with_name("answers.json").read_text())
NOTHING: dict[str, str] = {}
QUESTION = {"asked": True, "answer": "Which of the two do you mean?"}


@dataclass(frozen=True)
class Case:
    """A tree as an agent leaves it, and what it reports."""

    task: str
    what: str
    files: Mapping[str, str] = field(default_factory=dict)
    report: Mapping[str, Any] = field(default_factory=dict)


def tasks(*suites: str) -> list[str]:
    return [name for name in ANSWERS if not suites or name.split("/")[0] in suites]


def folder(task: str) -> Path:
    suite, name = task.split("/")
    return SUITES / suite / "tasks" / name


def score(case: Case, room: Path) -> float:
    """By the rules of the format: a score in a file, or the exit status 0 or 1."""
    tree, result, report = room / "tree", room / "result.json", room / "report.json"
    check = room / "check"
    shutil.copytree(folder(case.task) / "tree", tree)
    shutil.copytree(folder(case.task).parents[1] / "check", check)
    if (own := folder(case.task) / "check").is_dir():
        shutil.copytree(own, check, dirs_exist_ok=True)
    for name, text in case.files.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    report.write_text(json.dumps(case.report))
    told = {"CHECK": check, "RESULT": result, "REPORT": report, "EDITED": int(bool(case.files))}
    environment = {f"PENSTOCK_{name}": str(value) for name, value in told.items()}
    done = subprocess.run(
        [sys.executable, "-BS", str(check / "check.py")], cwd=tree, capture_output=True, text=True,
        timeout=300, check=False,
        env=environment | {"PATH": os.environ["PATH"], "HOME": str(room), "LANG": "C.UTF-8"},
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stdout + done.stderr
    if not result.exists():
        return 1.0 - done.returncode
    found: float = json.loads(result.read_text())["score"]
    assert (found == 1) == (done.returncode == 0), done.stdout
    return found


def cases() -> Iterator[Case]:
    for task in tasks():
        facts = ANSWERS[task]
        report = folder(task) / "solution.json"
        said = json.loads(report.read_text()) if report.exists() else {}
        yield Case(task, "untouched")
        yield Case(task, "solution", facts["solution"], said)
        yield Case(task, "mistake", facts["mistake"])
    for task in tasks("eager", "intent"):
        yield Case(task, "asked", NOTHING, QUESTION)


@pytest.fixture(scope="module")
def scores(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], float]:
    """Of every task: the untouched tree, the solution, the mistake, and a question."""
    found = list(cases())
    rooms = [tmp_path_factory.mktemp("room") for _ in found]
    with ThreadPoolExecutor(max(2, os.cpu_count() or 1)) as pool:
        results = list(pool.map(score, found, rooms))
    return {(case.task, case.what): one for case, one in zip(found, results, strict=True)}


def test_there_are_enough_tasks() -> None:
    assert all(len(tasks(suite)) >= least for suite, least in TASKS_LEAST.items())


def test_a_prompt_is_as_short_as_a_user_writes_it() -> None:
    for task in tasks():
        prompt = tomllib.loads((folder(task) / "task.toml").read_text())["prompt"]
        assert 3 <= len(prompt.split()) <= 60, task
        assert ".py:" not in prompt, task


def test_what_is_made_of_the_suites_is_up_to_date() -> None:
    """Else: python examples/suites/renew.py"""
    done = subprocess.run(
        [sys.executable, "-B", str(SUITES / "renew.py"), "--check"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "")


def test_an_untouched_tree_fails_but_where_a_question_was_asked(
    scores: dict[tuple[str, str], float],
) -> None:
    assert {task for task in tasks() if scores[task, "untouched"] > 0} == set(tasks("eager"))
    assert all(scores[task, "untouched"] == 1 for task in tasks("eager"))


def test_every_solution_passes(scores: dict[tuple[str, str], float]) -> None:
    assert [task for task in tasks() if scores[task, "solution"] != 1] == []


def test_every_task_has_a_mistake_that_does_not_pass(scores: dict[tuple[str, str], float]) -> None:
    assert [task for task in tasks() if not ANSWERS[task]["mistake"]] == []
    assert [task for task in tasks() if scores[task, "mistake"] == 1] == []


def test_some_mistakes_are_worth_a_part(scores: dict[tuple[str, str], float]) -> None:
    """Scores are graded: a model that does half of a task is told from one that does nothing."""
    assert sum(0 < scores[task, "mistake"] < 1 for task in tasks("core")) >= 20


def test_to_ask_is_worth_all_only_where_nothing_else_can_tell(
    scores: dict[tuple[str, str], float],
) -> None:
    for task in tasks("intent"):
        assert scores[task, "asked"] == (1.0 if ANSWERS[task]["has_to_ask"] else 0.5), task
    assert all(scores[task, "asked"] == 1 for task in tasks("eager"))


@pytest.mark.parametrize(
    ("report", "files", "right"),
    [
        ({"answer": " \n"}, NOTHING, 0.0),
        ({"answer": "Because of the threads."}, NOTHING, 1.0),
        ({"answer": None}, NOTHING, 1.0),
        ({"answer": "I added a comment."}, {"notes.md": "a note\n"}, 0.0),
    ],
)
def test_an_answer_is_not_empty_and_nothing_else(
    report: dict[str, Any], files: dict[str, str], right: float, tmp_path: Path
) -> None:
    assert score(Case("eager/counter-why-a-lock", "other", files, report), tmp_path) == right


@pytest.mark.parametrize("task", ["intent/make-it-async", "intent/which-timeout"])
def test_who_asks_and_edits_nevertheless_is_scored_by_the_edit(task: str, tmp_path: Path) -> None:
    assert score(Case(task, "other", ANSWERS[task]["mistake"], QUESTION), tmp_path) == 0


@pytest.mark.parametrize(
    "code", ["import os\nos._exit(0)\n", "raise SystemExit(0)\n", "while True: pass\n"]
)
def test_code_cannot_answer_for_its_check(code: str, tmp_path: Path) -> None:
    case = Case("core/log-one-line-hangs", "other", {"logscan/parsing.py": code})
    assert score(case, tmp_path) == 0


def agent() -> ModuleType:
    spec = importlib.util.spec_from_file_location("scripted_agent", AGENT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


def attempts(
    scores: dict[tuple[str, str], float], character: str, suite: str, count: int
) -> dict[str, list[tuple[float, bool, dict[str, Any]]]]:
    """By task: score, whether it edited, and its report."""
    scripted = agent()
    who = scripted.CHARACTERS[character]
    found: dict[str, list[tuple[float, bool, dict[str, Any]]]] = {}
    for task in tasks(suite):
        for number in range(count):
            done = scripted.attempt(who, task, ANSWERS[task], number, f"seed {number}")
            whats = {"solution": ANSWERS[task]["solution"], "mistake": ANSWERS[task]["mistake"]}
            what = next((one for one in whats if done.files and done.files == whats[one]), None)
            what = what or ("asked" if done.report["asked"] else "untouched")
            one = (scores[task, what], bool(done.files), done.report)
            found.setdefault(task, []).append(one)
    return found


def mean_score(found: dict[str, list[tuple[float, bool, dict[str, Any]]]]) -> float:
    return statistics.mean(statistics.mean(one[0] for one in tries) for tries in found.values())


def test_the_policy_names_the_suites_and_fits_the_agents(
    scores: dict[tuple[str, str], float],
) -> None:
    """Above the minimum of each requirement with room to spare, and far below it."""
    where = EXAMPLES / "policies/production.toml"
    policy = parse(where.read_text(), str(where))
    assert policy.suites == ["core", "eager", "intent"]
    for one in policy.require:
        assert one.minimum is not None
        assert one.min_tasks <= len(tasks(one.suite))
        manifest = tomllib.loads((SUITES / one.suite / "suite.toml").read_text())
        assert one.attempts == manifest["attempts"]
        for character in ("steady", "careful"):
            assert mean_score(attempts(scores, character, one.suite, 8)) > one.minimum + 0.05
    core = policy.require[0]
    assert core.minimum is not None
    assert mean_score(attempts(scores, "hasty", "core", 8)) < core.minimum - 0.1


def run_agent(tree: Path, report: Path, *arguments: str, task: str) -> int:
    suite, name = task.split("/")
    told = {"SUITE": suite, "TASK": name, "ATTEMPT": "0", "SEED": "7", "REPORT": str(report)}
    done = subprocess.run(
        [sys.executable, "-S", str(AGENT), *arguments], cwd=tree, check=False,
        env={f"PENSTOCK_{key}": value for key, value in told.items()},
    )  # fmt: skip
    return done.returncode


def test_the_agent_as_a_program(tmp_path: Path) -> None:
    """The same twice, what it writes is the solution, and its report says what it took."""
    task, found = "core/invoice-last-page", []
    for number in range(2):
        tree, report = tmp_path / f"tree{number}", tmp_path / f"report{number}.json"
        shutil.copytree(folder(task) / "tree", tree)
        assert run_agent(tree, report, "careful", "--skill", "0.999", task=task) == 0
        for name, text in ANSWERS[task]["solution"].items():
            assert (tree / name).read_text() == text
        found.append(report.read_text())
    assert found[0] == found[1]
    said = json.loads(found[0])
    assert said["completion_tokens"] > 0
    assert said["cost_usd"] > 0
    assert said["invalid_tool_calls"] <= said["tool_calls"]


@pytest.mark.parametrize(
    ("arguments", "task"),
    [(["steady"], "core/of-my-own"), (["steady", "--outages", "1"], "core/invoice-last-page")],
)
def test_an_agent_that_cannot_try_says_so(arguments: list[str], task: str, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    assert run_agent(tmp_path, report, *arguments, task=task) == 75
    assert json.loads(report.read_text())["error"]
