"""A setting names the executor; errors travel."""

import pickle
import sys
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from penstock.backends.execution import open_executor
from penstock.backends.execution.calls import InlineExecutor, ProcessExecutor
from penstock.core.errors import (
    Backlogged,
    ExtraMissing,
    InvalidInput,
    PenstockError,
    SettingInvalid,
)
from penstock.core.settings import Settings, load_settings
from tests.support.commands import penstock
from tests.support.lakes import hand_lake, make_event
from tests.support.servers.ports import free_port


def settings_with(directory: Path, executor: str) -> Settings:
    return load_settings(directory, {"PENSTOCK_EXECUTOR": executor})


def test_a_setting_names_the_executor(tmp_path: Path) -> None:
    assert isinstance(open_executor(load_settings(tmp_path, {})), InlineExecutor)
    assert isinstance(open_executor(settings_with(tmp_path, "inline")), InlineExecutor)
    assert isinstance(open_executor(settings_with(tmp_path, "processes")), ProcessExecutor)


@pytest.mark.parametrize("named", ["", "threads", "ray:", "ray://", "ray://a/b", "dask://a:1"])
def test_what_is_none_is_refused(tmp_path: Path, named: str) -> None:
    with pytest.raises(SettingInvalid, match="is not inline, processes"):
        open_executor(settings_with(tmp_path, named))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with hand_lake(tmp_path) as lake:
        lake.store([make_event(f"s{n}", n) for n in range(5)])
    return tmp_path


def verify(data: Path) -> CompletedProcess[str]:
    return penstock("lake", "verify", "--deep", "--data", str(data))


def test_a_cluster_that_is_not_there_is_unreachable(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    monkeypatch.setenv("PENSTOCK_EXECUTOR", address := f"ray://127.0.0.1:{free_port()}")
    done = verify(data)
    assert done.returncode == 3
    assert f"The executor {address} cannot be reached" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_command_does_its_heavy_work_in_processes(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_EXECUTOR", "processes")
    done = verify(data)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert done.stderr.endswith("1 segments, 5 events, 0 reward files: 0 problems\n")


def test_without_ray_the_error_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ExtraMissing, match=r"pip install 'penstock\[ray\]'"):
        open_executor(settings_with(tmp_path, "ray:auto"))


@pytest.mark.parametrize(
    "error", [InvalidInput(what="It", why="so"), Backlogged(why="full"), PenstockError(what="it")]
)
def test_an_error_keeps_its_facts_on_the_way(error: PenstockError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), copy.facts, str(copy)) == (type(error), error.facts, str(error))
