"""What a stage is, what it is given, and what it may answer.

A stage is a module in `stages` with these names. It may be killed anywhere and run again, here or
elsewhere, with the same inputs: what it did then counts, and is not done twice.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock.events.event import TENANT_DEFAULT
from penstock.execution import Executor, open_executor
from penstock.lake.lake import Lake
from penstock_jobs.loop.keeping import Cycle, Held
from penstock_jobs.loop.loopfile import LoopFile
from penstock_jobs.loop.planning import Outcome

#: What can be written as JSON.
Facts = Mapping[str, Any]


@dataclass(frozen=True)
class Done:
    """The next stage may begin. `of_cycle` are columns of the cycle that are known now."""

    result: Facts
    of_cycle: Facts = field(default_factory=dict)
    #: In a few words.
    told: str = ""


@dataclass(frozen=True)
class NotYet:
    """Nothing is wrong; it is asked again after the pause, or as often as the settings say."""

    why: str
    pause_s: float | None = None


@dataclass(frozen=True)
class Over:
    """The cycle ends here, and why; what follows is not run."""

    outcome: Outcome
    why: str
    result: Facts = field(default_factory=dict)


Answer = Done | NotYet | Over


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a stage works with."""

    lake: Lake
    loop: LoopFile
    tenant: str
    #: As it was when this stage was claimed.
    cycle: Cycle
    held: Held
    #: What the stages before found, by their names.
    results: Mapping[str, Facts]

    def executor(self) -> AbstractContextManager[Executor]:
        return open_executor(self.lake.settings)

    @property
    def parent(self) -> str:
        """The checkpoint that served when the cycle began."""
        assert self.cycle.parent is not None
        return self.cycle.parent

    @property
    def candidate(self) -> str:
        """The name of the checkpoint that the cycle makes."""
        return f"{self.loop.name}-{self.cycle.number:04d}"

    @property
    def label(self) -> str:
        """The loop's name, where names of all tenants stand beside each other."""
        tenant = "" if self.tenant == TENANT_DEFAULT else f"@{self.tenant}"
        return f"{self.loop.name}{tenant}"

    @property
    def actor(self) -> str:
        return f"loop-{self.loop.name}"


class Stage(Protocol):
    """A module of `stages`."""

    NAME: str

    def wanted(self, loop: LoopFile, /) -> bool:
        """Whether a cycle of this loop has it."""

    def inputs(self, work: Work, /) -> Facts:
        """All that its result hangs on. Raises what `run` raises."""

    def run(self, work: Work, inputs: Facts, /) -> Answer:
        """Raises PenstockError; then it is tried again, where that can help."""
