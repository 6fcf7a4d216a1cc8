"""What a reward is, and the list of all rewards.

A module of `penstock_jobs.rewards.measures` lists its rewards in REWARDS; an entry point of the
group `penstock.rewards` names one `Reward`. A definition (`definitions/*.toml`) gives it a weight.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from inspect import cleandoc
from typing import Any

import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.settings import Settings
from penstock_jobs.rewards.bucket import Bucket, Columns

#: What of each view the rewards that come with Penstock read, and the outcomes.
_READ: dict[str, tuple[str, ...]] = {
    "edits": ("event_id", "checkpoint", "edit_id", "path", "before", "after"),
    "observations": ("event_id", "path", "text", "deleted", "branch_changed"),
    "turns": (
        "turn", "last_ts", "checkpoint", "text", "model_calls", "tool_calls", "edits",
    ),
    "user_messages": (),
    "model_calls": (
        "event_id", "call_id", "checkpoint", "text", "tool_call_count", "completion_tokens",
        "thinking_tokens",
    ),
    "tool_calls": (
        "checkpoint", "tool", "arguments", "ok", "error_class", "output", "result_ts",
    ),
    "feedback": ("positive",),
    "events": ("event_id", "type", "payload"),
}  # fmt: skip
_READ_FROM_ALL = ("session_id", "ts", "seq", "consent")
_MEASURES = "penstock_jobs.rewards.measures"
_GROUP = "penstock.rewards"


@dataclass(frozen=True)
class NoParameters:
    """Of rewards that have none."""


@dataclass(frozen=True)
class Reward:
    """`compute` is pure: the rows of this reward for all sessions of a bucket. `version` goes up
    when it would give other rows for the same bucket and parameters."""

    name: str
    version: int
    compute: Callable[[Bucket, Any], pa.Table]
    #: A frozen dataclass; each of its fields has a default.
    parameters: type = NoParameters
    #: Raises where the settings do not give what it needs with these parameters.
    check: Callable[[Any, Settings], None] | None = None
    #: Computed only where a definition names it, since it needs settings in any case.
    only_named: bool = False

    def page(self) -> str:
        """What it measures, its formula, its states, and how it can be gamed."""
        return cleandoc(self.compute.__doc__ or "")


@cache
def all_rewards() -> dict[str, Reward]:
    """The key is the name. Raises InvalidInput where two have one name."""
    package = importlib.import_module(_MEASURES)
    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
    modules = [importlib.import_module(f"{_MEASURES}.{name}") for name in names]
    shipped = [reward for module in modules for reward in module.REWARDS]
    rewards: dict[str, Reward] = {}
    for reward in [*shipped, *(entry.load() for entry in entry_points(group=_GROUP))]:
        if reward.name in rewards:
            raise InvalidInput(what=f"The reward {reward.name}", why="two modules define it")
        rewards[reward.name] = reward
    return dict(sorted(rewards.items()))


def columns_of(rewards: Iterable[Reward]) -> Columns | None:
    """The columns that these rewards read; None for all, where a stranger's is among them."""
    if all(reward.compute.__module__.startswith("penstock_jobs.") for reward in rewards):
        return {name: (*_READ_FROM_ALL, *columns) for name, columns in _READ.items()}
    return None
