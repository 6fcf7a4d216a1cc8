"""Harbor's tasks, run as a suite: in a file system of their own, with their own tests."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from penstock.backends.execution.calls import InlineExecutor
from penstock.core.errors import InvalidInput
from penstock.core.settings import load_settings
from penstock.lake.lake import Lake
from penstock.registry.checkpoints.attempts import Attempt, attempts_of
from penstock.registry.checkpoints.journal import AttemptScope
from penstock_jobs.benchmarks.lint import lint_suite
from penstock_jobs.benchmarks.run import RunOptions, register_suite, run_suite
from penstock_jobs.benchmarks.suite import read_suite
from tests.room.benchmarks.conftest import TENANT
from tests.support.benchmarks.harbor_tasks import SOLVE, base, make_task
from tests.support.commands import penstock
from tests.support.suite_factory import write

LIMITS = "[agent]\ntimeout_sec = 60\n[environment]\nallow_internet = false\n"
STEPS = {
    "instruction.md": None,
    "tests/test.sh": None,
    "solution/solve.sh": None,
    "tests/shared": "",
    **{
        f"steps/{name}/{path}": text
        for name in ("one", "two")
        for path, text in {
            "instruction.md": f"Write {name}.",
            "tests/test.sh": "#!/bin/sh\ntest -e /tests/shared && touch /app/said\n"
            f"grep -c {name} /app/said > /logs/verifier/reward.txt\ntrue\n",
            "solution/solve.sh": f"#!/bin/sh\necho {name} >> /app/said\n",
        }.items()
    },
}
TWO_STEPS = '[[steps]]\nname = "one"\nmin_reward = 1\n[[steps]]\nname = "two"\n'


def scores(lake: Lake, folder: Path, agent: str) -> list[Attempt]:
    suite = read_suite(folder)
    with InlineExecutor() as executor:
        run_suite(lake, executor, suite, "new", RunOptions(agent=agent), tenant=TENANT)
    scope = AttemptScope(TENANT, suite.name, suite.version, "new")
    return [kept.result for kept in attempts_of(lake.database, scope)]


def findings(folder: Path, data: Path) -> dict[str, str]:
    with InlineExecutor() as executor:
        found = lint_suite(executor, read_suite(folder), load_settings(data, {}))
    return {one.task: one.problem for one in found}


def test_a_folder_of_tasks_is_a_suite(isolation: None, lake: Lake, tmp_path: Path) -> None:
    make_task(tmp_path / "tasks" / "count")
    suite = read_suite(tmp_path / "tasks")
    assert (suite.name, suite.tasks[0].tags) == ("tasks", ("lines",))
    assert suite.tasks[0].prompt == "Count the lines.\n"
    assert findings(tmp_path / "tasks", tmp_path / "lint") == {}
    agent = (
        "test ! -e /tests -a ! -e /solution -a $KIND = lines -a $HOME = /root || exit 9;"
        "grep lines /opt/built && wc -l < data.txt > answer && touch /opt/mark /usr/bin/mine"
    )
    (result,) = scores(lake, tmp_path / "tasks", agent)
    assert (result.score, result.edited, result.error) == (1.0, True, None)


def test_a_check_without_a_reward_is_an_error(isolation: None, lake: Lake, tmp_path: Path) -> None:
    make_task(tmp_path / "tasks" / "one", {"tests/test.sh": "#!/bin/sh\necho broken\n"})
    (result,) = scores(lake, tmp_path / "tasks", "echo 3 > answer")
    assert result.score is None
    why = "the tests gave no score: the tests wrote no reward; their last line: broken"
    assert result.error == why


def test_steps_share_a_container(isolation: None, lake: Lake, tmp_path: Path) -> None:
    folder = tmp_path / "tasks"
    make_task(folder / "mean", {"task.toml": LIMITS + TWO_STEPS, **STEPS})
    final = f'multi_step_reward_strategy = "final"\n{LIMITS}{TWO_STEPS}'
    data = {"environment/data.txt": "other"}
    make_task(folder / "final", {"task.toml": final, **STEPS, **data})
    assert findings(folder, tmp_path / "lint") == {}
    agent = (
        "grep -q two $PENSTOCK_PROMPT_FILE || echo one > said;"
        """echo '{"completion_tokens": 5}' > $PENSTOCK_REPORT"""
    )
    by_task = {result.task: result for result in scores(lake, folder, agent)}
    assert {task: result.score for task, result in by_task.items()} == {"mean": 0.5, "final": 0.0}
    assert by_task["mean"].completion_tokens == 10


def test_a_step_without_its_reward_ends_the_task(
    isolation: None, lake: Lake, tmp_path: Path
) -> None:
    make_task(tmp_path / "tasks" / "one", {"task.toml": LIMITS + TWO_STEPS, **STEPS})
    agent = """echo two > said; echo '{"steps": 1}' > $PENSTOCK_REPORT"""
    (result,) = scores(lake, tmp_path / "tasks", agent)
    assert (result.score, result.steps) == (0.0, 1)


LEFT_OUT: dict[str, dict[str, str | None]] = {
    "its base is": {"environment/Dockerfile": "FROM debian:1\n"},
    "no plain distribution": {"environment/Dockerfile": "FROM company/base:2\n"},
    "needs a GPU": {"task.toml": "[environment]\ngpus = 1\n"},
    "system is windows": {"task.toml": '[environment]\nos = "windows"\n'},
    "docker-compose.yaml": {"environment/docker-compose.yaml": "services: {}\n"},
    "container of their own": {"task.toml": '[verifier]\nenvironment_mode = "separate"\n'},
    "your variable KEY": {"task.toml": '[verifier.env]\nKEY = "${KEY}"\n'},
    "an image without a Dockerfile": {
        "task.toml": '[environment]\ndocker_image = "a/b:1"\n',
        "environment/Dockerfile": None,
        "environment/x": "",
    },
    "no tests/test.sh": {"tests/test.sh": None},
    "hosts by pattern": {
        "task.toml": '[agent]\nnetwork_mode = "allowlist"\nallowed_hosts = ["*.example"]\n'
    },
    "its instruction is empty": {"instruction.md": "<!-- canary -->\n"},
    "Expected `float | null`": {"task.toml": '[agent]\ntimeout_sec = "long"\n'},
}


@pytest.mark.parametrize("why", LEFT_OUT)
def test_what_cannot_be_run_here_says_why(tmp_path: Path, why: str) -> None:
    make_task(tmp_path / "good")
    make_task(tmp_path / "bad", LEFT_OUT[why])
    suite = read_suite(tmp_path)
    assert [task.name for task in suite.tasks] == ["good"]
    assert why in suite.left_out["bad"]


def test_a_host_that_nobody_reaches_is_said_before_anything_runs(tmp_path: Path) -> None:
    fetch = "#!/bin/sh\ncurl -LsSf https://nowhere.invalid/install.sh | sh\n"
    folder = make_task(tmp_path / "one", {"tests/test.sh": fetch})
    assert findings(folder, tmp_path / "lint") == {
        "one": "it needs nowhere.invalid:443, which this machine cannot reach"
    }


def test_a_suite_of_nothing(lake: Lake, tmp_path: Path) -> None:
    folder = make_task(tmp_path / "one", {"environment/Dockerfile": "FROM debian:1\n"})
    with pytest.raises(InvalidInput, match="none of its tasks can be run"):
        register_suite(lake.database, TENANT, read_suite(folder))
    with pytest.raises(InvalidInput, match="no task of Harbor"):
        read_suite(folder / "environment")


def test_a_suite_may_leave_tasks_out(tmp_path: Path) -> None:
    for name in ("good", "bad"):
        make_task(tmp_path / name, {"instruction.md": f"It is {name}."})
    before = read_suite(tmp_path)
    toml = 'name = "picked"\nformat = "harbor"\n[left_out]\n"bad" = "it is unfair"\n'
    write(tmp_path / "suite.toml", toml)
    suite = read_suite(tmp_path)
    assert (suite.name, suite.left_out) == ("picked", {"bad": "it is unfair"})
    assert suite.version != before.version
    write(tmp_path / "suite.toml", toml.replace("bad", "worse"))
    with pytest.raises(InvalidInput, match="worse"):
        read_suite(tmp_path)


def test_what_is_not_verified_is_left_out(isolation: None, tmp_path: Path) -> None:
    folder = tmp_path / "tasks"
    make_task(folder / "good")
    make_task(folder / "a.b", {"solution/solve.sh": "true", "instruction.md": "Do it."})
    for _again in range(2):
        penstock("suites", "prepare", str(folder), "--data", str(tmp_path / "data"))
        suite = read_suite(folder)
        assert [task.name for task in suite.tasks] == ["good"]
        assert suite.left_out == {"a.b": "its solution must pass its check, but fails"}
    make_task(folder / "c", {"solution/solve.sh": None, "instruction.md": "Do that."})
    penstock("suites", "prepare", str(folder), "--data", str(tmp_path / "data"))
    assert read_suite(folder).left_out.keys() == {"a.b", "c"}


WRONG: dict[str, Mapping[str, str | None]] = {
    "its solution must pass its check, but fails": {"solution/solve.sh": "#!/bin/sh\ntrue\n"},
    "an untouched tree must fail its check, but passes": {
        "tests/test.sh": "#!/bin/sh\necho 1 > /logs/verifier/reward.txt\n"
    },
    "it has no solution": {"solution/solve.sh": None},
    "exec /bin/sh -c false' ended with 1": {"environment/Dockerfile": "FROM {base}\nRUN false\n"},
}


@pytest.mark.parametrize("problem", WRONG)
def test_tasks_that_measure_nothing(isolation: None, tmp_path: Path, problem: str) -> None:
    files = {path: text and text.replace("{base}", base()) for path, text in WRONG[problem].items()}
    make_task(tmp_path / "tasks" / "one", files)
    assert problem in findings(tmp_path / "tasks", tmp_path / "data")["one"]


def test_each_try_has_a_fresh_container(isolation: None, tmp_path: Path) -> None:
    once = SOLVE.replace("echo done", "test ! -e /opt/mark && echo done")
    make_task(tmp_path / "tasks" / "one", {"solution/solve.sh": once})
    assert findings(tmp_path / "tasks", tmp_path / "data") == {}
