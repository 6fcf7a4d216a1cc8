"""From a repository to a suite: mined, verified, reviewed, exported, run."""

import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from penstock.access.privacy.erasure import carry_out, order_erasure
from penstock.access.privacy.orders import ErasureScope
from penstock.access.privacy.tombstones import SESSION
from penstock.backends.execution.calls import InlineExecutor
from penstock.lake.lake import Lake
from penstock.registry.checkpoints.suites import suite_versions
from penstock_jobs.benchmarks.mine.mining import MiningOptions, MiningReport, mine
from penstock_jobs.benchmarks.mine.proposals import Proposal, files_of, proposals_of
from penstock_jobs.benchmarks.suite import read_suite
from penstock_jobs.shards.exclusion.texts import Contamination, find_suites
from penstock_jobs.shards.selection.session_facts import SessionProfile
from tests.room.benchmarks.conftest import TENANT
from tests.support.benchmarks.mined_projects import (
    ADD,
    COMMITS,
    DIVIDE,
    REQUEST,
    TEST_ADD,
    TEST_DIVIDE,
    git,
    make_project,
    program_folder,
)
from tests.support.commands import penstock
from tests.support.lakes import HandLake, hand_lake, make_event
from tests.support.servers.scripted_server import Answer, Asked, Server, answering


@pytest.fixture
def hand(isolation: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HandLake]:
    programs = program_folder(tmp_path / "programs")
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    with hand_lake(tmp_path / "data") as hand:
        yield hand


@pytest.fixture
def project(tmp_path: Path) -> list[str]:
    return make_project(tmp_path / "calc")


def mined(lake: Lake, folder: Path, **more: object) -> MiningReport:
    with InlineExecutor() as executor:
        options = MiningOptions(folder, "calc", **more)  # type: ignore[arg-type]
        return mine(lake, executor, options, tenant=TENANT)


def known(lake: Lake) -> dict[str, Proposal]:
    """By the commit that settled it."""
    return {each.facts["settled"]: each for each in proposals_of(lake.database, TENANT, "calc")}


def test_each_candidate_is_kept_once(hand: HandLake, project: list[str], tmp_path: Path) -> None:
    lake, folder = hand.lake, tmp_path / "calc"
    report = mined(lake, folder)
    _, multiply, readme, fast, oops = project
    assert (report.proposed, report.known) == (1, 0)
    states = {commit: (each.state, each.facts.get("rule")) for commit, each in known(lake).items()}
    assert states == {
        multiply: ("proposed", None),
        readme: ("left_out", "only_docs"),
        fast: ("left_out", "untouched_passes"),
        oops: ("left_out", "says_too_little"),
    }
    task = known(lake)[multiply]
    assert task.prompt == "Add multiply, which gives the product of two numbers"
    assert (task.facts["failing"], task.facts["tests"], task.facts["work"]) == (1, 2, "feature")
    kept = files_of(lake, TENANT, "calc", task.task)
    assert {file.path: file.content for file in kept.change.tree}["calc.py"].startswith(b"def add")
    assert "does not pass: tests.test_calc::test_multiply" in kept.before
    assert "2 of 2 tests pass" in kept.after
    assert mined(lake, folder) == MiningReport(known=4)
    git(tmp_path, "clone", "--quiet", str(folder), "calc-again")
    git(tmp_path / "calc-again", "remote", "set-url", "origin", "git@example.org:ann/other.git")
    assert mined(lake, tmp_path / "calc-again") == MiningReport(known=4)


def test_a_session_that_a_commit_settled(
    hand: HandLake, project: list[str], tmp_path: Path
) -> None:
    """Its words are the prompt, and its commit is no candidate again."""
    payload = {"repo": str(tmp_path / "calc"), "commit": project[3]}
    edit = {"path": str(tmp_path / "calc" / "calc.py"), "before": COMMITS[3][1]["calc.py"]}
    edit |= {"after": DIVIDE}
    events = [
        make_event("s", 0, "session_start", payload=payload),
        make_event("s", 1, payload={"text": REQUEST}),
        make_event("s", 2, "edit", payload=edit),
    ]
    long_ago = project_time(tmp_path / "calc")
    hand.store([event | {"ts": long_ago + number} for number, event in enumerate(events)])
    mined(hand.lake, tmp_path / "calc", commits=f"{project[3]}..HEAD")
    task = known(hand.lake)[project[4]]
    assert (task.state, task.why, task.session_id) == ("proposed", "", "s")
    assert (task.prompt, task.facts["base"], task.facts["source"]) == (
        REQUEST,
        project[3],
        "session",
    )
    assert len(proposals_of(hand.lake.database, TENANT, "calc")) == 1
    assert list(hand.lake.store.list("mined/"))
    scope = ErasureScope(TENANT, SESSION, "s", until_us=hand.clock.now_us())
    carry_out(hand.lake, order_erasure(hand.lake, scope, reason="asked for", by="ann"))
    assert not proposals_of(hand.lake.database, TENANT, "calc")
    assert not list(hand.lake.store.list("mined/"))


def project_time(folder: Path) -> int:
    return (int(git(folder, "log", "-1", "--format=%ct")) - 60) * 1_000_000


def test_what_is_not_judged_alike_is_left_out(hand: HandLake, tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    test = f"""
        import calc, pathlib

        def test_subtract():
            place = pathlib.Path({str(counter)!r})
            count = int(place.read_text()) if place.exists() else 0
            place.write_text(str(count + 1))
            assert calc.subtract(count, count) == 0 and count != 2
    """
    subtract = f"{ADD}\n    def subtract(one, two):\n        return one - two\n"
    added = {"calc.py": subtract, "tests/test_subtract.py": test}
    first = {"calc.py": ADD, "tests/test_calc.py": TEST_ADD}
    names = make_project(
        tmp_path / "calc",
        [("First", first), ("Add subtract, which gives the difference of two numbers", added)],
    )
    mined(hand.lake, tmp_path / "calc", isolated=False)
    assert known(hand.lake)[names[1]].facts["rule"] == "flaky"


def test_a_command_of_ci_is_a_check_where_a_commit_brought_no_test(
    hand: HandLake, tmp_path: Path
) -> None:
    ci = {".github/workflows/ci.yml": "steps:\n  - run: python -m pytest -q\n"}
    first = {"calc.py": ADD, "tests/test_calc.py": TEST_DIVIDE, **ci}
    names = make_project(tmp_path / "calc", [("First", first), (REQUEST, {"calc.py": DIVIDE})])
    assert mined(hand.lake, tmp_path / "calc").proposed == 1
    task = known(hand.lake)[names[1]]
    assert task.facts["check"] == "command"
    kept = files_of(hand.lake, TENANT, "calc", task.task)
    assert kept.plan.command == "python -m pytest -q"
    assert ("failed" in kept.before, "3 passed" in kept.after) == (True, True)


def test_a_model_judges_what_no_test_shows(
    hand: HandLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = make_project(
        tmp_path / "calc", [("First", {"calc.py": ADD}), (REQUEST, {"calc.py": DIVIDE})]
    )
    assert mined(hand.lake, tmp_path / "calc").left_out == {"no_test": 1}
    assert "PENSTOCK_JUDGE_URL" in known(hand.lake)[names[1]].why

    def judge(asked: Asked) -> Answer:
        assert asked.headers["authorization"] == "Bearer secret"
        said = asked.document["messages"][0]["content"].partition("programmer's change is")[2]
        verdict = "PASS" if "+def divide" in said else "FAIL"
        choice = {"message": {"role": "assistant", "content": f"It does it.\n{verdict}"}}
        return Answer(body=json.dumps({"choices": [choice]}))

    server = Server(script=judge)
    with answering(server, "/v1"):
        settings = {"judge_url": server.url, "judge_model": "m", "judge_key": "secret"}
        with hand_lake(tmp_path / "other", **settings) as other:
            assert mined(other.lake, tmp_path / "calc").proposed == 1
            task = known(other.lake)[names[1]]
    assert task.facts["check"] == "rubric"


Suites = Callable[..., CompletedProcess[str]]


@pytest.fixture
def suites(hand: HandLake, project: list[str], monkeypatch: pytest.MonkeyPatch) -> Suites:
    monkeypatch.setenv("PENSTOCK_DATA", str(hand.lake.settings.data))
    return partial(penstock, "suites")


def test_from_a_repository_to_a_run(
    suites: Suites, hand: HandLake, project: list[str], tmp_path: Path
) -> None:
    lake, out = hand.lake, tmp_path / "suite"
    early = suites("export", "calc", str(out))
    assert (early.returncode, "no proposal is taken yet" in early.stderr) == (2, True)
    environment = tmp_path / "environment.toml"
    environment.write_text('setup = ["cp README.md /environment"]\nfiles = ["*.md"]\n')
    how = ("--suite", "calc", "--environment", str(environment), "--commits", f"{project[2]}~1")
    done = suites("mine", str(tmp_path / "calc"), *how)
    assert (done.returncode, "1 proposed, 0 left out" in done.stderr) == (0, True)
    listed = json.loads(suites("review", "calc", "--json").stdout)
    [task] = [each["task"] for each in listed if each["state"] == "proposed"]
    shown = suites("review", "calc", task).stdout
    assert "+def multiply(one, two):" in shown
    assert "2 of 2 tests pass" in shown
    prompt = tmp_path / "prompt.md"
    prompt.write_text("Write return one * two into multiply(one, two) of calc.py")
    leak = suites("review", "calc", task, "--prompt", str(prompt))
    assert leak.returncode == 0  # too short to be recognised
    prompt.write_text("We need multiply(one, two), which gives the product of its two numbers.\n")
    suites("review", "calc", task, "--prompt", str(prompt))
    suites("review", "calc", task, "--refuse", "dull", "--by", "ben")
    assert known(lake)[project[1]].why == "dull"
    taken = suites("review", "calc", task, "--take", "--by", "ann")
    assert (taken.returncode, known(lake)[project[1]].by) == (0, "ann")
    for wrong in (("nothing", "--take"), ("nothing",), (task, "--take", "--refuse", "x")):
        assert suites("review", "calc", *wrong).returncode == 2

    assert suites("export", "calc", str(out)).returncode == 0
    assert suites("export", "calc", str(out)).returncode == 2  # it is not empty
    suite = read_suite(out)
    assert suite.task(task).prompt.startswith("We need multiply")
    assert suite.sources.commits == tuple(sorted(project[:2]))
    assert (suite.folder / "tasks" / task / "environment" / "README.md").is_file()
    lint = suites("lint", str(out))
    assert (lint.returncode, "1 tasks, 0 problems" in lint.stderr) == (0, True), lint.stdout

    [version] = suite_versions(lake.database, TENANT, "calc")
    found = Contamination([version])
    assert find_suites(lake.database, TENANT, []) == (version,)
    later = found.of(SessionProfile("new", commit=project[0][:12]))
    assert later is not None
    assert later.reason == "contaminated_commit"
    text = "def multiply(one, two):\n    return one * two\n" + prompt.read_text()
    copy = found.of(SessionProfile("newer"), [text])
    assert copy is not None
    assert copy.reason == "contaminated_text"
    assert found.of(SessionProfile("newest"), ["something else, said in many other words"]) is None


def test_what_cannot_be_mined(suites: Suites, tmp_path: Path) -> None:
    git(tmp_path, "clone", "--quiet", "--depth", "1", f"file://{tmp_path / 'calc'}", "shallow")
    (tmp_path / "empty").mkdir()
    git(tmp_path / "empty", "init", "--quiet")
    (tmp_path / "plain").mkdir()
    for name, why in (
        ("shallow", "git fetch --unshallow"),
        ("empty", "no commit yet"),
        ("plain", "git"),
        ("gone", "no such folder"),
    ):
        done = suites("mine", str(tmp_path / name), "--suite", "calc", "--environment", "machine")
        assert (done.returncode, why in done.stderr) == (2, True), done.stderr
    calc = ("mine", str(tmp_path / "calc"), "--suite", "calc", "--environment")
    assert suites(*calc, "machine", "--commits", "nowhere..HEAD").returncode == 2
    assert suites(*calc, str(tmp_path / "missing.toml")).returncode == 2
