"""Charts as SVG, drawn here from values: pure functions, whose colours are classes of the style
sheet. Each has a title and a description for those who do not see it, and its marks have tooltips.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from penstock.console.chart_parts import (
    BOTTOM,
    CHAR_WIDTH,
    COLOURS,
    LEFT,
    RIGHT,
    TOP,
    Format,
    Scale,
    cut_text,
    grid,
    legend,
    linked,
    nothing,
    rounded_scale,
    svg,
    time_text,
    x_labels,
)
from penstock.console.figures import short

#: In the drawing's own units; wide enough for a phone at its real size.
WIDTH, HEIGHT = 360, 150
#: Of charts that have a panel of two columns, or stand alone.
WIDE = 440
_ROW_HEIGHT = 26
_LABEL_WIDTH = 130
#: What stands between a text and the marks.
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
    #: A class of the style sheet: good, bad, warn, info, or nothing.
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
    #: What is said at its right.
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
    limit: float | None = None,
    limit_label: str = "",
    width: int = WIDTH,
    height: int = HEIGHT,
) -> Markup:
    """Lines over time (seconds since 1970), or over numbers. `limit` is drawn as a line across."""
    points = [(x, y) for each in series for x, y in each.points if y is not None]
    if not points:
        return nothing(title, width, height)
    xs = [x for each in series for x, _ in each.points]
    ys = [y for _, y in points] + ([limit] if limit is not None else [])
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
    if limit is not None:
        line = '<line class="limit" x1="{}" x2="{}" y1="{}" y2="{}"/>'
        parts.append(Markup(line).format(LEFT, width - RIGHT, up(limit), up(limit)))
        label = '<text class="limit-label" x="{}" y="{}" text-anchor="end">{}</text>'
        parts.append(Markup(label).format(width - RIGHT, up(limit) - 4, limit_label))
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
    """Bars that lie, each with its name and value."""
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
    """Bins as their lower and upper ends and their counts."""
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
    """Dots by two values; those on the frontier are joined."""
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
    """What lies between gaps."""
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
