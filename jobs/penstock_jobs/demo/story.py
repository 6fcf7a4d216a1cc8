"""The story of the demonstration: its cycles in their order, and how they are told."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from math import ceil, floor
from pathlib import Path
from typing import Literal, NamedTuple

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
        if before is None or before.as_meant or not self.otherwise:
            return self
        return replace(self, told=self.otherwise)


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

    @property
    def gate(self) -> str:
        if self.verdict is None:
            return ""
        return f"{self.verdict} ({self.act.gate})" if self.act.gate else self.verdict

    @property
    def reasons(self) -> tuple[str, list[str]]:
        head, colon, points = self.why.partition(": ")
        return (head, _POINT.split(points)) if colon else (self.why, [])

    @property
    def as_meant(self) -> bool:
        return self.outcome == self.act.meant


@dataclass(frozen=True)
class StoryEnding:
    checkpoint: str
    measured: UserReaction
    known: UserReaction


LEARN = "learn.toml"
#: A point begins with what it is about; there are semicolons within points too.
_POINT = re.compile(r"; (?=[^;:]+: )")
ACTS = (
    Act(
        LEARN, "A weak model serves", "Much of what it writes is thrown away. It learns from that."
    ),
    Act(
        "questions.toml", "A hole in the reward",
        "Good agents ask, so somebody rewards questions. The trainer learns how well that pays.",
        "refused",
    ),
    Act(
        LEARN, "The hole is closed", "Production never saw the hack. On with the right reward.",
        otherwise="On with the right reward.",
    ),
    Act(
        LEARN, "Another cycle", "Users meet the new checkpoint, and it learns from them.",
        otherwise="The next checkpoint learns from what users do now.",
    ),
    Act(
        "careless.toml", "A bad day",
        "The trainer has a bug, the gate was loosened, and half of the users get the result.",
        "rolled_back", "loosened",
    ),
    Act(
        LEARN, "Back to the rules", "A person released the channel; the strict gate is back.",
        otherwise="The strict gate is back.",
    ),
)  # fmt: skip
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


#: The columns of the table: the measured shares beside the true ones.
COLUMNS = [
    "cycle", "served by", "edits kept: measured", "edits kept: truth", "dissatisfied: measured",
    "dissatisfied: truth", "made", "benchmark before → after", "gate", "what became of it",
]  # fmt: skip
#: What each share is called in a sentence.
_SHARES = {"kept": "of edits kept", "dissatisfied": "of turns dissatisfied"}

#: Why it cannot be measured exactly.
_SOURCES_OF_MISSES = {
    "kept": "What became of an edit is known as far as somebody looked at its file.",
    "dissatisfied": "What users wrote is judged by a small model: it takes some mild complaints "
    "for none, and some wishes for complaints; the truth knows what they thought.",
}


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
        results = [chapter.checkpoint or "", score, chapter.gate, chapter.outcome.replace("_", " ")]
        yield [str(chapter.number), chapter.parent, *shares(chapter), *results]
    yield ["after", ending.checkpoint, *shares(ending), "", "", "", "serves"]


def largest_miss(chapters: Sequence[Chapter], ending: StoryEnding) -> str:
    """What separates measured from true shares at most, and why; nothing where nothing is known."""
    misses = []
    parts: list[tuple[str, Chapter | StoryEnding]] = [("the end", ending)]
    parts += [(f"cycle {chapter.number}", chapter) for chapter in chapters]
    for number, part in parts:
        for share, name in _SHARES.items():
            measured, true = getattr(part.measured, share), getattr(part.known, share)
            margin = getattr(part.measured, f"{share}_margin")
            if measured is not None and true is not None and margin is not None:
                text = f"{measured:.0%} {name} in {number}, and {true:.0%} in truth"
                misses.append((abs(measured - true), margin, text, _SOURCES_OF_MISSES[share]))
    if not misses:
        return ""
    miss, margin, text, source = max(misses)
    within = "within" if miss <= margin else "more than"
    return (
        f"The largest miss is {100 * miss:.0f} points: {text}. That is {within} the interval of "
        f"± {100 * margin:.0f} points by which as many other sessions of the same checkpoint would "
        f"differ: no decision may rest on less. {source}"
    )


# The story as one HTML page with plots, which loads nothing from elsewhere

_SOURCES = {"measured": "as Penstock measures it", "known": "as the simulator knows it"}
#: The size of a plot in its own units, and the margins for the text around it.
WIDTH, HEIGHT = 640, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 8, 16, 40
#: The scale of a plot, in hundredths: from one number to the next, and at least so many steps.
_STEP, _STEPS_MIN = 10, 3


class _Series(NamedTuple):
    name: str
    kind: str
    values: Sequence[float | None]
    checkpoints: Sequence[str | None]
    outcomes: Sequence[str]


@dataclass(frozen=True)
class PlotPoint:
    x: float
    y: float
    title: str
    outcome: str = ""


@dataclass(frozen=True)
class PlotLine:
    name: str
    kind: str
    points: Sequence[PlotPoint]

    @property
    def path(self) -> str:
        return " ".join(f"{point.x:.1f},{point.y:.1f}" for point in self.points)


@dataclass(frozen=True)
class Plot:
    title: str
    lines: Sequence[PlotLine]
    #: Those that points of it have, in colours of their own.
    outcomes: Sequence[str]
    #: Numbers beside the plot and names below it, with their places.
    rungs: Sequence[tuple[float, str]]
    columns: Sequence[tuple[float, str]]


@dataclass(frozen=True)
class StageBar:
    stage: str
    seconds: float
    left: float
    width: float


def write_page(path: Path, chapters: Sequence[Chapter], ending: StoryEnding) -> None:
    import jinja2

    source = files("penstock_jobs.demo").joinpath("page.html.jinja").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    sizes = {"width": WIDTH, "height": HEIGHT, "left": _LEFT, "right": WIDTH - _RIGHT}
    story = {
        "chapters": chapters,
        "ending": ending,
        "plots": plots(chapters, ending),
        "columns": COLUMNS,
        "rows": list(table_rows(chapters, ending)),
        "miss": largest_miss(chapters, ending),
    }
    stages = [bars(chapter, chapters) for chapter in chapters]
    page = environment.from_string(source).render(story, bars=stages, **sizes)
    path.write_text(page, encoding="utf-8")


def plots(chapters: Sequence[Chapter], ending: StoryEnding) -> list[Plot]:
    served = [chapter.parent for chapter in chapters] + [ending.checkpoint]
    made = [chapter.checkpoint for chapter in chapters]
    columns = [str(chapter.number) for chapter in chapters] + ["after"]
    none, outcomes = [""] * len(columns), [chapter.outcome for chapter in chapters]

    def compared(title: str, share: str) -> Plot:
        lines = []
        for kind, name in _SOURCES.items():
            shares = [getattr(getattr(part, kind), share) for part in (*chapters, ending)]
            lines.append(_Series(name, kind, shares, served, none))
        return _plot(title, lines, columns)

    before = [chapter.score_before for chapter in chapters]
    after = [chapter.score for chapter in chapters]
    scores = [
        _Series("the checkpoint that served", "known", before, served[:-1], none[:-1]),
        _Series("the one that the cycle made", "made", after, made, outcomes),
    ]
    return [
        compared("Edits that were still there ten minutes later", "kept"),
        compared("Turns that left the user dissatisfied", "dissatisfied"),
        _plot("Score at the benchmark", scores, columns[:-1]),
    ]


def bars(chapter: Chapter, chapters: Sequence[Chapter]) -> list[StageBar]:
    longest = max(sum(seconds for _, seconds in other.stages) for other in chapters) or 1.0
    stages, started = [], 0.0
    for stage, seconds in chapter.stages:
        stages.append(StageBar(stage, seconds, 100 * started / longest, 100 * seconds / longest))
        started += seconds
    return stages


def span(shares: Sequence[float]) -> tuple[int, int]:
    if not shares:
        return 0, 100
    high = ceil(100 * max(shares) / _STEP) * _STEP
    low = min(floor(100 * min(shares) / _STEP) * _STEP, max(0, high - _STEPS_MIN * _STEP))
    return low, max(high, low + _STEPS_MIN * _STEP)


def _plot(title: str, series: Sequence[_Series], columns: Sequence[str]) -> Plot:
    step = (WIDTH - _LEFT - _RIGHT) / len(columns)
    places = [_LEFT + step * (at + 0.5) for at in range(len(columns))]
    low, high = span([value for line in series for value in line.values if value is not None])

    def height(hundredths: float) -> float:
        share = (hundredths - low) / (high - low)
        return _TOP + (1 - share) * (HEIGHT - _TOP - _BOTTOM)

    lines = []
    for name, kind, *by_column in series:
        points = [
            PlotPoint(x, height(100 * value), f"{checkpoint}: {value:.1%}", outcome)
            for x, value, checkpoint, outcome in zip(places, *by_column, strict=True)
            if value is not None
        ]
        lines.append(PlotLine(name, kind, points))
    rungs = [(height(value), f"{value}%") for value in range(low, high + 1, _STEP)]
    outcomes = sorted({point.outcome for line in lines for point in line.points} - {""})
    return Plot(title, lines, outcomes, rungs, list(zip(places, columns, strict=True)))
