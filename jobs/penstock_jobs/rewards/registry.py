"""The rewards that there are: each is a module of `penstock_jobs.rewards.measures` that says
`REWARD = Reward(…)`, or an entry point of the group `penstock.rewards` that names one."""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from inspect import cleandoc, getmodule
from typing import Any

import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.settings import Settings
from penstock_jobs.rewards.rows import Bucket

_MODULES = "penstock_jobs.rewards.measures"
_GROUP = "penstock.rewards"


@dataclass(frozen=True)
class Reward:
    """`compute` is pure: the rows of this reward for all sessions of a bucket. `version` goes up
    when it would give other rows for the same bucket and parameters."""

    name: str
    version: int
    compute: Callable[[Bucket, Any], pa.Table]
    #: A frozen dataclass; each of its fields has a default.
    parameters: type
    #: Raises where the settings do not give what it needs. A reward that needs anything is
    #: computed only where a definition names it.
    check: Callable[[Any, Settings], None] | None = None

    def page(self) -> str:
        """What it measures, its formula, its states, and how it can be gamed."""
        module = getmodule(self.compute)
        return cleandoc((module and module.__doc__) or "")


@cache
def all_rewards() -> dict[str, Reward]:
    """By name. Raises InvalidInput where two have one name."""
    found: dict[str, Reward] = {}
    for reward in [*_shipped(), *(entry.load() for entry in entry_points(group=_GROUP))]:
        if reward.name in found:
            raise InvalidInput(what=f"The reward {reward.name}", why="two modules define it")
        found[reward.name] = reward
    return dict(sorted(found.items()))


def _shipped() -> list[Reward]:
    package = importlib.import_module(_MODULES)
    names = sorted(one.name for one in pkgutil.iter_modules(package.__path__))
    modules = [importlib.import_module(f"{_MODULES}.{name}") for name in names]
    return [module.REWARD for module in modules if hasattr(module, "REWARD")]
