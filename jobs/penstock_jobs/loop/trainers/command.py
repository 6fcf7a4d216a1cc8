"""A trainer that is a command.

It runs in a process group of its own below a guard, which ends the whole group as soon as the
runner of the loop lets go of a pipe: when its time is over, when the stage is another runner's by
now, and when the runner is killed.
"""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from penstock.errors import InvalidInput
from penstock.settings import ENVIRONMENT_PREFIX
from penstock_jobs.loop.errors import StageLost, TrainerAnswerUnfit, TrainerFailed, TrainerTooSlow
from penstock_jobs.loop.training import TOLD_CHARS_MAX, Made, Task, read_answer

_LOOK_SECONDS = 0.05

# Ends with the status of the shell; 128 + n where signal n ended it. The group is ended in any
# case: what a trainer leaves behind must not write into a finished checkpoint.
_GUARD = """
import os, signal, subprocess, sys, threading
child = subprocess.Popen(["sh", "-c", sys.argv[1]], stdin=subprocess.DEVNULL,
                         start_new_session=True)
def end():
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
def guard():
    os.read(0, 1)
    end()
threading.Thread(target=guard, daemon=True).start()
status = child.wait()
end()
os._exit(status if status >= 0 else 128 - status)
"""


@dataclass(frozen=True, kw_only=True)
class CommandTrainer:
    """It is told facts as PENSTOCK_… variables."""

    command: str
    #: Where it runs.
    directory: Path
    #: Of the cycle. Each try has a folder below it, so that one that comes late harms nobody.
    folder: Path
    #: The data directory of Penstock.
    data: Path
    answer_bytes_max: int

    def train(self, task: Task, lost: Event) -> Made:
        mine = self.folder / f"try-{task.attempt:03d}"
        output, work = mine / "checkpoint", self.folder / "work"
        try:
            for folder in (output, work):
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            what = f"The output folder of the trainer {error.filename}"
            raise InvalidInput(what=what, why=error.strerror or error) from error
        answer, log = mine / "answer.json", mine / "trainer.log"
        folders = {"data": self.data, "output": output, "work": work, "answer": answer}
        told = {
            f"{ENVIRONMENT_PREFIX}{name.upper()}": str(value)
            for name, value in {**task.facts, **folders}.items()
        }
        status = self._run(task, told, log, lost)
        if status != 0:
            raise TrainerFailed(status=status, log=log, output=_end_of(log))
        return self._read(answer)

    def _run(self, task: Task, told: Mapping[str, str], log: Path, lost: Event) -> int:
        until = time.monotonic() + task.limit_s
        with log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-ISc", _GUARD, self.command],
                cwd=self.directory,
                env={**os.environ, **told},
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the runner, which ends the trainer
            )
        try:
            while True:
                with suppress(subprocess.TimeoutExpired):
                    return process.wait(_LOOK_SECONDS)
                if lost.is_set():
                    loop, cycle = task.facts["loop"], task.facts["cycle"]
                    raise StageLost(stage="train", cycle=cycle, loop=loop)
                if time.monotonic() >= until:
                    break
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait()
        raise TrainerTooSlow(limit_s=f"{task.limit_s:g}", log=log, output=_end_of(log))

    def _read(self, path: Path) -> Made:
        try:
            with path.open("rb") as file:
                content = file.read(self.answer_bytes_max + 1)
        except FileNotFoundError as error:
            raise TrainerAnswerUnfit(path=path, why="it is not there") from error
        except OSError as error:
            raise TrainerAnswerUnfit(path=path, why=error) from error
        if len(content) > self.answer_bytes_max:
            raise TrainerAnswerUnfit(
                path=path, why=f"it has more than {self.answer_bytes_max} bytes"
            )
        return read_answer(content, path)


def _end_of(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - TOLD_CHARS_MAX))
        return file.read().decode(errors="replace").strip() or "nothing"
