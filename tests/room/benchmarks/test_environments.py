"""Environments: made once for what makes them, seen by agents and checks, written by neither."""

import json
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from penstock.backends.execution.calls import InlineExecutor
from penstock.core.errors import InvalidInput
from penstock.core.settings import load_settings
from penstock.lake.lake import Lake
from penstock.registry.checkpoints.attempts import attempts_of, runs_of
from penstock.registry.checkpoints.journal import AttemptScope
from penstock_jobs.benchmarks.environments.environment import (
    Environment,
    EnvironmentFailed,
    Layer,
    make_layer,
)
from penstock_jobs.benchmarks.lint import lint_suite
from penstock_jobs.benchmarks.run import RunOptions, run_suite
from penstock_jobs.benchmarks.sandbox.sandbox_files import File
from penstock_jobs.benchmarks.suite import load_files, read_suite
from tests.room.benchmarks.conftest import TENANT
from tests.support.suite_factory import make_suite
from tests.support.waiting import eventually

UUID = "mkdir -p /environment && cp /proc/sys/kernel/random/uuid /environment/id"


def made(folder: Path, *setup: str, files: tuple[File, ...] = (), **more: object) -> Layer:
    return make_layer(Environment(setup=setup, **more), files, folder)  # type: ignore[arg-type]


def wheel(place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(place, "w") as archive:
        archive.writestr("answers.py", "ANSWER = 42\n")
        archive.writestr("answers-1.dist-info/METADATA", "Name: answers\nVersion: 1\n")


def test_a_suite_with_a_package(isolation: None, lake: Lake, tmp_path: Path) -> None:
    """Both agent and check import it, neither can write it, and the run says which it was."""
    toml = """
        [environment]
        setup = ["python3 -m zipfile -e answers-1-py3-none-any.whl /environment"]
        variables = ["PYTHONPATH=/environment", "PATH=/environment/bin:$PATH"]
        [check]
        command = ["python3", "check.py"]
    """
    check = """
        import answers, os, pathlib, sys
        assert not os.access("/environment/answers.py", os.W_OK)
        sys.exit(0 if pathlib.Path("answer").read_text() == str(answers.ANSWER) + "\\n" else 1)
    """
    folder = make_suite(tmp_path / "suite", {"one": {"check/check.py": check}}, toml)
    wheel(folder / "environment" / "answers-1-py3-none-any.whl")
    suite = read_suite(folder)
    agent = (
        "echo spoilt > /environment/answers.py; rm -rf /environment; touch /environment/new /new;"
        "python3 -c 'import answers; print(answers.ANSWER)' > answer"
    )
    with InlineExecutor() as executor:
        run_suite(lake, executor, suite, "new", RunOptions(agent=agent), tenant=TENANT)
    scope = AttemptScope(TENANT, suite.name, suite.version, "new")
    assert [kept.result.score for kept in attempts_of(lake.database, scope)] == [1.0]
    (task,) = suite.tasks
    assert task.environment is not None
    layer = make_layer(
        task.environment, load_files(task).setup, lake.settings.data / "environments"
    )
    (run,) = runs_of(lake.database, scope)
    assert run.conditions["layers"] == {layer.digest: layer.content}
    plain = RunOptions(agent=agent, isolated=False)
    with InlineExecutor() as executor, pytest.raises(InvalidInput, match="only a sandbox shows"):
        run_suite(lake, executor, suite, "new", plain, tenant=TENANT)


def test_made_once_for_all_that_makes_it(isolation: None, tmp_path: Path) -> None:
    one, two = File("lock", b"a==1\n"), File("lock", b"a==2\n")
    first = made(tmp_path, UUID, files=(one,))
    assert made(tmp_path, UUID, files=(one,)) == first
    others = [
        made(tmp_path, UUID, files=(two,)),
        made(tmp_path, UUID, files=(one,), variables=("A=1",)),
        made(tmp_path, f"{UUID} ", files=(one,)),
    ]
    assert len({layer.digest for layer in (first, *others)}) == 4
    assert len({layer.content for layer in (first, *others)}) == 4
    with pytest.raises(InvalidInput, match="its commands or files changed"):
        made(tmp_path, UUID, files=(two,), digest=first.digest)
    assert made(tmp_path, UUID, files=(one,), digest=first.digest) == first


def test_killed_in_the_middle_of_setup(isolation: None, tmp_path: Path) -> None:
    begun = "/penstock/cache/begun"
    setup = f"mkdir /environment; test -e {begun} || {{ touch {begun}; sleep 600; }}"
    code = f"""
from pathlib import Path
from penstock_jobs.benchmarks.environments.environment import Environment
from penstock_jobs.benchmarks.environments.environment import make_layer
make_layer(Environment(setup=({setup!r},)), [], Path({str(tmp_path)!r}))
"""
    with subprocess.Popen([sys.executable, "-c", code]) as child:
        eventually(lambda: list(tmp_path.glob("caches/*/begun")))
        child.send_signal(signal.SIGKILL)
    layer = made(tmp_path, setup)
    assert (Path(layer.folders[0]) / "environment").is_dir()
    assert not list(tmp_path.glob("layers/*.making"))


def test_setup_that_fails(isolation: None, tmp_path: Path) -> None:
    with pytest.raises(
        EnvironmentFailed, match=r"(?s)'echo no such.*ended with 3.*no such package"
    ):
        made(tmp_path, "true", "echo no such package; exit 3")
    assert not list(tmp_path.glob("layers/*.making"))
    with pytest.raises(EnvironmentFailed, match="went over its time"):
        made(tmp_path, "sleep 60", seconds=1)
    folder = make_suite(tmp_path / "s", 1, '[environment]\nsetup = ["exit 9"]\n')
    with InlineExecutor() as executor:
        found = lint_suite(executor, read_suite(folder), load_settings(tmp_path / "data", {}))
    assert "'exit 9' ended with 9" in found[0].problem


def test_settings_of_the_machine_are_passed_and_not_kept(
    isolation: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = "https://me:hunter2@packages.example/simple"
    monkeypatch.setenv("PIP_INDEX_URL", index)
    layer = made(tmp_path, UUID)
    assert "hunter2" not in (Path(layer.folders[0]).parent / "record.json").read_text()
    with pytest.raises(EnvironmentFailed) as failed:
        made(tmp_path, "echo $PIP_INDEX_URL; exit 1", network=("packages",))
    assert "https://***@packages.example/simple" in str(failed.value)


def test_setup_sees_no_secret_of_the_machine(isolation: None, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailed) as failed:
        made(
            tmp_path,
            "cat /etc/shadow || cat /etc/gshadow || ls ~root/.ssh"
            f" || ls {tmp_path} || mount -t tmpfs none /opt"
            " || echo x > /proc/sys/kernel/core_pattern",
        )
    said = str(failed.value)
    assert said.count("No such file") == 4
    assert "mount" in said
    assert "Read-only file system" in said
    assert "root:" not in said


BAD = {
    'setup = ["true"]\ncolour = "red"': "colour",
    'image = "ubuntu:24.04"': "names no digest",
    "seconds = 5": "it needs setup",
    'setup = ["true"]\nvariables = ["PATH"]': "not NAME=VALUE",
    'setup = ["true"]\ndigest = "abc"': "not sha256",
    'setup = ["true"]\nnetwork = ["pypi"]': "HOST:PORT",
}


@pytest.mark.parametrize("section", BAD)
def test_sections_that_say_nothing(tmp_path: Path, section: str) -> None:
    with pytest.raises(InvalidInput, match=BAD[section]):
        read_suite(make_suite(tmp_path, 1, f"[environment]\n{section}\n"))


def test_an_image_without_a_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    image = f"docker.io/library/debian@sha256:{'0' * 64}"
    with pytest.raises(EnvironmentFailed, match="needs podman or docker"):
        make_layer(Environment(image=image), [], tmp_path)


def test_a_record_says_what_made_it(isolation: None, tmp_path: Path) -> None:
    layer = made(tmp_path, UUID, files=(File("a.lock", b"1"),))
    record = json.loads((Path(layer.folders[0]).parent / "record.json").read_text())
    assert record["made_by"]["setup"] == [UUID]
    assert list(record["made_by"]["files"]) == ["a.lock"]
