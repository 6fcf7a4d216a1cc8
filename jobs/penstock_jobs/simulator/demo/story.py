"""The story of the demonstration: its cycles in their order, and how they are told."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Act:
    """A cycle: its loop file, what the watching person is told before it, and how it should end."""

    loop: str
    title: str
    told: str
    meant: str = "promoted"
    #: What is wrong with the gate, if anything is.
    gate: str = ""


@dataclass(frozen=True)
class UserReaction:
    """The shares of edits that users kept, and of turns that left them dissatisfied. The margins
    are half of the 95 % interval of what was measured, from session to session."""

    kept: float | None
    dissatisfied: float | None
    kept_margin: float | None = None
    dissatisfied_margin: float | None = None


@dataclass(frozen=True, kw_only=True)
class Chapter:
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
    stages: Sequence[tuple[str, float]]


@dataclass(frozen=True)
class StoryEnding:
    checkpoint: str
    measured: UserReaction
    known: UserReaction


LEARN = "learn.toml"
ACTS = (
    Act(LEARN, "A weak model serves", "Much of what it writes is thrown away. It learns from it."),
    Act(
        "questions.toml", "A hole in the reward",
        "Good agents ask, so somebody rewards questions. The trainer learns how well that pays.",
        "refused",
    ),
    Act(LEARN, "The hole is closed", "On with the right reward."),
    Act(LEARN, "Another cycle", "The next checkpoint learns from what users do now."),
    Act(
        "careless.toml", "A bad day",
        "The trainer has a bug, the gate was loosened, and half of the users get the result.",
        "rolled_back", "loosened",
    ),
    Act(LEARN, "Back to the rules", "The strict gate is back."),
)  # fmt: skip
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


COLUMNS = [
    "cycle", "served by", "edits kept: measured", "edits kept: truth", "dissatisfied: measured",
    "dissatisfied: truth", "made", "benchmark before → after", "gate", "what became of it",
]  # fmt: skip


def percent(share: float | None, margin: float | None = None) -> str:
    if share is None:
        return "—"
    return f"{share:.0%}" if margin is None else f"{share:.0%} ± {100 * margin:.0f}"


def table_rows(chapters: Sequence[Chapter], ending: StoryEnding) -> Iterator[list[str]]:
    def shares(part: Chapter | StoryEnding) -> list[str]:
        measured, known = part.measured, part.known
        return [
            percent(measured.kept, measured.kept_margin),
            percent(known.kept),
            percent(measured.dissatisfied, measured.dissatisfied_margin),
            percent(known.dissatisfied),
        ]

    for chapter in chapters:
        score = ""
        if chapter.score is not None and chapter.score_before is not None:
            score = f"{chapter.score_before:.2f} → {chapter.score:.2f}"
        gate = chapter.verdict or ""
        if gate and chapter.act.gate:
            gate += f" ({chapter.act.gate})"
        results = [chapter.checkpoint or "", score, gate, chapter.outcome.replace("_", " ")]
        yield [str(chapter.number), chapter.parent, *shares(chapter), *results]
    yield ["after", ending.checkpoint, *shares(ending), "", "", "", "serves"]
