"""Contenders that take turns, each in a process of its own."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from bench.figures import Figure
from penstock.backends.terminal.output import say

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-rivals" / "bin" / "python"
#: The number of a round that is not counted: it imports and sets up what the next ones have.
_WARM = 1_000


class ContenderFailed(Exception):
    """A contender ended before its work was done."""


@dataclass(frozen=True)
class Contender:
    """`module` runs with Penstock's interpreter, or where `package` is with the rivals'."""

    name: str
    module: str
    question: Mapping[str, Any]
    package: str = ""

    def python(self) -> str:
        return str(PYTHON) if self.package else sys.executable


@dataclass(frozen=True)
class Spending:
    units: int
    cpu_s: float
    wall_s: float


@dataclass
class Rounds:
    """What one contender spent, round by round."""

    spent: list[Spending] = field(default_factory=list)

    @property
    def per_cpu_s(self) -> list[float]:
        return [one.units / one.cpu_s for one in self.spent]

    @property
    def per_second(self) -> list[float]:
        return [one.units / one.wall_s for one in self.spent]


def why_absent(package: str) -> str:
    """Empty where the rivals' environment has the package."""
    if not PYTHON.exists():
        return "not measured: there is no .venv-rivals (make .venv-rivals)"
    command = [str(PYTHON), "-c", f"import importlib.util as u; assert u.find_spec({package!r})"]
    found = subprocess.run(command, capture_output=True, check=False)
    return "" if found.returncode == 0 else f"not measured: {package} is not installed"


@dataclass
class Contest:
    """Running contenders, and why others do not run. A rival that fails leaves the contest;
    Penstock's own failure ends it."""

    _processes: dict[str, "_Process"]
    _absent: dict[str, str]

    def write(self, name: str) -> None:
        """Have a contender make what it reads."""
        self._ask(name, write=True)

    def take_turns(self, rounds: int, **facts: object) -> dict[str, Rounds]:
        """By name; the order turns around with each round."""
        names = list(self._processes)
        found = {name: Rounds() for name in names}
        for number in (_WARM, *range(rounds)):
            for name in names if number % 2 == 0 else reversed(names):
                spent = self._ask(name, round=number, **facts)
                if spent and number != _WARM:
                    found[name].spent.append(spent)
        return {name: spent for name, spent in found.items() if name not in self._absent}

    def absent(self) -> list[Figure]:
        """A line for each that could not run."""
        return [Figure(name, why) for name, why in self._absent.items()]

    def _ask(self, name: str, **facts: object) -> Spending | None:
        if name in self._absent:
            return None
        process = self._processes[name]
        try:
            return process.ask(facts)
        except ContenderFailed as error:
            if not process.contender.package:
                raise
            self._absent[name] = f"not measured: {error}"
            return None


@contextmanager
def running_contest(contenders: Sequence[Contender]) -> Iterator[Contest]:
    absent, processes = {}, {}
    with ExitStack() as stack:
        for one in contenders:
            if one.package and (why := why_absent(one.package)):
                absent[one.name] = why
                continue
            log = stack.enter_context(tempfile.TemporaryFile("w+"))
            processes[one.name] = stack.enter_context(_running(one, log))
        yield Contest(processes, absent)


@dataclass
class _Process:
    contender: Contender
    process: subprocess.Popen[str]
    log: IO[str]

    def ask(self, facts: Mapping[str, object]) -> Spending:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with suppress(BrokenPipeError):  # it has ended, and answers nothing
            print(json.dumps({**self.contender.question, **facts}), file=self.process.stdin)
            self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            self.log.seek(0)
            say(self.log.read()[-2_000:])
            raise ContenderFailed(f"it ended with {self.process.wait()}")
        return Spending(**json.loads(line))


@contextmanager
def _running(contender: Contender, log: IO[str]) -> Iterator[_Process]:
    # Nothing is ever asked of a hub.
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    command = [contender.python(), "-m", contender.module]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=pipe, stdout=pipe, stderr=log, text=True
    ) as process:
        try:
            yield _Process(contender, process, log)
        finally:
            process.kill()
            assert process.stdin is not None
            with suppress(BrokenPipeError):  # what one that had ended never read
                process.stdin.close()


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Round by round: what disturbs a round disturbs both."""
    return [mine / other for mine, other in zip(ours, theirs, strict=True)]
