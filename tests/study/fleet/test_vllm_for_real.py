"""The script for vLLM in a vLLM, on the CPU: what it serves is what transformers computes with the
files of the checkpoint that the channel is at.

It runs where VLLM_PYTHON names the Python of an environment with vLLM, as `make engines` does. A
start of vLLM takes a minute.
"""

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.access.keys import create_key
from penstock_jobs.simulator.demo.server import running_server
from tests.study.fleet import vllm_server
from tests.study.fleet.vllm_server import ADAPTER, Vllm
from tests.support.checkpoint_factory import rollback
from tests.support.fleet.following import Fleet, add_files, next_event, process
from tests.support.repository import ROOT

PYTHON = vllm_server.python()
# In CI too, where there is no such environment.
pytestmark = pytest.mark.skipif(PYTHON is None, reason="VLLM_PYTHON is not set: `make engines`")
SCRIPT = f"{sys.executable} {ROOT}/examples/serving/vllm/load.py"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    program = Path(__file__).with_name("tiny_models.py")
    subprocess.run([str(PYTHON), str(program), str(folder)], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def engine(models: Path) -> Iterator[Vllm]:
    assert PYTHON is not None
    started = Vllm(PYTHON, models, models / "vllm.log")
    try:
        started.start()
        yield started
    finally:
        started.stop()


@pytest.fixture
def add(fleet: Fleet, models: Path) -> Callable[..., None]:
    """Registers folders of models."""

    def added(*names: str, **facts: str) -> None:
        for name in names:
            add_files(fleet.database, models / name, name, **facts)

    return added


@contextmanager
def following(
    fleet: Fleet, engine: Vllm, monkeypatch: pytest.MonkeyPatch
) -> Iterator["subprocess.Popen[str]"]:
    """A sidecar as a process, that asks a service over HTTP."""
    monkeypatch.setenv("VLLM_URL", engine.url)
    monkeypatch.setenv("VLLM_ADAPTER", ADAPTER)
    key = create_key(fleet.database, "serve", "default")[1]
    with running_server(fleet.folder) as server:
        told = ["--url", server.url, "--into", f"{fleet.folder}/into", "--exec", SCRIPT]
        none = fleet.folder / "none"
        with process(none, *told, "--check", f"{SCRIPT} --check", key=key) as sidecar:
            yield sidecar


def failure(sidecar: "subprocess.Popen[str]", said: str) -> dict[str, Any]:
    """The next one that says so; those before it are passed over."""
    while said not in (found := next_event(sidecar, "failed"))["text"]:
        pass
    return found


def ask_on(engine: Vllm, ended: threading.Event) -> list[Any]:
    """Long answers, one after the other, the last of them begun before that ended."""
    found = [engine.spans(400)]
    while not ended.is_set():
        found.append(engine.spans(400))
    return found


def test_it_serves_what_the_channel_is_at(
    fleet: Fleet, engine: Vllm, add: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    add("one", "two")
    fleet.promote("one")
    with following(fleet, engine, monkeypatch) as sidecar:
        next_event(sidecar, "loaded")
        assert engine.serves() == "one"
        fleet.promote("two")
        next_event(sidecar, "loaded")
        assert engine.serves() == "two"
        rollback(fleet.database)
        next_event(sidecar, "loaded")
        assert engine.serves() == "one"
        assert engine.ask("/weight_info") == {"weight_version": "3:one"}


def test_an_answer_is_of_one_checkpoint(
    fleet: Fleet, engine: Vllm, add: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    add("one", "two")
    fleet.promote("one")
    with following(fleet, engine, monkeypatch) as sidecar, ThreadPoolExecutor(4) as clients:
        next_event(sidecar, "loaded")
        ended = threading.Event()
        asking = [clients.submit(ask_on, engine, ended) for _ in range(4)]
        try:
            fleet.promote("two")
            next_event(sidecar, "loaded")
        finally:
            ended.set()
        found = [answer for one in asking for answer in one.result()]
        found.append(engine.spans(50))
    versions = {"one": "1:one", "two": "2:two"}
    assert {name for name, _ in found} == {"one", "two"}
    for name, spans in found:
        assert [one["version"] for one in spans] == [versions[name]]


def test_a_delta_is_an_adapter_on_its_own_weights(
    fleet: Fleet, engine: Vllm, add: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    add("one", "two")
    add("first", form="delta", parent="one")
    add("second", form="delta", parent="two")
    fleet.promote("first")
    with following(fleet, engine, monkeypatch) as sidecar:
        next_event(sidecar, "loaded")
        assert (engine.serves(ADAPTER), engine.serves()) == ("first", "one")
        fleet.promote("second")
        next_event(sidecar, "loaded")
        assert (engine.serves(ADAPTER), engine.serves()) == ("second", "two")
        fleet.promote("one")
        next_event(sidecar, "loaded")
        assert engine.serves() == "one"
        assert [one["id"] for one in engine.ask("/v1/models")["data"]] == [vllm_server.MODEL]


@pytest.mark.parametrize("kind", ["cut", "config", "lacking"])
def test_what_does_not_suit_it_never_reaches_it(
    fleet: Fleet, engine: Vllm, models: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    bad = fleet.folder / "bad"
    shutil.copytree(models / "two", bad)
    if kind == "cut":
        content = (bad / "model.safetensors").read_bytes()
        (bad / "model.safetensors").write_bytes(content[:-100])
    elif kind == "config":
        config = json.loads((bad / "config.json").read_text()) | {"rms_norm_eps": 0.5}
        (bad / "config.json").write_text(json.dumps(config))
    else:
        adapter = models / "first" / "adapter_model.safetensors"
        shutil.copyfile(adapter, bad / "model.safetensors")
    add_files(fleet.database, models / "one", "one")
    add_files(fleet.database, bad, "bad")
    fleet.promote("one")
    with following(fleet, engine, monkeypatch) as sidecar:
        next_event(sidecar, "loaded")
        fleet.promote("bad")
        said = {"cut": "is cut off", "config": "rms_norm_eps", "lacking": "missing"}[kind]
        assert said in next_event(sidecar, "failed")["text"]
        assert engine.serves() == "one"
        rollback(fleet.database)
        next_event(sidecar, "loaded")
        assert engine.ask("/is_paused") == {"is_paused": False}


def test_a_restart_and_a_reload_that_failed(
    fleet: Fleet, engine: Vllm, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = fleet.folder / "bad"
    shutil.copytree(models / "two", bad)
    weights = bad / "model.safetensors"
    weights.write_bytes(weights.read_bytes().replace(b'"F32"', b'"F99"'))
    add_files(fleet.database, models / "one", "one")
    add_files(fleet.database, bad, "bad")
    fleet.promote("one")
    with following(fleet, engine, monkeypatch) as sidecar:
        next_event(sidecar, "loaded")
        fleet.promote("bad")
        assert "/collective_rpc: 500" in next_event(sidecar, "failed")["text"]
        assert engine.ask("/weight_info") == {"weight_version": "broken by 2:bad"}
        assert engine.ask("/is_paused") == {"is_paused": True}
        rollback(fleet.database)
        assert failure(sidecar, "restart it")["checkpoint"] == "one"
        engine.stop()
        failure(sidecar, "Connection refused")
        engine.start()
        next_event(sidecar, "loaded")
        assert engine.serves() == "one"
        engine.stop()
        engine.start()
        next_event(sidecar, "lost")
        next_event(sidecar, "loaded")
        assert engine.serves() == "one"
