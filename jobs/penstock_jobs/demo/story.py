"""What is told: the cycles of the demonstration, in their order."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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


_DIGEST = re.compile(r"(sha256:[0-9a-f]{8})[0-9a-f]{56}")


@dataclass(frozen=True)
class Narrator:
    """`tell` takes a line; `scores` says what checkpoints scored by now."""

    tell: Callable[[str], None]
    scores: Callable[[], Mapping[str, float]]
    _explained: set[str] = field(default_factory=set)

    def begin_act(self, number: int, acts: int, act: Act) -> None:
        self.tell(f"\nCycle {number} of {acts}. {act.title}\n   {act.told}")

    def production(
        self, checkpoint: str, sessions: int, measured: Measured, known: Measured
    ) -> None:
        self._line(
            "production",
            f"{sessions} sessions of {checkpoint}: {percent(measured.kept)} of its edits were kept"
            f" (in truth {percent(known.kept)}), {percent(measured.dissatisfied)} of its turns left"
            f" the user dissatisfied ({percent(known.dissatisfied)})",
        )

    def cycle(self, text: str) -> None:
        """What the runner of a loop says, on lines of one shape: which stage, what came of it."""
        who, _, said = text.partition(": ")
        stage, done, told = said.partition(" is done: ")
        if done:
            self._line(stage, self._in_other_words(stage, told))
        elif who.startswith("cycle") and " " in said:  # how it ends, or what goes wrong
            self._line("", said.replace("_", " ", 1))

    def _in_other_words(self, stage: str, told: str) -> str:
        if stage == "train":
            address, _, digest = told.partition(", ")
            return f"{address.rpartition('/')[2]}, {digest}"
        if stage == "bench":
            found = self.scores().items()
            return "scores by now: " + ", ".join(f"{name} {score:.2f}" for name, score in found)
        return told

    def _line(self, what: str, told: str) -> None:
        if what in EXPLAINED and what not in self._explained:
            self._explained.add(what)
            self.tell(f"   {what:<11}{EXPLAINED[what]}:")
            what = ""
        short = _DIGEST.sub(r"\1…", told)
        self.tell(f"   {what:<11}{short}")


def percent(share: float | None) -> str:
    return "—" if share is None else f"{share:.0%}"
