"""The story as one HTML page with plots, which loads nothing from elsewhere."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from math import ceil, floor
from pathlib import Path

from penstock_jobs.demo.story import Chapter, StoryEnding

_TEMPLATE = files("penstock_jobs.demo").joinpath("page.html.jinja")
#: The size of a plot in its own units, and the margins for the text around it.
WIDTH, HEIGHT = 640, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 16, 12, 30
#: The scale of a plot, in hundredths: from one number to the next, and at least so many steps.
_STEP, _STEPS_MIN = 10, 3

#: The name and the kind of a line, and its value in each column.
_Series = tuple[str, str, Sequence[float | None]]


@dataclass(frozen=True)
class PlotPoint:
    """`outcome` is that of the cycle, if the point stands for a checkpoint that a cycle made."""

    x: float
    y: float
    title: str
    outcome: str = ""


@dataclass(frozen=True)
class PlotLine:
    """It has no point where a value is not known."""

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
    #: Numbers beside the plot and names below it, with their places.
    rungs: Sequence[tuple[float, str]]
    columns: Sequence[tuple[float, str]]


@dataclass(frozen=True)
class StageBar:
    """How long a stage took; `left` and `width` are in hundredths of the longest cycle."""

    stage: str
    seconds: float
    left: float
    width: float


def write_page(path: Path, chapters: Sequence[Chapter], ending: StoryEnding) -> None:
    import jinja2

    template = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined).from_string(
        _TEMPLATE.read_text(encoding="utf-8")
    )
    page = template.render(
        chapters=chapters,
        ending=ending,
        plots=plots(chapters, ending),
        bars=[bars(chapter, chapters) for chapter in chapters],
        width=WIDTH,
        height=HEIGHT,
        left=_LEFT,
        right=WIDTH - _RIGHT,
    )
    path.write_text(page, encoding="utf-8")


def plots(chapters: Sequence[Chapter], ending: StoryEnding) -> list[Plot]:
    names = [chapter.parent for chapter in chapters] + [ending.checkpoint]
    columns = [f"cycle {chapter.number}" for chapter in chapters] + ["after"]

    def compared(title: str, share: str) -> Plot:
        series: list[_Series] = [
            (name, kind, [getattr(getattr(part, kind), share) for part in (*chapters, ending)])
            for name, kind in (
                ("as Penstock measures it", "measured"),
                ("as the simulator knows it", "known"),
            )
        ]
        return _plot(title, series, columns, names)

    scores = _plot(
        "Score at the benchmark",
        [
            ("the checkpoint that served", "known", [chapter.score_before for chapter in chapters]),
            ("the one that the cycle made", "made", [chapter.score for chapter in chapters]),
        ],
        columns[:-1],
        names[:-1],
    )
    # The points of checkpoints that a cycle made have their own names, and its outcome.
    served, made = scores.lines
    scored = [chapter for chapter in chapters if chapter.score is not None]
    points = [
        replace(point, title=f"{chapter.checkpoint}: {chapter.score:.1%}", outcome=chapter.outcome)
        for point, chapter in zip(made.points, scored, strict=True)
    ]
    return [
        compared("Edits that were still there ten minutes later", "kept"),
        compared("Turns that left the user dissatisfied", "dissatisfied"),
        replace(scores, lines=[served, replace(made, points=points)]),
    ]


def bars(chapter: Chapter, chapters: Sequence[Chapter]) -> list[StageBar]:
    longest = max(sum(seconds for _, seconds in other.stages) for other in chapters) or 1.0
    stages, started = [], 0.0
    for stage, seconds in chapter.stages:
        stages.append(StageBar(stage, seconds, 100 * started / longest, 100 * seconds / longest))
        started += seconds
    return stages


def span(shares: Sequence[float]) -> tuple[int, int]:
    """The lowest and the highest step of a scale that holds all of them, in hundredths."""
    if not shares:
        return 0, 100
    low = floor(100 * min(shares) / _STEP) * _STEP
    high = ceil(100 * max(shares) / _STEP) * _STEP
    least = _STEPS_MIN * _STEP
    if high - low < least:
        low = max(0, high - least)
        high = max(high, low + least)
    return low, high


def _plot(
    title: str, series: Sequence[_Series], columns: Sequence[str], names: Sequence[str]
) -> Plot:
    step = (WIDTH - _LEFT - _RIGHT) / len(columns)
    places = [_LEFT + step * (at + 0.5) for at in range(len(columns))]
    low, high = span([value for _, _, values in series for value in values if value is not None])

    def height(hundredths: float) -> float:
        share = (hundredths - low) / (high - low)
        return _TOP + (1 - share) * (HEIGHT - _TOP - _BOTTOM)

    lines = [
        PlotLine(
            name,
            kind,
            [
                PlotPoint(x, height(100 * value), f"{checkpoint}: {value:.1%}")
                for x, value, checkpoint in zip(places, values, names, strict=True)
                if value is not None
            ],
        )
        for name, kind, values in series
    ]
    rungs = [(height(value), f"{value}%") for value in range(low, high + 1, _STEP)]
    return Plot(title, lines, rungs, list(zip(places, columns, strict=True)))
