"""Engines that serve checkpoints to the demo's users, each behind a proxy that records calls."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from penstock.backends.http.client import ServiceClient
from penstock.backends.http.errors import ServerUnreachable
from penstock_jobs.simulator.demo.server import Server
from penstock_jobs.simulator.demo.traffic import ServedModel

_POLL_SECONDS = 0.05
_DELIVERY_SECONDS_MAX = 60.0


@dataclass
class Engines:
    """Engines by checkpoint. Those that no longer serve are stopped."""

    server: Server
    #: Where engine.py lies, and where logs and events that wait go.
    examples: Path
    scratch: Path
    log: IO[bytes]
    _running: dict[str, tuple[ServedModel, ExitStack]] = field(default_factory=dict)

    def serve(self, weights: Mapping[str, Path], version: int) -> list[ServedModel]:
        """Serve these checkpoints, and no others."""
        for name in set(self._running) - set(weights):
            self._running.pop(name)[1].close()
        for name, path in weights.items():
            if name not in self._running:
                self._running[name] = self._start(name, path, version)
        return [self._running[name][0] for name in weights]

    def wait_until_delivered(self) -> None:
        """Wait until the proxies have sent all that they recorded. Raises ServerUnreachable."""
        until = time.monotonic() + _DELIVERY_SECONDS_MAX
        for model, _ in self._running.values():
            with ServiceClient(model.url) as client:
                while _waiting(client.get("/penstock/status").json()):
                    if time.monotonic() > until:
                        why = f"its recorded calls waited longer than {_DELIVERY_SECONDS_MAX:g} s"
                        raise ServerUnreachable(url=self.server.url, why=why)
                    time.sleep(_POLL_SECONDS)

    def close(self) -> None:
        self.serve({}, 0)

    def _start(self, name: str, weights: Path, version: int) -> tuple[ServedModel, ExitStack]:
        stack = ExitStack()
        engine = [str(self.examples / "engine.py"), str(weights), "--port", "0"]
        named = ["--name", name, "--version", f"{version}:{name}"]
        calls = ["--log", str(self.scratch / f"{name}-{version}.calls.jsonl")]
        upstream = stack.enter_context(self._running_process([*engine, *named, *calls]))
        spool = self.scratch / f"{name}-{version}.spool"
        record = ["-m", "penstock", "record", "--json", "--port", "0", "--engine", "vllm"]
        where = ["--upstream", upstream, "--url", self.server.url, "--spool", str(spool)]
        url = stack.enter_context(self._running_process([*record, *where, "--checkpoint", name]))
        return ServedModel(name, url), stack

    @contextmanager
    def _running_process(self, arguments: list[str]) -> Iterator[str]:
        """Run a Python program that prints its address when it is ready."""
        process = subprocess.Popen(
            [sys.executable, *arguments],
            stdout=subprocess.PIPE,
            stderr=self.log,
            env=os.environ | {"PENSTOCK_KEY": self.server.key or ""},
        )
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            if not line:
                why = f"it ended with {process.wait()}; {self.log.name} says more"
                raise ServerUnreachable(url=Path(arguments[0]).name, why=why)
            yield json.loads(line)["url"]
        finally:
            process.terminate()
            process.wait()
            process.stdout.close()


def _waiting(status: Mapping[str, Any]) -> bool:
    events = status["events"]
    unread = status["open"] or status["waiting_bytes"] or events["recorded"] < status["calls"]
    return bool(unread or events["waiting"])
