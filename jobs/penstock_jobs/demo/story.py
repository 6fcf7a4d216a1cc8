"""The story of the demonstration: its cycles in their order, and how they are told."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

Outcome = Literal["promoted", "refused", "rolled_back", "failed"]


@dataclass(frozen=True)
class Act:
    """A cycle: its loop file, what the watching person is told before it, and how it should end."""

    loop: str
    title: str
    told: str
    meant: Outcome = "promoted"
    #: What is wrong with the gate, if anything is.
    gate: str = ""
    #: Told instead if the act before did not end as it should.
    otherwise: str = ""

    def behind(self, before: "Chapter | None") -> "Act":
        """The act as it is told after `before`."""
        if before is None or before.as_meant or not self.otherwise:
            return self
        return replace(self, told=self.otherwise)


@dataclass(frozen=True)
class UserReaction:
    """How users received the work of a checkpoint: the shares of its edits that they kept, and of
    its turns that left them dissatisfied. None where there are none."""

    kept: float | None
    dissatisfied: float | None


@dataclass(frozen=True, kw_only=True)
class Chapter:
    """What became of an act. `measured` is what Penstock says of the sessions that the checkpoint
    `parent` served, `known` what the simulator knows of them."""

    number: int
    act: Act
    parent: str
    sessions: int
    events: int
    measured: UserReaction
    known: UserReaction
    checkpoint: str | None
    #: At the suite: of the new checkpoint, and of the one that it is compared with.
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
class StoryEnding:
    """The checkpoint that serves in the end, and how users receive it."""

    checkpoint: str
    measured: UserReaction
    known: UserReaction


LEARN = "learn.toml"
ACTS = (
    Act(
        LEARN, "A weak model serves", "Much of what it writes is thrown away. It learns from that."
    ),
    Act(
        "questions.toml",
        "A hole in the reward",
        "Good agents ask, so somebody rewards questions. The trainer learns how well that pays.",
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
        "The trainer has a bug, the gate was loosened, and half of the users get the result.",
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
#: What each stage is for, told when it is done for the first time.
EXPLANATIONS = {
    "production": "users work with the model, and what both do streams in over HTTP",
    "rewards": "what users did next shows what each session was worth",
    "shard": "what a trainer reads: tokens with their rewards and their origin",
    "train": "a small trainer makes the next checkpoint from the shard and the last one",
    "register": "the registry verifies the digest of its files",
    "bench": "both checkpoints attempt tasks with hidden checks, isolated, without a network",
    "gate": "is the new one shown to be good enough, and hardly worse? Only PASS goes on",
    "promote": "production points at it; the next sessions are sampled from it",
}

#: The title of the sessions of the last checkpoint.
EPILOGUE = "What serves in the end"

_DIGEST = re.compile(r"(sha256:[0-9a-f]{8})[0-9a-f]{56}")


@dataclass(frozen=True)
class Narrator:
    """Tells the story to the person who watches. `tell` takes a line; `scores` gives the scores of
    checkpoints by now."""

    tell: Callable[[str], None]
    scores: Callable[[], Mapping[str, float]]
    _explained: set[str] = field(default_factory=set)

    def begin_act(self, number: int, acts: int, act: Act) -> None:
        self.tell(f"\nCycle {number} of {acts}. {act.title}\n   {act.told}")

    def production(
        self, checkpoint: str, sessions: int, measured: UserReaction, known: UserReaction
    ) -> None:
        self._line(
            "production",
            f"{sessions} sessions of {checkpoint}: {percent(measured.kept)} of its edits were kept"
            f" (in truth {percent(known.kept)}), {percent(measured.dissatisfied)} of its turns left"
            f" the user dissatisfied ({percent(known.dissatisfied)})",
        )

    def cycle(self, text: str) -> None:
        """Tell a line of the loop's runner, such as `cycle 3: gate is done: PASS …`."""
        subject, _, message = text.partition(": ")
        stage, done, result = message.partition(" is done: ")
        if done:
            if stage == "train":
                address, _, digest = result.partition(", ")
                result = f"{address.rpartition('/')[2]}, {digest}"
            elif stage == "bench":
                scores = self.scores().items()
                shown = ", ".join(f"{name} {score:.2f}" for name, score in scores)
                result = f"scores by now: {shown}"
            self._line(stage, result)
        elif subject.startswith("cycle") and " " in message:  # how it ends, or what goes wrong
            self._line("", message.replace("_", " ", 1))

    def _line(self, stage: str, text: str) -> None:
        if stage in EXPLANATIONS and stage not in self._explained:
            self._explained.add(stage)
            self.tell(f"   {stage:<11}{EXPLANATIONS[stage]}:")
            stage = ""
        short = _DIGEST.sub(r"\1…", text)
        self.tell(f"   {stage:<11}{short}")


def percent(share: float | None) -> str:
    return "—" if share is None else f"{share:.0%}"
