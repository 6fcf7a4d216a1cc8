"""The scripts for engines, against a server that answers as vLLM 0.32.0 and SGLang 0.5.23 did where
they were run; test_vllm_for_real.py runs the one for vLLM in a vLLM.
"""

import json
import math
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

from tests.support.checkpoint_factory import rollback
from tests.support.fleet.following import Fleet, add_files
from tests.support.repository import ROOT
from tests.support.waiting import eventually

EXAMPLES = ROOT / "examples" / "serving"


class Engine(ThreadingHTTPServer):
    """Notes what it is asked, in order. `answers` are by path: a status and a document."""

    def __init__(self, served: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.served = served
        self.asked: list[tuple[str, Any]] = []
        self.answers: dict[str, tuple[int, Any]] = {}
        self.version = "default"
        self.adapter: str | None = None
        self.url = f"http://127.0.0.1:{self.server_port}"

    def answer(self, path: str, body: Any) -> tuple[int, Any]:
        found = self.answers.get(path.partition("?")[0])
        if found is not None:
            return found
        if path in ("/weight_info", "/model_info"):
            return 200, {"weight_version": self.version}
        if path == "/server_info":
            return 200, {"model_path": str(self.served)}
        if path == "/v1/models":
            cards = [{"id": "served", "root": str(self.served), "parent": None}]
            adapter = {"id": "policy", "root": self.adapter, "parent": "served"}
            return 200, {"data": [*cards, *([adapter] if self.adapter else [])]}
        self.asked.append((path, body))
        return self.changed(path.removeprefix("/v1"), body)

    def changed(self, path: str, body: Any) -> tuple[int, Any]:
        if path == "/update_weight_version":
            self.version = body["new_version"]
        elif path == "/update_weights_from_disk":
            self.version = body["weight_version"]
        elif path == "/load_lora_adapter":
            self.adapter = body["lora_path"]
        elif path == "/unload_lora_adapter":
            if self.adapter is None:
                return 404, {"success": False}
            self.adapter = None
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
def running(served: Path) -> Iterator[Engine]:
    with Engine(served) as engine:
        thread = threading.Thread(target=engine.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield engine
        finally:
            engine.shutdown()
            thread.join()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with running(make_model(tmp_path / "served")) as started:
        yield started


def make_model(folder: Path, lacks: str = "", **facts: Any) -> Path:
    """A folder that engines take: its tensors have zeros in them."""
    folder.mkdir(exist_ok=True)
    config = {"hidden_size": 4, "rope_theta": 10_000.0, "tie_word_embeddings": False} | facts
    (folder / "config.json").write_text(json.dumps(config))
    shapes = {"embed.weight": [8, 4], "norm.weight": [4], "lm_head.weight": [8, 4]}
    shapes.pop(lacks, None)
    tensors: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in shapes.items():
        begin, end = end, end + 4 * math.prod(shape)
        tensors[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
    header = json.dumps(tensors).encode()
    content = len(header).to_bytes(8, "little") + header + bytes(end)
    (folder / "model.safetensors").write_bytes(content)
    return folder


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
    return make_model(tmp_path / "whole", transformers_version="6")


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text("{}")
    return tmp_path / "adapter"


RESET = "/reset_prefix_cache?reset_running_requests=true&reset_external=true"
VLLM_WHOLE = [
    "/pause?mode=wait", "/v1/unload_lora_adapter", "/collective_rpc", RESET,
    "/update_weight_version", "/resume",
]  # fmt: skip
VLLM_ADAPTER = [
    "/pause?mode=wait", "/v1/load_lora_adapter", RESET, "/update_weight_version", "/resume",
]  # fmt: skip


def test_vllm_reloads_its_weights_in_a_pause(engine: Engine, whole: Path) -> None:
    assert run("vllm", engine, whole).returncode == 0
    assert engine.paths() == VLLM_WHOLE
    reload = {"method": "reload_weights", "kwargs": {"weights_path": str(whole)}}
    assert engine.asked[2][1] == reload
    assert engine.version == "7:ckpt-2"


def test_vllm_takes_no_other_reload_after_one_that_failed(engine: Engine, whole: Path) -> None:
    engine.answers["/collective_rpc"] = (500, {"error": "no memory"})
    failed = run("vllm", engine, whole)
    assert (failed.returncode, "no memory" in failed.stderr) == (1, True)
    assert "/resume" not in engine.paths()
    assert engine.version == "broken by 7:ckpt-2"
    engine.answers.clear()
    engine.asked.clear()
    again = run("vllm", engine, whole)
    assert (again.returncode, "restart it" in again.stderr, engine.asked) == (1, True, [])
    engine.version = "default"  # as after a restart
    assert run("vllm", engine, whole, VLLM_PAUSE="keep").returncode == 0
    assert engine.paths() == ["/pause?mode=keep", *VLLM_WHOLE[1:]]


def test_vllm_without_development_endpoints_is_told_of(engine: Engine, whole: Path) -> None:
    engine.answers = {"/weight_info": (404, {})}
    for check in (False, True):
        failed = run("vllm", engine, whole, check=check)
        assert (failed.returncode, "VLLM_SERVER_DEV_MODE=1" in failed.stderr) == (1, True)
    assert engine.asked == []


def test_vllm_takes_a_delta_as_an_adapter(engine: Engine, whole: Path, adapter: Path) -> None:
    assert run("vllm", engine, whole, adapter).returncode == 0
    assert engine.paths() == [
        "/pause?mode=wait", "/v1/unload_lora_adapter", "/collective_rpc", *VLLM_ADAPTER[1:],
    ]  # fmt: skip
    engine.asked.clear()
    assert run("vllm", engine, whole, adapter, loaded=1).returncode == 0
    assert engine.paths() == VLLM_ADAPTER
    loaded = {"lora_name": "policy", "lora_path": str(adapter), "load_inplace": True}
    assert engine.asked[1][1] == loaded
    assert run("vllm", engine, whole, adapter, VLLM_PAUSE="keep").returncode == 1
    assert run("vllm", engine, whole).returncode == 0
    assert engine.adapter is None


def test_sglang_updates_from_disk(engine: Engine, whole: Path) -> None:
    engine.adapter = "/before"
    assert run("sglang", engine, whole).returncode == 0
    told = {"model_path": str(whole), "weight_version": "7:ckpt-2", "flush_cache": True}
    assert engine.asked[:2] == [
        ("/unload_lora_adapter", {"lora_name": "policy"}), ("/update_weights_from_disk", told),
    ]  # fmt: skip
    engine.asked.clear()
    assert run("sglang", engine, whole, SGLANG_PAUSE="retract").returncode == 0
    assert engine.paths() == [
        "/unload_lora_adapter", "/pause_generation", "/update_weights_from_disk",
        "/continue_generation", "/update_weight_version",
    ]  # fmt: skip
    assert engine.asked[1][1] == {"mode": "retract"}


@pytest.mark.parametrize("status", [200, 400])
def test_sglang_is_paused_where_it_may_have_a_part(
    engine: Engine, whole: Path, status: int
) -> None:
    said = {"success": False, "message": "Weights were updated, but the cache was not flushed"}
    engine.answers["/update_weights_from_disk"] = (status, said)
    failed = run("sglang", engine, whole)
    assert (failed.returncode, "was not flushed" in failed.stderr) == (1, True)
    assert engine.asked[-1] == ("/pause_generation", {"mode": "retract"})
    engine.answers.clear()
    engine.asked.clear()
    assert run("sglang", engine, whole).returncode == 0
    assert "/continue_generation" in engine.paths()


def test_sglang_takes_a_delta_as_an_adapter(engine: Engine, whole: Path, adapter: Path) -> None:
    assert run("sglang", engine, whole, adapter, loaded=1).returncode == 0
    paths = ["/unload_lora_adapter", "/update_weight_version", "/load_lora_adapter"]
    assert engine.paths() == paths
    assert engine.asked[1][1]["abort_all_requests"] is False
    assert engine.asked[2][1] == {"lora_name": "policy", "lora_path": str(adapter)}
    engine.asked.clear()
    assert run("sglang", engine, whole, adapter).returncode == 0
    updating = ["/update_weights_from_disk", "/continue_generation"]
    assert engine.paths() == [paths[0], *updating, *paths[1:]]


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("sglang", "cut", "is cut off"),
        ("vllm", "cut", "is cut off"),
        ("vllm", "empty", "no *.safetensors"),
        ("vllm", "garbage", "no file of safetensors"),
        ("vllm", "lacks", "norm.weight is missing"),
        ("vllm", "more", "norm.weight is [4] in it, and missing"),
        ("vllm", "config", "rope_theta is 2.0"),
        ("vllm", "none", "config.json"),
    ],
)
def test_what_the_server_would_take_in_part_never_reaches_it(
    engine: Engine, whole: Path, name: str, kind: str, said: str
) -> None:
    weights = whole / "model.safetensors"
    if kind == "cut":
        weights.write_bytes(weights.read_bytes()[:-1])
    elif kind == "empty":
        weights.unlink()
    elif kind == "garbage":
        weights.write_bytes(b"[1, 2, 3, 4, 5]")
    elif kind == "more":
        make_model(engine.served, lacks="norm.weight")
    elif kind == "none":
        (whole / "config.json").unlink()
    else:
        make_model(whole, **{"lacks": "norm.weight"} if kind == "lacks" else {"rope_theta": 2.0})
    failed = run(name, engine, whole)
    assert (failed.returncode, said in failed.stderr, engine.asked) == (1, True, [])


@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_a_server_that_says_that_it_has_something_else_has_not_loaded_it(
    engine: Engine, whole: Path, name: str
) -> None:
    info = {"vllm": "/weight_info", "sglang": "/model_info"}[name]
    engine.answers[info] = (200, {"weight_version": "6:ckpt-1"})
    failed = run(name, engine, whole)
    assert (failed.returncode, "the server has 6:ckpt-1" in failed.stderr) == (1, True)


@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_a_check_says_whether_the_engine_has_it(
    engine: Engine, whole: Path, adapter: Path, name: str
) -> None:
    assert run(name, engine, whole, check=True).returncode == 1
    engine.version = "7:ckpt-2"
    assert run(name, engine, whole, check=True).returncode == 0
    assert run(name, engine, whole, adapter, check=True).returncode == 1
    engine.adapter = str(adapter)
    assert run(name, engine, whole, adapter, check=True).returncode == 0
    assert run(name, engine, whole, check=True).returncode == 1
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
    for one in ("one", "two"):
        add_files(fleet.database, make_model(fleet.folder / one, _name_or_path=one), one)
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
