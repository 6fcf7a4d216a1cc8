"""What is told: the cycles of the demonstration, in their order."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

Outcome = Literal["promoted", "refused", "rolled_back", "failed"]


@dataclass(frozen=True)
class Act:
    """A cycle: by which loop file, what is told before it, and how it is meant to end."""

    loop: str
    title: str
    told: str
    meant: Outcome = "promoted"
    #: Of a gate that is not as it should be.
    gate: str = ""
    #: What is told instead where the act before did not end as it was meant to.
    otherwise: str = ""

    def behind(self, before: "Chapter | None") -> "Act":
        """As it is told once it is known what became of the act before."""
        if before is None or before.as_meant or not self.otherwise:
            return self
        return replace(self, told=self.otherwise)


@dataclass(frozen=True)
class Measured:
    """Shares between 0 and 1; None where nothing says anything."""

    kept: float | None
    dissatisfied: float | None


@dataclass(frozen=True, kw_only=True)
class Chapter:
    """What became of an act. `measured` is what Penstock found of the sessions that the checkpoint
    `parent` served, `known` what the simulator knows of the same."""

    number: int
    act: Act
    parent: str
    sessions: int
    events: int
    measured: Measured
    known: Measured
    checkpoint: str | None
    #: What the suite says of the new checkpoint, and of the one that it is compared with.
    score: float | None
    score_before: float | None
    verdict: str | None
    outcome: str
    why: str
    #: How long each stage took, in seconds.
    stages: Sequence[tuple[str, float]]

    @property
    def gate(self) -> str:
        if self.verdict is None:
            return ""
        return f"{self.verdict} ({self.act.gate})" if self.act.gate else self.verdict

    @property
    def as_meant(self) -> bool:
        return self.outcome == self.act.meant


@dataclass(frozen=True)
class Ending:
    """The checkpoint that serves in the end, and what its users think of it."""

    checkpoint: str
    measured: Measured
    known: Measured


LEARN = "learn.toml"
ACTS = (
    Act(
        LEARN, "A weak model serves", "Much of what it writes is thrown away. It learns from that."
    ),
    Act(
        "questions.toml",
        "A hole in the reward",
        "Good agents ask, so somebody rewards questions. The trainer finds out what that pays.",
        "refused",
    ),
    Act(
        LEARN,
        "The hole is closed",
        "Production never saw the hack. On with the right reward.",
        otherwise="On with the right reward.",
    ),
    Act(
        LEARN,
        "Another cycle",
        "Users meet the new checkpoint, and it learns from them.",
        otherwise="The next checkpoint learns from what users do now.",
    ),
    Act(
        "careless.toml",
        "A bad day",
        "The trainer has a bug, the gate was loosened, and half of the users try what comes of it.",
        "rolled_back",
        "loosened",
    ),
    Act(
        LEARN,
        "Back to the rules",
        "A person released the channel; the strict gate is back.",
        otherwise="The strict gate is back.",
    ),
)
#: What each step is for, told when it is done for the first time.
EXPLAINED = {
    "production": "users work with the model, and what they and it do streams in over HTTP",
    "rewards": "what users did next says what each session was worth",
    "shard": "what a trainer reads: tokens with their rewards, and where each came from",
    "train": "a small trainer makes the next checkpoint from the shard and the last one",
    "register": "its files are what they are said to be",
    "bench": "both checkpoints attempt tasks with hidden checks, in rooms without a network",
    "gate": "is it shown that the new one is good enough, and hardly worse? Only PASS goes on",
    "promote": "production points at it; the next sessions are sampled from it",
}

#: Sessions of the last checkpoint, for the end of the table.
EPILOGUE = "What serves in the end"
