"""The story as one page: HTML with drawings in it, which needs nothing from elsewhere."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from math import ceil, floor
from pathlib import Path

from penstock_jobs.demo.story import Chapter, StoryEnding

_TEMPLATE = files("penstock_jobs.demo").joinpath("page.html.jinja")
#: Of a drawing, in its own units: the whole, and what is left for the words around it.
WIDTH, HEIGHT = 640, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 16, 12, 30
#: The numbers beside a drawing: so far apart, and at least so many steps, in hundredths.
_STEP, _STEPS_MIN = 10, 3

#: Of a line: its name, its kind, and a value for each column.
_Values = tuple[str, str, Sequence[float | None]]


@dataclass(frozen=True)
class PlotPoint:
    """`outcome` is what became of the cycle, where it is one's."""

    x: float
    y: float
    title: str
    outcome: str = ""


@dataclass(frozen=True)
class PlotLine:
    """A gap where nothing is known would be a lie as a line: points alone are drawn there."""

    name: str
    kind: str
    points: Sequence[PlotPoint]

    @property
    def path(self) -> str:
        return " ".join(f"{one.x:.1f},{one.y:.1f}" for one in self.points)


@dataclass(frozen=True)
class Plot:
    title: str
    lines: Sequence[PlotLine]
    #: Where a number stands beside it, and below it.
    rungs: Sequence[tuple[float, str]]
    columns: Sequence[tuple[float, str]]


@dataclass(frozen=True)
class StageBar:
    """How long a stage took, as parts of the longest cycle."""

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
        drawings=drawings(chapters, ending),
        bars=[bars(one, chapters) for one in chapters],
        width=WIDTH,
        height=HEIGHT,
        left=_LEFT,
        right=WIDTH - _RIGHT,
    )
    path.write_text(page, encoding="utf-8")


def drawings(chapters: Sequence[Chapter], ending: StoryEnding) -> list[Plot]:
    names = [one.parent for one in chapters] + [ending.checkpoint]
    shares = [(one.measured, one.known) for one in chapters]
    shares.append((ending.measured, ending.known))
    below = [f"cycle {one.number}" for one in chapters] + ["after"]
    kept = [
        ("as Penstock measures it", "measured", [one.kept for one, _ in shares]),
        ("as the simulator knows it", "known", [one.kept for _, one in shares]),
    ]
    sorry = [
        ("as Penstock measures it", "measured", [one.dissatisfied for one, _ in shares]),
        ("as the simulator knows it", "known", [one.dissatisfied for _, one in shares]),
    ]
    made = [
        ("the checkpoint that served", "known", [one.score_before for one in chapters]),
        ("the one that the cycle made", "made", [one.score for one in chapters]),
    ]
    return [
        _draw("Edits that were still there ten minutes later", kept, below, names),
        _draw("Turns that left the user dissatisfied", sorry, below, names),
        _draw_scores(chapters, made, below[:-1]),
    ]


def bars(chapter: Chapter, chapters: Sequence[Chapter]) -> list[StageBar]:
    longest = max(sum(seconds for _, seconds in one.stages) for one in chapters) or 1.0
    found, begun = [], 0.0
    for stage, seconds in chapter.stages:
        found.append(StageBar(stage, seconds, 100 * begun / longest, 100 * seconds / longest))
        begun += seconds
    return found


def _draw_scores(
    chapters: Sequence[Chapter], lines: Sequence[_Values], below: Sequence[str]
) -> Plot:
    """Each point names the checkpoint whose score it is, and what the cycle made says what became
    of it."""
    drawn = _draw("Score at the benchmark", lines, below, [one.parent for one in chapters])
    served, made = drawn.lines
    known = [one for one in chapters if one.score is not None]
    points = [
        replace(point, title=f"{one.checkpoint}: {one.score:.1%}", outcome=one.outcome)
        for point, one in zip(made.points, known, strict=True)
    ]
    return replace(drawn, lines=[served, replace(made, points=points)])


def _draw(title: str, lines: Sequence[_Values], below: Sequence[str], names: Sequence[str]) -> Plot:
    step = (WIDTH - _LEFT - _RIGHT) / len(below)
    places = [_LEFT + step * (at + 0.5) for at in range(len(below))]
    low, high = span([one for _, _, values in lines for one in values if one is not None])

    def height(hundredths: float) -> float:
        share = (hundredths - low) / (high - low)
        return _TOP + (1 - share) * (HEIGHT - _TOP - _BOTTOM)

    drawn = [
        PlotLine(
            name,
            kind,
            [
                PlotPoint(x, height(100 * value), f"{who}: {value:.1%}")
                for x, value, who in zip(places, values, names, strict=True)
                if value is not None
            ],
        )
        for name, kind, values in lines
    ]
    rungs = [(height(one), f"{one}%") for one in range(low, high + 1, _STEP)]
    return Plot(title, drawn, rungs, list(zip(places, below, strict=True)))


def span(shares: Sequence[float]) -> tuple[int, int]:
    """From which step to which, in hundredths, so that all of them are between."""
    if not shares:
        return 0, 100
    low = floor(100 * min(shares) / _STEP) * _STEP
    high = ceil(100 * max(shares) / _STEP) * _STEP
    least = _STEPS_MIN * _STEP
    if high - low < least:
        low = max(0, high - least)
        high = max(high, low + least)
    return low, high
