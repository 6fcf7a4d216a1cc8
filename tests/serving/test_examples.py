"""The scripts for engines, against a server that answers as the engines' pages say."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from penstock.testing.waiting import eventually
from tests.registry.promoting import rollback
from tests.serving.following import Fleet

EXAMPLES = Path(__file__).parents[2] / "examples" / "serving"


class Engine(ThreadingHTTPServer):
    """Notes what it is asked, in order. `answers` are by path: a status and a document."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[tuple[str, Any]] = []
        self.answers: dict[str, tuple[int, Any]] = {}
        self.version = "default"
        self.url = f"http://127.0.0.1:{self.server_port}"

    def answer(self, path: str, body: Any) -> tuple[int, Any]:
        found = self.answers.get(path.partition("?")[0])
        if found is not None:
            return found
        if path in ("/weight_info", "/model_info"):
            return 200, {"weight_version": self.version}
        self.asked.append((path, body))
        if path == "/update_weight_version":
            self.version = body["new_version"]
        elif path == "/update_weights_from_disk":
            self.version = body["weight_version"]
        return 200, {"success": True, "message": "ok"}

    def paths(self) -> list[str]:
        return [path for path, _ in self.asked]


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        engine = self.server
        assert isinstance(engine, Engine)
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status, document = engine.answer(self.path, json.loads(content) if content else None)
        answer = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def do_GET(self) -> None:
        self.do_POST()

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def running() -> Iterator[Engine]:
    with Engine() as engine:
        thread = threading.Thread(target=engine.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield engine
        finally:
            engine.shutdown()
            thread.join()


@pytest.fixture
def engine() -> Iterator[Engine]:
    with running() as started:
        yield started


def run(
    name: str, engine: Engine, *chain: Path, loaded: int = 0, check: bool = False, **more: str
) -> subprocess.CompletedProcess[str]:
    """As the sidecar runs it, where the first `loaded` of the chain are in the engine."""
    paths = [str(one) for one in chain]
    told = {
        f"{name.upper()}_URL": engine.url,
        "PENSTOCK_CHECKPOINT": "ckpt-2",
        "PENSTOCK_VERSION": "7",
        "PENSTOCK_CHAIN": "\n".join(paths),
        "PENSTOCK_APPLY": "\n".join(paths[loaded:]),
    }
    command = [sys.executable, str(EXAMPLES / name / "load.py"), *(["--check"] if check else [])]
    environment = os.environ | told | more
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    (tmp_path / "whole").mkdir()
    return tmp_path / "whole"


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text("{}")
    return tmp_path / "adapter"


VLLM_WHOLE = [
    "/pause?mode=wait",
    "/collective_rpc",
    "/reset_prefix_cache?reset_running_requests=true",
    "/update_weight_version",
    "/resume",
]


def test_vllm_reloads_its_weights_in_a_pause(engine: Engine, whole: Path) -> None:
    assert run("vllm", engine, whole).returncode == 0
    assert engine.paths() == [*VLLM_WHOLE, "/v1/unload_lora_adapter"]
    reload = {"method": "reload_weights", "kwargs": {"weights_path": str(whole)}}
    assert engine.asked[1][1] == reload
    assert engine.version == "7:ckpt-2"


def test_vllm_stays_paused_with_weights_that_may_be_partial(engine: Engine, whole: Path) -> None:
    engine.answers["/collective_rpc"] = (500, {"error": "no memory"})
    failed = run("vllm", engine, whole)
    assert failed.returncode == 1
    assert "no memory" in failed.stderr
    assert engine.paths() == ["/pause?mode=wait"]
    engine.answers.clear()
    assert run("vllm", engine, whole, VLLM_PAUSE="keep").returncode == 0
    assert engine.paths()[1:6] == ["/pause?mode=keep", *VLLM_WHOLE[1:]]


def test_an_older_vllm_has_no_name_for_its_weights(engine: Engine, whole: Path) -> None:
    lacking = ("/update_weight_version", "/weight_info", "/v1/unload_lora_adapter")
    engine.answers = {path: (404, {}) for path in lacking}
    assert run("vllm", engine, whole).returncode == 0
    assert engine.paths()[-1] == "/resume"
    assert run("vllm", engine, whole, check=True).returncode == 0


def test_vllm_takes_a_delta_as_an_adapter(engine: Engine, whole: Path, adapter: Path) -> None:
    assert run("vllm", engine, whole, adapter).returncode == 0
    assert engine.paths() == [*VLLM_WHOLE, "/v1/load_lora_adapter", "/update_weight_version"]
    engine.asked.clear()
    assert run("vllm", engine, whole, adapter, loaded=1).returncode == 0
    assert engine.paths() == ["/v1/load_lora_adapter", "/update_weight_version"]
    loaded = {"lora_name": "policy", "lora_path": str(adapter), "load_inplace": True}
    assert engine.asked[0][1] == loaded


def test_sglang_updates_from_disk(engine: Engine, whole: Path) -> None:
    assert run("sglang", engine, whole).returncode == 0
    told = {"model_path": str(whole), "weight_version": "7:ckpt-2", "flush_cache": True}
    unloaded = ("/unload_lora_adapter", {"lora_name": "policy"})
    assert engine.asked == [("/update_weights_from_disk", told), unloaded]
    engine.asked.clear()
    engine.answers["/unload_lora_adapter"] = (400, {})
    assert run("sglang", engine, whole, SGLANG_PAUSE="retract").returncode == 0
    assert engine.paths() == [
        "/pause_generation", "/update_weights_from_disk", "/continue_generation",
    ]  # fmt: skip
    assert engine.asked[0][1] == {"mode": "retract"}


@pytest.mark.parametrize("status", [200, 400])
def test_sglang_says_what_went_wrong(engine: Engine, whole: Path, status: int) -> None:
    said = {"success": False, "message": "Failed to update weights: shapes differ"}
    engine.answers["/update_weights_from_disk"] = (status, said)
    failed = run("sglang", engine, whole)
    assert failed.returncode == 1
    assert "shapes differ" in failed.stderr


def test_sglang_takes_a_delta_as_an_adapter(engine: Engine, whole: Path, adapter: Path) -> None:
    engine.answers["/unload_lora_adapter"] = (400, {"success": False})
    assert run("sglang", engine, whole, adapter, loaded=1).returncode == 0
    assert engine.paths() == ["/load_lora_adapter", "/update_weight_version"]
    assert engine.asked[0][1] == {"lora_name": "policy", "lora_path": str(adapter)}
    assert engine.asked[1][1]["abort_all_requests"] is False


@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_a_check_says_whether_the_engine_was_restarted(
    engine: Engine, whole: Path, name: str
) -> None:
    assert run(name, engine, whole, check=True).returncode == 1
    engine.version = "7:ckpt-2"
    assert run(name, engine, whole, check=True).returncode == 0
    engine.answers = {path: (503, {}) for path in ("/weight_info", "/model_info")}
    assert run(name, engine, whole, check=True).returncode == 0


@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_deltas_that_an_engine_cannot_take_are_refused(
    engine: Engine, whole: Path, adapter: Path, name: str
) -> None:
    for chain in ((whole, adapter, adapter), (adapter, whole)):
        assert run(name, engine, *chain).returncode == 1
    assert engine.asked == []


@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_a_sidecar_runs_them(
    engine: Engine, fleet: Fleet, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"{name.upper()}_URL", engine.url)
    fleet.add("one")
    fleet.add("two")
    fleet.promote("one")
    script = f"{sys.executable} {EXAMPLES / name / 'load.py'}"
    with fleet.following(script, check=f"{script} --check") as follower:
        follower.wait_for("loaded")
        assert engine.version == "1:one"
        fleet.promote("two")
        follower.wait_for("loaded", 2)
        rollback(fleet.database)
        follower.wait_for("loaded", 3)
        engine.version = "default"  # as after a restart
        follower.wait_for("loaded", 4)
        eventually(lambda: engine.version == "3:one")
