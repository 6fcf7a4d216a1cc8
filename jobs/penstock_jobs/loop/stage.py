"""A stage of a cycle: what it works with, and how it can end.

It may be killed anywhere and run again, here or elsewhere, with the same inputs: what it did before
counts, and is not done twice."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from penstock.backends.database.engine import Database
from penstock.core.clock import SECOND_US
from penstock.lake.lake import Lake
from penstock.registry.channels.change import ChannelState
from penstock.registry.channels.channel import channel_state, policy_of
from penstock.registry.gate.policy import Policy, parse
from penstock_jobs.loop.cycles import Cycle, CycleOutcome, StageClaim, database_now
from penstock_jobs.loop.loop_file import LoopFile

#: What can be written as JSON.
StageFacts = Mapping[str, Any]


@dataclass(frozen=True)
class StageDone:
    result: StageFacts
    #: Columns of the cycle that are known now.
    of_cycle: StageFacts = field(default_factory=dict)
    #: In a few words, for people.
    summary: str = ""


@dataclass(frozen=True)
class StageWaits:
    """Nothing is wrong: the stage runs again after the pause, or after that of the settings."""

    why: str
    pause_s: float | None = None


@dataclass(frozen=True)
class CycleOver:
    """The cycle ends here; the later stages are not run."""

    outcome: CycleOutcome
    why: str
    result: StageFacts = field(default_factory=dict)


StageAnswer = StageDone | StageWaits | CycleOver


@dataclass(frozen=True)
class StageContext:
    lake: Lake
    loop: LoopFile
    tenant: str
    #: As it was when this stage was claimed.
    cycle: Cycle
    claim: StageClaim

    @property
    def database(self) -> Database:
        return self.lake.database

    @property
    def parent(self) -> str:
        assert self.cycle.parent is not None
        return self.cycle.parent

    @property
    def candidate(self) -> str:
        return f"{self.loop.name}-{self.cycle.number:04d}"

    @property
    def actor(self) -> str:
        return f"loop-{self.loop.name}"

    @property
    def requester(self) -> dict[str, Any]:
        return {"tenant": self.tenant, "channel": self.loop.channel, "actor": self.actor}

    @property
    def occasion(self) -> str:
        return f"cycle {self.cycle.number} of the loop {self.loop.name}"

    def channel(self) -> ChannelState:
        return channel_state(self.database, self.tenant, self.loop.channel)

    def policy(self) -> Policy | None:
        text = policy_of(self.database, self.channel())
        where = f"the policy of {self.loop.channel}"
        return None if text is None else parse(text, where)

    def seconds_in_stage(self) -> float:
        began = self.cycle.stage(self.claim.stage).started_at or self.claim.at
        return (database_now(self.database) - began) / SECOND_US


class Stage(ABC):
    #: As it stands in the database.
    name: ClassVar[str]

    @abstractmethod
    def inputs(self, context: StageContext) -> StageFacts:
        """All that its result depends on. Raises what `run` raises."""

    @abstractmethod
    def run(self, context: StageContext, inputs: StageFacts) -> StageAnswer:
        """Raises PenstockError: it is tried again where that can help."""
