"""What a loop file takes from the environment of its runner, by name."""

import os
from collections.abc import Mapping

from penstock.errors import InvalidInput
from penstock_jobs.loop.loopfile import LoopFile


def check(loop: LoopFile) -> None:
    """That all of it is there. Raises InvalidInput."""
    token(loop.trainer.token_env)
    for one in loop.bench:
        passed(one.pass_env)


def token(name: str | None) -> str | None:
    """The secret in a variable; None where none is named. Raises InvalidInput, without it."""
    if name is None:
        return None
    found = os.environ.get(name, "").strip()
    if not found or not found.isascii() or not found.isprintable():
        why = "where this runner of the loop runs that variable holds no token"
        raise InvalidInput(what=f"token_env {name}", why=why)
    return found


def passed(names: tuple[str, ...]) -> Mapping[str, str]:
    """Variables that an agent is to have too. Raises InvalidInput."""
    for name in names:
        if name not in os.environ:
            why = "there is no such variable where this runner of the loop runs"
            raise InvalidInput(what=f"pass_env {name}", why=why)
    return {name: os.environ[name] for name in names}
