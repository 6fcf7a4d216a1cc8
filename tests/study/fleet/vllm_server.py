"""A real vLLM on loopback, from an environment of its own, with a tiny model."""

import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.support.servers.child import end_child, start_child
from tests.support.servers.ports import free_port
from tests.support.waiting import eventually

#: The name of the model, and that of the adapter of a delta.
MODEL, ADAPTER = "served", "policy"
_START_SECONDS_MAX = 400
_END_SECONDS_MAX = 60
#: Between single precision here and there.
_NEAR = 1e-3


class Vllm:
    """`answers` are those of each model, as tiny_models.py made them."""

    def __init__(self, python: Path, models: Path, log: Path) -> None:
        self._python = python
        self._models = models
        self._log = log
        self._child: subprocess.Popen[bytes] | None = None
        found = json.loads((models / "answers.json").read_text())
        self.prompts: list[list[int]] = found["prompts"]
        self.answers: dict[str, list[dict[str, Any]]] = found["models"]
        self.url = f"http://127.0.0.1:{free_port()}"

    def start(self) -> None:
        """It serves `base`."""
        facts = {
            "--model": str(self._models / "base"), "--served-model-name": MODEL,
            "--host": "127.0.0.1", "--port": self.url.rpartition(":")[2], "--dtype": "float32",
            "--max-model-len": "512", "--max-num-seqs": "8", "--max-lora-rank": "8",
        }  # fmt: skip
        flags = ["--enforce-eager", "--enable-lora", "--enable-scale-out"]
        settings = {
            "VLLM_SERVER_DEV_MODE": "1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
            "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1", "VLLM_CACHE_ROOT": str(self._models / "cache"),
        }  # fmt: skip
        named = [f"{name}={value}" for name, value in settings.items()]
        program = [str(self._python), "-m", "vllm.entrypoints.openai.api_server"]
        options = [part for one in facts.items() for part in one]
        self._child = start_child(["env", *named, *program, *options, *flags], log=self._log)
        eventually(self._is_up, _START_SECONDS_MAX)

    def stop(self) -> None:
        if self._child is not None:
            end_child(self._child, signal.SIGTERM, _END_SECONDS_MAX)
            self._child = None

    def ask(self, path: str, body: object = None) -> dict[str, Any]:
        """What it answers to a POST, or without a body to a GET."""
        content = json.dumps(body).encode() if body is not None else None
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}{path}", content, headers)
        with urllib.request.urlopen(request, timeout=120) as response:
            found: dict[str, Any] = json.loads(response.read() or b"{}")
        return found

    def serves(self, model: str = MODEL) -> str:
        """Whose answers it gives, to each prompt, twice: the second time from its caches. Nobody's
        where it mixes them."""
        found = {self._whose(model, at) for at in range(len(self.prompts)) for _ in range(2)}
        return found.pop() if len(found) == 1 else f"mixed: {sorted(found)}"

    def spans(self, tokens: int) -> tuple[str, list[dict[str, Any]]]:
        """Whose answer a long one is, and which weights it says made which of its tokens."""
        told = {"temperature": 0, "max_tokens": tokens, "ignore_eos": True}
        body = {"model": MODEL, "token_ids": self.prompts[0], "sampling_params": told}
        [choice] = self.ask("/inference/v1/generate", body)["choices"]
        assert len(choice["token_ids"]) == tokens
        return self._named(choice["token_ids"], 0), choice["weight_versions"]

    def _whose(self, model: str, at: int) -> str:
        count = len(self.answers["base"][at]["tokens"])
        body = {
            "model": model, "prompt": self.prompts[at], "temperature": 0, "max_tokens": count,
            "ignore_eos": True, "logprobs": 1, "return_token_ids": True,
        }  # fmt: skip
        [choice] = self.ask("/v1/completions", body)["choices"]
        name = self._named(choice["token_ids"], at)
        if name in self.answers:
            wanted = self.answers[name][at]["logprobs"]
            scores = choice["logprobs"]["token_logprobs"]
            assert max(abs(one - other) for one, other in zip(scores, wanted, strict=True)) < _NEAR
        return name

    def _named(self, tokens: list[int], at: int) -> str:
        for name, known in self.answers.items():
            if tokens[: len(known[at]["tokens"])] == known[at]["tokens"]:
                return name
        return "nobody"

    def _is_up(self) -> bool:
        assert self._child is not None
        assert self._child.poll() is None, self._log.read_text(errors="replace")[-3_000:]
        try:
            self.ask("/v1/models")
        except (urllib.error.URLError, ConnectionError):
            return False
        return True


def python() -> Path | None:
    """That of an environment with vLLM in it."""
    told = os.environ.get("VLLM_PYTHON")
    return Path(told).absolute() if told else None
