"""What a reward is, the rows that it gives, and the list of all rewards.

Each reward is a module of `penstock_jobs.rewards.measures` that says `REWARD = Reward(…)`, or an
entry point of the group `penstock.rewards` that names one.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from inspect import cleandoc, getmodule
from typing import Any, Literal

import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.settings import Settings
from penstock_jobs.rewards.bucket import Bucket, Columns

State = Literal["pending", "scored", "censored", "invalid"]
TargetKind = Literal["edit", "file", "turn", "session", "model_call"]

#: `due_us` is of pending rows: by that moment, in microseconds since 1970, the row will be pending
#: no more, even if no new event comes. A pending row without it waits for an event. On a censored
#: row it is when to compute the session again, because a later run may know more.
REWARD_ROWS = pa.schema(
    [
        pa.field("session_id", pa.string(), nullable=False),
        pa.field("target_kind", pa.string(), nullable=False),
        pa.field("target_id", pa.string(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("horizon_s", pa.int32()),
        pa.field("value", pa.float64()),
        pa.field("state", pa.string(), nullable=False),
        pa.field("reason", pa.string()),
        pa.field("weight", pa.float64(), nullable=False),
        pa.field("due_us", pa.int64()),
        pa.field("checkpoint", pa.string()),
    ]
)
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
_MODULES = "penstock_jobs.rewards.measures"
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
    rewards: dict[str, Reward] = {}
    for reward in [*_shipped(), *(entry.load() for entry in entry_points(group=_GROUP))]:
        if reward.name in rewards:
            raise InvalidInput(what=f"The reward {reward.name}", why="two modules define it")
        rewards[reward.name] = reward
    return dict(sorted(rewards.items()))


def _shipped() -> list[Reward]:
    package = importlib.import_module(_MODULES)
    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
    modules = [importlib.import_module(f"{_MODULES}.{name}") for name in names]
    return [module.REWARD for module in modules if hasattr(module, "REWARD")]


def columns_of(rewards: Iterable[Reward]) -> Columns | None:
    """The columns of the views that these rewards read, for `as_bucket`; None for all, which
    rewards that did not come with Penstock may read. Making only these costs half."""
    if all(reward.compute.__module__.startswith("penstock_jobs.") for reward in rewards):
        return {name: (*_READ_FROM_ALL, *columns) for name, columns in _READ.items()}
    return None


def latest_due(dues: Iterable[int | None]) -> int | None:
    """By when a whole is pending no more, from its pending parts: without an event never, if that
    holds of one of them."""
    latest: int | None = None
    for due in dues:
        if due is None:
            return None
        latest = due if latest is None else max(latest, due)
    return latest


class RewardRows:
    """The rows of a reward without horizons."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._rows: list[tuple[Any, ...]] = []

    def add(
        self,
        session: str,
        target: tuple[TargetKind, str],
        *,
        value: float | None,
        state: State | None = None,
        reason: str | None = None,
        weight: float = 1.0,
        due_us: int | None = None,
        checkpoint: str | None = None,
    ) -> None:
        """Without a state it is scored, or censored for a reason."""
        state = state or ("censored" if value is None else "scored")
        self._rows.append((session, *target, value, state, reason, weight, due_us, checkpoint))

    def table(self) -> pa.Table:
        names = [name for name in REWARD_ROWS.names if name not in ("name", "horizon_s")]
        values = list(zip(*self._rows, strict=True)) or [()] * len(names)
        columns = {
            name: pa.array(column, REWARD_ROWS.field(name).type)
            for name, column in zip(names, values, strict=True)
        }
        columns["name"] = pa.repeat(self._name, len(self._rows))
        columns["horizon_s"] = pa.nulls(len(self._rows), pa.int32())
        return pa.Table.from_arrays(
            [columns[name] for name in REWARD_ROWS.names], schema=REWARD_ROWS
        )
