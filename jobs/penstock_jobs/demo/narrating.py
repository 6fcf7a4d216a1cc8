"""What the person who watches is told while it happens."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from penstock_jobs.demo.story import EXPLAINED, Act, Measured

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
