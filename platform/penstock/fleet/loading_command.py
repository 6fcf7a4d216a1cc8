"""The command that loads a checkpoint into an engine."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from penstock.execution.guarded_process import run_guarded
from penstock.settings import ENVIRONMENT_PREFIX

#: How long a command may take to end after it was told to.
_GRACE_SECONDS = 5.0
_KEY = f"{ENVIRONMENT_PREFIX}KEY"


@dataclass(frozen=True)
class Ended:
    """How a run of a command ended, and the end of what it said."""

    #: In words, to follow its name; nothing where it ended with 0.
    how: str
    output: str
    #: It was ended since nobody wants it any more.
    given_up: bool = False


def run(
    command: str,
    facts: Mapping[str, str],
    *,
    seconds_max: float,
    lock: int,
    given_up: Callable[[], bool],
) -> Ended:
    """Run the command by `sh` with `facts` in its environment, and without the sidecar's key.

    What it says goes to standard error. The lock is held until the command has ended, also where
    the sidecar is killed: the next sidecar does not load at the same time.
    """
    mine = {name: value for name, value in os.environ.items() if name != _KEY}
    end = run_guarded(
        command,
        environment={**mine, **facts},
        seconds_max=seconds_max,
        cancelled=given_up,
        grace_seconds=_GRACE_SECONDS,
        leaves_processes=True,
        open_files=(lock,),
    )
    if end.status is not None:
        return Ended(f"ended with status {end.status}" if end.status else "", end.output)
    if end.cancelled:
        return Ended("was ended with its sidecar", end.output, given_up=True)
    return Ended(f"was ended: it had not finished after {seconds_max:g} s", end.output)
