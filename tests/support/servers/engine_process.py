"""A scripted engine as a process that writes down what it sampled, for harnesses to work with.

    python -m tests.support.servers.engine_process PORT LOG

Its template writes answers anew, so that a prompt continues one only if its ids are given.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.servers.ports import free_port
from tests.support.servers.scripted_answers import Document, Sampled, ScriptedAnswer
from tests.support.servers.scripted_engine import ScriptedEngine


def script(request: Document) -> ScriptedAnswer:
    """By how many answers there were before; no two conversations hear the same."""
    messages = request["messages"]
    heard = next(each["content"] for each in reversed(messages) if each["role"] == "user")
    mark = f"{len(messages)} {heard[-40:]}"
    if heard.startswith("Sum up"):
        return ScriptedAnswer(f"The summary: {mark}")
    answers = (
        ScriptedAnswer("", f"I look: {mark}", (("read", json.dumps({"path": mark})),)),
        ScriptedAnswer(f"It streams again: {mark}"),
        ScriptedAnswer("Both.", mark, (("edit", '{"input":  "a"}'), ("test", "{}"))),
        ScriptedAnswer(f"Done: {mark}"),
    )
    return answers[sum(each["role"] == "assistant" for each in messages) % len(answers)]


@dataclass
class LoggingEngine(ScriptedEngine):
    log: Path = Path()

    def sample(self, request: Document, prompt: list[int]) -> tuple[ScriptedAnswer, Sampled]:
        answer, sampled = super().sample(request, prompt)
        line = vars(sampled) | {"id": f"{self.name}-{len(self.sampled)}"}
        with self.log.open("ab", buffering=0) as file:  # a kill does not cut a line in two
            file.write(json.dumps(line).encode() + b"\n")
        return answer, sampled


@dataclass
class EngineProcess:
    log: Path
    port: int
    process: subprocess.Popen[str]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def sampled(self) -> dict[str, Document]:
        """What was sampled, by the id of the answer."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines()]
        return {line["id"]: line for line in lines}

    def restart(self) -> None:
        self.kill()
        self.process = _started(self.port, self.log)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def engine_process(folder: Path) -> Iterator[EngineProcess]:
    port, log = free_port(), folder / "engine.jsonl"
    engine = EngineProcess(log, port, _started(port, log))
    try:
        yield engine
    finally:
        engine.kill()


def _started(port: int, log: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", __name__, str(port), str(log)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline()
    return process


async def _main(port: int, log: Path) -> None:
    engine = LoggingEngine("vllm", script, writes_anew=True, name=f"chat-{os.getpid()}", log=log)
    server = await asyncio.start_server(engine.serve, "127.0.0.1", port, backlog=256)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1]), Path(sys.argv[2])))
