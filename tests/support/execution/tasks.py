"""Functions that workers import: what the tests of executors run."""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from penstock.core.errors import InvalidInput


class Marked(NamedTuple):
    """A task that leaves a mark in a directory each time that it is begun."""

    number: int
    directory: str

    def mark(self) -> int:
        """How often it was begun before."""
        before = self.begun()
        Path(self.directory, f"{self.number}-{before}").touch()
        return before

    def begun(self) -> int:
        return len(list(Path(self.directory).glob(f"{self.number}-*")))


def square(number: int) -> int:
    return number * number


def refuse_odd(number: int) -> int:
    if number % 2:
        raise InvalidInput(what=f"The number {number}", why="it is odd")
    return number


def refuse_odd_in_turn(task: Marked) -> int:
    """The later ones wait until the fifth was begun."""
    if task.number == 5:
        task.mark()
    while task.number > 5 and not Path(task.directory, "5-0").exists():
        time.sleep(0.01)
    return refuse_odd(task.number)


def fail(task: object) -> None:
    raise KeyError(task)


def exit_at_once(_task: object) -> None:
    sys.exit(3)


class Untold(Exception):
    """Cannot be pickled back: it wants two facts and keeps one."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(one + two)


def fail_untold(_task: object) -> None:
    raise Untold("one", "two")


def raise_with_a_fact_that_stays(_task: object) -> None:
    raise InvalidInput(what="The number", why=lambda: "it is odd")


def give_back_what_stays(_task: object) -> Any:
    return lambda: 1


def change_the_task(task: list[int]) -> int:
    task.append(1)
    return len(task)


def die_first_time(task: Marked) -> int:
    if task.mark() == 0 and task.number % 3 == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return task.number


def die_always(task: Marked) -> int:
    task.mark()
    if task.number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return task.number


def wait_for_file(task: Marked) -> int:
    """Begins, and ends when the directory holds a file `go`."""
    task.mark()
    while not Path(task.directory, "go").exists():
        time.sleep(0.01)
    return os.getpid()
