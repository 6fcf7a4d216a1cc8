"""What charts are drawn with: scales, axes, legends, the frame of an SVG."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from markupsafe import Markup

from penstock.console.figures import short

LEFT, RIGHT, TOP, BOTTOM = 40, 8, 10, 20
_TICKS = 4
#: Of a character at the size of labels.
CHAR_WIDTH = 6.0
#: Steps that people read easily, within a power of ten.
_STEPS = (1, 2, 2.5, 5, 10)
#: There are so many colours of series in the style sheet.
COLOURS = 6
_MINUTE_S, _DAY_S = 60, 86_400

Format = Callable[[float], str]


@dataclass(frozen=True)
class Scale:
    """From values to places on the drawing."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        span = self.high - self.low
        share = (value - self.low) / span if span else 0.5
        return round(self.start + share * (self.end - self.start), 1)

    def ticks(self, count: int = _TICKS) -> list[float]:
        """Round values within it, about so many."""
        span = self.high - self.low
        if span <= 0 or not math.isfinite(span):
            return [self.low]
        power = 10 ** math.floor(math.log10(span / count))
        step = next(s * power for s in _STEPS if s * power >= span / count * 0.999)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [round(at * step, 12) + 0.0 for at in range(first, last + 1)]


def rounded_scale(values: Sequence[float], start: float, end: float, *, zero: bool) -> Scale:
    """A scale that holds the values, from round number to round number; also zero, if asked."""
    finite = [value for value in values if math.isfinite(value)] or [0.0]
    low, high = min(finite), max(finite)
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if low == high:
        low, high = (0.0, 1.0) if low == 0 else (min(low, 0.0), max(high, 0.0))
    if low == high:
        low, high = low - 0.5, high + 0.5
    ticks = Scale(low, high, start, end).ticks()
    step = ticks[1] - ticks[0] if len(ticks) > 1 else high - low
    low = math.floor(low / step + 1e-9) * step
    high = math.ceil(high / step - 1e-9) * step
    return Scale(low, high, start, end)


def svg(
    title: str, description: str, width: float, height: float, parts: Sequence[Markup]
) -> Markup:
    about = Markup("<title>{}</title>").format(title)
    if description:
        about += Markup("<desc>{}</desc>").format(description)
    return Markup(
        '<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}{}</svg>'
    ).format(width, height, f"{title}. {description}".strip(), about, Markup("").join(parts))


def nothing(title: str, width: int, height: int) -> Markup:
    text = '<text class="nothing" x="{}" y="{}" text-anchor="middle">nothing yet</text>'
    note = Markup(text).format(width / 2, height / 2 + 4)
    return svg(title, "There is nothing to show yet.", width, height, [note])


def grid(up: Scale, width: int, form: Format) -> Markup:
    line = Markup(
        '<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/>'
        '<text x="{}" y="{}" text-anchor="end">{}</text>'
    )
    marks = [
        line.format(LEFT, width - RIGHT, up(at), up(at), LEFT - 6, up(at) + 4, form(at))
        for at in up.ticks()
    ]
    return Markup("").join(marks)


def x_labels(
    across: Scale, height: int, *, times: bool, form: Format = short, lines: bool = False
) -> Iterator[Markup]:
    if times:
        span = across.high - across.low
        steps = 3
        values = [across.low + span * at / steps for at in range(steps + 1)] if span else []
        labels = [(at, time_text(at, span)) for at in values]
    else:
        labels = [(at, form(at)) for at in across.ticks(5)]
        labels = labels[:: _apart(across, labels)]
    for number, (at, text) in enumerate(labels):
        x = across(at)
        anchor = "middle"
        if times:
            anchor = "start" if number == 0 else "end" if number == len(labels) - 1 else "middle"
        if lines:
            yield Markup('<line class="grid" x1="{0}" x2="{0}" y1="0" y2="{1}"/>').format(
                x, height - BOTTOM
            )
        label = '<text x="{}" y="{}" text-anchor="{}">{}</text>'
        yield Markup(label).format(x, height - 5, anchor, text)


def _apart(across: Scale, labels: Sequence[tuple[float, str]]) -> int:
    """Each how many-th label has room for its text."""
    if len(labels) < 2:
        return 1
    step = abs(across(labels[1][0]) - across(labels[0][0])) or 1
    widest = max(len(text) for _, text in labels) * CHAR_WIDTH + CHAR_WIDTH
    return max(math.ceil(widest / step), 1)


def time_text(at_s: float, span_s: float) -> str:
    at = datetime.fromtimestamp(at_s, UTC)
    if span_s <= 2 * _DAY_S:
        return f"{at:%H:%M}" if span_s > 5 * _MINUTE_S else f"{at:%H:%M:%S}"
    return f"{at:%b %d}".replace(" 0", " ")


def legend(labels: Sequence[str]) -> Markup:
    items = [
        Markup('<li><i class="key s{}"></i>{}</li>').format(number % COLOURS, label)
        for number, label in enumerate(labels)
    ]
    return Markup('<ul class="legend">{}</ul>').format(Markup("").join(items))


def linked(mark: Markup, href: str) -> Markup:
    return Markup('<a href="{}">{}</a>').format(href, mark) if href else mark


def cut_text(text: str, chars_max: int) -> str:
    return text if len(text) <= chars_max else text[: chars_max - 1] + "…"
