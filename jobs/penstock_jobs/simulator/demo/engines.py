"""Engines that serve checkpoints to the demo's users, each behind a proxy that records calls."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple

from penstock.backends.http import ServerUnreachable
from penstock.backends.http.client import ServiceClient
from penstock_jobs.simulator.demo.server import Server
from penstock_jobs.simulator.demo.traffic import ServedModel

_POLL_SECONDS = 0.05
_DELIVERY_SECONDS_MAX = 60.0


class Weights(NamedTuple):
    checkpoint: str
    path: Path
    #: Their number in the channel.
    version: int


@dataclass
class Engines:
    """Engines by checkpoint. Those that no longer serve are stopped."""

    server: Server
    #: Where engine.py lies, and where logs and events that wait go.
    examples: Path
    scratch: Path
    log: IO[bytes]
    _running: dict[str, tuple[ServedModel, ExitStack]] = field(default_factory=dict)

    def serve(self, wanted: Sequence[Weights]) -> list[ServedModel]:
        """Serve these checkpoints, and no others."""
        names = [weights.checkpoint for weights in wanted]
        for name in set(self._running) - set(names):
            self._running.pop(name)[1].close()
        for weights in wanted:
            if weights.checkpoint not in self._running:
                self._running[weights.checkpoint] = self._start(weights)
        return [self._running[name][0] for name in names]

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
        self.serve(())

    def _start(self, weights: Weights) -> tuple[ServedModel, ExitStack]:
        name = weights.checkpoint
        engine = [str(self.examples / "engine.py"), str(weights.path), "--port", "0"]
        named = ["--name", name, "--version", f"{weights.version}:{name}"]
        scratch = str(self.scratch / f"{name}-{weights.version}")
        log = ["--log", f"{scratch}.calls.jsonl"]
        record = ["-m", "penstock", "record", "--json", "--port", "0", "--engine", "vllm"]
        where = ["--url", self.server.url, "--spool", f"{scratch}.spool", "--checkpoint", name]
        with ExitStack() as stack:
            upstream = stack.enter_context(self._running_process([*engine, *named, *log]))
            proxy = self._running_process([*record, *where, "--upstream", upstream])
            return ServedModel(name, stack.enter_context(proxy)), stack.pop_all()

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
