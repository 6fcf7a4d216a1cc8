"""The story of the demo: its cycles and their texts."""

from collections.abc import Iterator, Sequence

import msgspec


class Act(msgspec.Struct, frozen=True):
    """A cycle of the story: its loop file, its introduction, and the outcome that is meant."""

    loop: str
    title: str
    told: str
    meant: str = "promoted"
    #: What is wrong with the gate, if anything.
    gate: str = ""


class UserReaction(msgspec.Struct, frozen=True):
    """The shares of kept edits and of turns with a dissatisfied user.

    The margins are half of the 95 % intervals over sessions."""

    kept: float | None
    dissatisfied: float | None
    kept_margin: float | None = None
    dissatisfied_margin: float | None = None


class Chapter(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    act: Act
    parent: str
    sessions: int
    #: The share of sums that were right.
    right: float | None
    measured: UserReaction
    known: UserReaction
    checkpoint: str | None
    #: Scores of the new checkpoint and the one before it at the suite.
    score: float | None
    score_before: float | None
    verdict: str | None
    outcome: str
    why: str
    stages: Sequence[tuple[str, float]]


class StoryEnding(msgspec.Struct, frozen=True):
    checkpoint: str
    measured: UserReaction
    known: UserReaction
    right: float | None
    score: float | None


LEARN = "learn.toml"
ACTS = (
    Act(LEARN, "A weak model serves", "Users discard much of its work. It learns from that."),
    Act(
        "questions.toml", "A hole in the reward",
        "Good agents ask, so somebody rewards questions. The model learns how well that pays.",
        "refused",
    ),
    Act(LEARN, "The hole is closed", "The loop continues with the right reward."),
    Act(LEARN, "Another cycle", "The next checkpoint learns from new sessions."),
    Act(
        "careless.toml", "A bad day",
        "The trainer has a bug, the gate was loosened, and half of the users get the result.",
        "rolled_back", "loosened",
    ),
    Act(LEARN, "Back to the rules", "The strict gate is back."),
)  # fmt: skip
EXPLANATIONS = {
    "production": "users work with the model; a proxy and a recorder send all that happens",
    "rewards": "what users did next shows the value of each session",
    "shard": "the input of a trainer: tokens with their rewards and origins",
    "train": "policy gradient on the sampled tokens makes the next checkpoint",
    "register": "the registry verifies the digest of the checkpoint's files",
    "bench": "both checkpoints attempt tasks with hidden checks, isolated, without a network",
    "gate": "is the new checkpoint good enough, and not worse than the old one? Only PASS goes on",
    "promote": "production points at it; the next sessions are sampled from it",
}


COLUMNS = [
    "cycle", "served by", "right: truth", "edits kept: measured", "edits kept: truth",
    "dissatisfied: measured", "dissatisfied: truth", "benchmark before → after", "gate", "outcome",
]  # fmt: skip


def percent(share: float | None, margin: float | None = None) -> str:
    if share is None:
        return "—"
    return f"{share:.0%}" if margin is None else f"{share:.0%} ± {100 * margin:.0f}"


def table_rows(chapters: Sequence[Chapter], ending: StoryEnding) -> Iterator[list[str]]:
    def shares(part: Chapter | StoryEnding) -> list[str]:
        measured, known = part.measured, part.known
        return [
            percent(part.right),
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
        outcome = " ".join([chapter.checkpoint or "", chapter.outcome.replace("_", " ")])
        results = [score, gate, outcome.strip()]
        yield [str(chapter.number), chapter.parent, *shares(chapter), *results]
    yield ["after", ending.checkpoint, *shares(ending), "", "", "serves"]


#: Characters of a bar.
_BAR = 24


def curve_lines(chapters: Sequence[Chapter], ending: StoryEnding) -> Iterator[str]:
    """Draw how right the serving checkpoints were, and what was measured of them."""
    served = [(one.parent, one.right, one.measured.kept, one.score_before) for one in chapters]
    served.append((ending.checkpoint, ending.right, ending.measured.kept, ending.score))
    yield f"{'':10} {'right (truth)':{_BAR + 5}} {'kept (measured)':{_BAR + 5}} benchmark"
    for name, right, kept, score in served:
        bars = " ".join(
            f"{'█' * round(_BAR * (share or 0.0)):{_BAR}} {percent(share):>4}"
            for share in (right, kept)
        )
        yield f"{name:10} {bars} {'—' if score is None else f'{score:.2f}'}"
