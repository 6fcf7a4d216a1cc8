"""Charts as SVG, drawn here from values: pure functions, whose colours are classes of the style
sheet. Each has a title and a description for those who do not see it, its marks have tooltips."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

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


#: In the drawing's own units; wide enough for a phone at its real size.
WIDTH, HEIGHT = 360, 150
#: Of charts that have a panel of two columns, or stand alone.
WIDE = 440
_ROW_HEIGHT = 26
_LABEL_WIDTH = 130
_TEXT_GAP = 12
_LABEL_CHARS, _NOTE_CHARS = 28, 22


@dataclass(frozen=True)
class Series:
    """A line; where a value is None it has a gap. `label` is in the legend."""

    label: str
    points: Sequence[tuple[float, float | None]]


@dataclass(frozen=True)
class Bar:
    label: str
    value: float
    tone: str = ""
    href: str = ""


@dataclass(frozen=True)
class Interval:
    """An estimate with its interval. `margin` is the value that it is compared with."""

    label: str
    low: float | None
    value: float | None
    high: float | None
    margin: float | None = None
    tone: str = ""
    note: str = ""


@dataclass(frozen=True)
class Dot:
    """Of a scatter; those of the frontier are joined by a line."""

    label: str
    x: float
    y: float
    tone: str = ""
    on_frontier: bool = False
    href: str = ""


def line_chart(
    series: Sequence[Series],
    *,
    title: str,
    description: str = "",
    area: bool = False,
    value_format: Format = short,
    times: bool = True,
    width: int = WIDTH,
    height: int = HEIGHT,
) -> Markup:
    """Lines over time (seconds since 1970), or over numbers."""
    points = [(x, y) for each in series for x, y in each.points if y is not None]
    if not points:
        return nothing(title, width, height)
    xs = [x for each in series for x, _ in each.points]
    ys = [y for _, y in points]
    across = Scale(min(xs), max(xs), LEFT, width - RIGHT)
    up = rounded_scale(ys, height - BOTTOM, TOP, zero=True)
    parts = [grid(up, width, value_format), *x_labels(across, height, times=times)]
    for number, each in enumerate(series):
        colour = f"s{number % COLOURS}"
        for run in _runs(each.points):
            places = " ".join(f"{across(x)},{up(y)}" for x, y in run)
            if area:
                base = up(max(up.low, 0))
                ends = f"{across(run[0][0])},{base} {places} {across(run[-1][0])},{base}"
                parts.append(Markup('<polygon class="area {}" points="{}"/>').format(colour, ends))
            if len(run) == 1:
                x, y = run[0]
                dot = '<circle class="dot {}" cx="{}" cy="{}" r="2"/>'
                parts.append(Markup(dot).format(colour, across(x), up(y)))
            parts.append(Markup('<polyline class="line {}" points="{}"/>').format(colour, places))
        parts += _hover_bands(each, across, up, value_format, times=times, height=height)
    drawn = svg(title, description, width, height, parts)
    return drawn + legend([each.label for each in series]) if len(series) > 1 else drawn


def bar_chart(
    bars: Sequence[Bar],
    *,
    title: str,
    description: str = "",
    value_format: Format = short,
    width: int = WIDTH,
) -> Markup:
    if not bars:
        return nothing(title, width, HEIGHT)
    height = len(bars) * _ROW_HEIGHT + 4
    across = rounded_scale([bar.value for bar in bars], _LABEL_WIDTH, width - 52, zero=True)
    zero = across(0)
    parts = []
    for row, bar in enumerate(bars):
        y = row * _ROW_HEIGHT + 4
        start, end = sorted((zero, across(bar.value)))
        mark = Markup(
            '<g><title>{}: {}</title><text x="{}" y="{}" text-anchor="end">{}</text>'
            '<rect class="bar {}" x="{}" y="{}" width="{}" height="14" rx="2"/>'
            '<text class="value" x="{}" y="{}">{}</text></g>'
        ).format(
            bar.label, value_format(bar.value), _LABEL_WIDTH - 8, y + 11, cut_text(bar.label, 20),
            bar.tone or "s0", start, y, max(round(end - start, 1), 1), end + 6, y + 11,
            value_format(bar.value),
        )  # fmt: skip
        parts.append(linked(mark, bar.href))
    return svg(title, description, width, height, parts)


def histogram(
    bins: Sequence[tuple[float, float, float]],
    *,
    title: str,
    description: str = "",
    value_format: Format = short,
    width: int = WIDTH,
    height: int = HEIGHT,
) -> Markup:
    if not bins:
        return nothing(title, width, height)
    across = Scale(bins[0][0], bins[-1][1], LEFT, width - RIGHT)
    up = rounded_scale([count for _, _, count in bins], height - BOTTOM, TOP, zero=True)
    parts = [grid(up, width, short), *x_labels(across, height, times=False, form=value_format)]
    for low, high, count in bins:
        x, end, y = across(low), across(high), up(count)
        mark = Markup(
            '<rect class="bar s0" x="{}" y="{}" width="{}" height="{}">'
            "<title>{} to {}: {}</title></rect>"
        )
        size = max(round(end - x - 1, 1), 0.5), round(up(0) - y, 1)
        label = value_format(low), value_format(high), short(count)
        parts.append(mark.format(x, y, *size, *label))
    return svg(title, description, width, height, parts)


def interval_chart(
    rows: Sequence[Interval],
    *,
    title: str,
    description: str = "",
    value_format: Format = short,
    width: int = WIDE,
) -> Markup:
    """Estimates with their intervals, below each other on one scale, each against its margin."""
    if not rows:
        return nothing(title, width, HEIGHT)
    values = [
        value
        for row in rows
        for value in (row.low, row.value, row.high, row.margin)
        if value is not None
    ]
    labels = [cut_text(row.label, _LABEL_CHARS) for row in rows]
    notes = [cut_text(row.note, _NOTE_CHARS) for row in rows]
    start = max(map(len, labels)) * CHAR_WIDTH + _TEXT_GAP
    end = width - max(_TEXT_GAP, max(map(len, notes)) * CHAR_WIDTH) - _TEXT_GAP
    height = len(rows) * _ROW_HEIGHT + BOTTOM + 4
    across = rounded_scale(values or [0.0], start, end, zero=True)
    parts = list(x_labels(across, height, times=False, form=value_format, lines=True))
    zero = Markup('<line class="axis" x1="{0}" x2="{0}" y1="0" y2="{1}"/>')
    parts.append(zero.format(across(0), height - BOTTOM))
    for number, row in enumerate(rows):
        y = number * _ROW_HEIGHT + 16
        texts = Markup(
            '<text x="{}" y="{}" text-anchor="end">{}</text>'
            '<text class="value" x="{}" y="{}">{}</text>'
        ).format(start - _TEXT_GAP, y + 4, labels[number], end + _TEXT_GAP, y + 4, notes[number])
        parts.append(_interval_row(row, y, across, value_format, texts))
    return svg(title, description, width, height, parts)


def _interval_row(row: Interval, y: int, across: Scale, form: Format, texts: Markup) -> Markup:
    tone = row.tone or "s0"
    marks = []
    if row.low is not None and row.high is not None:
        line = '<line class="interval {}" x1="{}" x2="{}" y1="{}" y2="{}"/>'
        marks.append(Markup(line).format(tone, across(row.low), across(row.high), y, y))
    if row.value is not None:
        dot = '<circle class="dot {}" cx="{}" cy="{}" r="4"/>'
        marks.append(Markup(dot).format(tone, across(row.value), y))
    if row.margin is not None:
        margin = '<line class="margin" x1="{0}" x2="{0}" y1="{1}" y2="{2}"/>'
        marks.append(Markup(margin).format(across(row.margin), y - 10, y + 10))
    said = [
        f"{name} {form(value)}"
        for name, value in (
            ("from", row.low), ("value", row.value), ("to", row.high), ("margin", row.margin),
        )
        if value is not None
    ]  # fmt: skip
    marks.append(texts)
    about = Markup("<title>{}: {}</title>").format(row.label, ", ".join(said))
    return Markup("<g>{}{}</g>").format(about, Markup("").join(marks))


def scatter_chart(
    dots: Sequence[Dot],
    *,
    title: str,
    x_label: str,
    y_label: str,
    description: str = "",
    x_format: Format = short,
    y_format: Format = short,
    width: int = WIDE,
    height: int = 220,
) -> Markup:
    if not dots:
        return nothing(title, width, height)
    across = rounded_scale([dot.x for dot in dots], LEFT + 8, width - 16, zero=False)
    up = rounded_scale([dot.y for dot in dots], height - BOTTOM - 14, TOP + 8, zero=False)
    parts = [grid(up, width, y_format)]
    parts += x_labels(across, height - 14, times=False, form=x_format)
    name = '<text class="name" x="{}" y="{}" text-anchor="{}">{}</text>'
    parts.append(Markup(name).format(width - 16, height - 4, "end", x_label))
    parts.append(Markup(name).format(4, TOP, "start", y_label))
    frontier = sorted((dot.x, dot.y) for dot in dots if dot.on_frontier)
    places = " ".join(f"{across(x)},{up(y)}" for x, y in frontier)
    parts.append(Markup('<polyline class="frontier" points="{}"/>').format(places))
    for dot in dots:
        x, y = across(dot.x), up(dot.y)
        anchor, shift = ("end", -8) if x > width * 0.75 else ("start", 8)
        mark = Markup(
            '<g><title>{}: {} {}, {} {}</title><circle class="dot {}" cx="{}" cy="{}" r="4.5"/>'
            '<text x="{}" y="{}" text-anchor="{}">{}</text></g>'
        ).format(
            dot.label, x_label, x_format(dot.x), y_label, y_format(dot.y), dot.tone or "s0", x, y,
            x + shift, y + 4, anchor, cut_text(dot.label, 24),
        )  # fmt: skip
        parts.append(linked(mark, dot.href))
    return svg(title, description, width, height, parts)


def share_bar(
    shares: Sequence[Bar], *, title: str, with_legend: bool = True, width: int = WIDTH
) -> Markup:
    """Parts of a whole beside each other, with a legend that has their values unless those stand
    elsewhere."""
    whole = sum(bar.value for bar in shares)
    if whole <= 0:
        return nothing(title, width, 14)
    x, parts = 0.0, []
    for bar in shares:
        part = bar.value / whole * width
        rect = Markup(
            '<rect class="bar {}" x="{}" y="0" width="{}" height="12">'
            "<title>{}: {} ({:.1f} %)</title></rect>"
        )
        shown = round(x, 1), max(round(part - 1, 1), 0.5)
        parts.append(
            rect.format(bar.tone, *shown, bar.label, short(bar.value), 100 * bar.value / whole)
        )
        x += part
    items = Markup("").join(
        Markup('<li><i class="key {}"></i>{} <b>{}</b></li>').format(
            bar.tone, bar.label, short(bar.value)
        )
        for bar in shares
    )
    drawn = svg(title, "", width, 12, parts)
    return drawn + Markup('<ul class="legend">{}</ul>').format(items) if with_legend else drawn


def _runs(
    points: Sequence[tuple[float, float | None]],
) -> Iterator[list[tuple[float, float]]]:
    run: list[tuple[float, float]] = []
    for x, y in points:
        if y is None:
            if run:
                yield run
            run = []
        else:
            run.append((x, y))
    if run:
        yield run


def _hover_bands(
    series: Series, across: Scale, up: Scale, form: Format, *, times: bool, height: int
) -> list[Markup]:
    """An invisible strip around each point that says its value: no script is needed."""
    known = [(x, y) for x, y in series.points if y is not None]
    edges = [across.low, *((a[0] + b[0]) / 2 for a, b in pairwise(known)), across.high]
    bands = []
    for (x, y), (start, end) in zip(known, pairwise(edges), strict=False):
        text = time_text(x, across.high - across.low) if times else short(x)
        band = Markup(
            '<rect class="hover" x="{}" y="{}" width="{}" height="{}">'
            "<title>{}{}: {}</title></rect>"
        )
        label = f"{series.label}, " if series.label else ""
        size = max(across(end) - across(start), 0.5), height - BOTTOM - TOP
        bands.append(
            band.format(across(start), TOP, round(size[0], 1), size[1], label, text, form(y))
        )
    return bands
