"""Charts as SVG, drawn by pure functions. Colours are classes of the style sheet.

Each chart has a title and a description for screen readers, and tooltips on its marks."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby, pairwise

import msgspec
from markupsafe import Markup, escape

from penstock.doors.console.figures import short

_LEFT, _RIGHT, _TOP, _BOTTOM = 40, 8, 10, 20
_TICKS = 4
_CHAR_WIDTH = 6.0
#: Steps between ticks that people read easily, within a power of ten.
_STEPS = (1, 2, 2.5, 5, 10)
#: Colours of series in the style sheet.
_COLOURS = 6
_MINUTE_S, _DAY_S = 60, 86_400
#: In the drawing's own units. A phone shows this width at its real size.
WIDTH, _HEIGHT = 360, 150
#: Width of charts in a panel of two columns.
_WIDE = 440
_ROW_HEIGHT = 26
_LABEL_WIDTH = 130
_TEXT_GAP = 12
_LABEL_CHARS, _NOTE_CHARS = 28, 22

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
        span = self.high - self.low
        if span <= 0 or not math.isfinite(span):
            return [self.low]
        power = 10 ** math.floor(math.log10(span / count))
        step = next(s * power for s in _STEPS if s * power >= span / count * 0.999)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [round(at * step, 12) + 0.0 for at in range(first, last + 1)]


def rounded_scale(values: Sequence[float], start: float, end: float, *, zero: bool) -> Scale:
    finite = [value for value in values if math.isfinite(value)] or [0.0]
    low, high = min(finite), max(finite)
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    # Equal but for the rounding of sums.
    if math.isclose(low, high, abs_tol=1e-9):
        low, high = min(low, 0.0), max(high, 0.0)
    if math.isclose(low, high, abs_tol=1e-9):
        low, high = 0.0, 1.0
    ticks = Scale(low, high, start, end).ticks()
    step = ticks[1] - ticks[0] if len(ticks) > 1 else high - low
    low = math.floor(low / step + 1e-9) * step
    high = math.ceil(high / step - 1e-9) * step
    return Scale(low, high, start, end)


class Series(msgspec.Struct, frozen=True):
    label: str  # in the legend
    points: Sequence[tuple[float, float | None]]


class Bar(msgspec.Struct, frozen=True):
    label: str
    value: float
    tone: str = ""
    href: str = ""


class Interval(msgspec.Struct, frozen=True):
    label: str
    low: float | None
    value: float | None
    high: float | None
    margin: float | None = None
    tone: str = ""
    note: str = ""


class Dot(msgspec.Struct, frozen=True):
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
    width: int = WIDTH,
) -> Markup:
    ys = [y for each in series for _, y in each.points if y is not None]
    if not ys:
        return _nothing(title, width)
    xs = [x for each in series for x, _ in each.points]
    across = Scale(min(xs), max(xs), _LEFT, width - _RIGHT)
    up = rounded_scale(ys, _HEIGHT - _BOTTOM, _TOP, zero=True)
    parts = [*_grid(up, width, short), *_x_labels(across, _HEIGHT, short, times=True)]
    for number, each in enumerate(series):
        colour = f"s{number % _COLOURS}"
        for run in _runs(each.points):
            places = " ".join(f"{across(x)},{up(y)}" for x, y in run)
            if area:
                base = up(max(up.low, 0))
                ends = f"{across(run[0][0])},{base} {places} {across(run[-1][0])},{base}"
                parts.append(_mark("polygon", f"area {colour}", points=ends))
            if len(run) == 1:
                [(x, y)] = run
                parts.append(_mark("circle", f"dot {colour}", cx=across(x), cy=up(y), r=2))
            parts.append(_mark("polyline", f"line {colour}", points=places))
        parts += _hover_bands(each, across)
    drawn = _svg(title, description, width, _HEIGHT, parts)
    colours = (f"s{number % _COLOURS}" for number in range(len(series)))
    named = zip(colours, (each.label for each in series), strict=True)
    return drawn + _legend(named) if len(series) > 1 else drawn


def bar_chart(
    bars: Sequence[Bar], *, title: str, value_format: Format = short, width: int = WIDTH
) -> Markup:
    if not bars:
        return _nothing(title, width)
    across = rounded_scale([bar.value for bar in bars], _LABEL_WIDTH, width - 52, zero=True)
    parts = []
    for row, bar in enumerate(bars):
        y, value = row * _ROW_HEIGHT + 4, value_format(bar.value)
        start, end = sorted((across(0), across(bar.value)))
        long = max(round(end - start, 1), 1)
        marks = [
            _text(_LABEL_WIDTH - 8, y + 11, _cut(bar.label, 20), "end"),
            _mark("rect", f"bar {bar.tone or 's0'}", x=start, y=y, width=long, height=14, rx=2),
            _text(end + 6, y + 11, value, kind="value"),
        ]
        parts.append(_linked(_group(f"{bar.label}: {value}", marks), bar.href))
    return _svg(title, "", width, len(bars) * _ROW_HEIGHT + 4, parts)


def histogram(
    bins: Sequence[tuple[float, float, float]], *, title: str, value_format: Format = short
) -> Markup:
    if not bins:
        return _nothing(title, WIDTH)
    across = Scale(bins[0][0], bins[-1][1], _LEFT, WIDTH - _RIGHT)
    up = rounded_scale([count for _, _, count in bins], _HEIGHT - _BOTTOM, _TOP, zero=True)
    parts = [*_grid(up, WIDTH, short), *_x_labels(across, _HEIGHT, value_format)]
    for low, high, count in bins:
        x, y = across(low), up(count)
        wide, tall = max(round(across(high) - x - 1, 1), 0.5), round(up(0) - y, 1)
        about = f"{value_format(low)} to {value_format(high)}: {short(count)}"
        parts.append(_rect("bar s0", about, x=x, y=y, width=wide, height=tall))
    return _svg(title, "", WIDTH, _HEIGHT, parts)


def interval_chart(
    rows: Sequence[Interval],
    *,
    title: str,
    description: str = "",
    value_format: Format = short,
    width: int = _WIDE,
    means: bool = False,
) -> Markup:
    """Intervals, one a row. An axis of `means` fits them, one of differences has zero."""
    if not rows:
        return _nothing(title, width)
    values = [
        value
        for row in rows
        for value in (row.low, row.value, row.high, row.margin)
        if value is not None
    ]
    labels = [_cut(row.label, _LABEL_CHARS) for row in rows]
    notes = [_cut(row.note, _NOTE_CHARS) for row in rows]
    start = max(map(len, labels)) * _CHAR_WIDTH + _TEXT_GAP
    end = width - max(_TEXT_GAP, max(map(len, notes)) * _CHAR_WIDTH) - _TEXT_GAP
    height = len(rows) * _ROW_HEIGHT + _BOTTOM + 4
    low, high = min(values, default=0.0), max(values, default=0.0)
    far = low * high > 0 and high - low < min(abs(low), abs(high))
    across = rounded_scale(values or [0.0], start, end, zero=not (means and far))
    parts = list(_x_labels(across, height, value_format, lines=True))
    if across.low <= 0 <= across.high:
        parts.append(_line("axis", across(0), across(0), 0, height - _BOTTOM))
    for number, row in enumerate(rows):
        y = number * _ROW_HEIGHT + 16
        marks = [
            *_interval_marks(row, y, across),
            _text(start - _TEXT_GAP, y + 4, labels[number], "end"),
            _text(end + _TEXT_GAP, y + 4, notes[number], kind="value"),
        ]
        named = zip(
            ("from", "value", "to", "margin"),
            (row.low, row.value, row.high, row.margin),
            strict=True,
        )
        said = [f"{name} {value_format(value)}" for name, value in named if value is not None]
        parts.append(_group(f"{row.label}: {', '.join(said)}", marks))
    return _svg(title, description, width, height, parts)


def _interval_marks(row: Interval, y: int, across: Scale) -> Iterator[Markup]:
    tone = row.tone or "s0"
    if row.low is not None and row.high is not None:
        yield _line(f"interval {tone}", across(row.low), across(row.high), y, y)
    if row.value is not None:
        yield _mark("circle", f"dot {tone}", cx=across(row.value), cy=y, r=4)
    if row.margin is not None:
        yield _line("margin", across(row.margin), across(row.margin), y - 10, y + 10)


def scatter_chart(
    dots: Sequence[Dot],
    *,
    title: str,
    x_label: str,
    y_label: str,
    description: str = "",
    y_format: Format = short,
) -> Markup:
    width, height = _WIDE, 220
    if not dots:
        return _nothing(title, width)
    across = rounded_scale([dot.x for dot in dots], _LEFT + 8, width - 16, zero=False)
    up = rounded_scale([dot.y for dot in dots], height - _BOTTOM - 14, _TOP + 8, zero=False)
    parts = [*_grid(up, width, y_format), *_x_labels(across, height - 14, short)]
    parts.append(_text(width - 16, height - 4, x_label, "end", kind="name"))
    parts.append(_text(4, _TOP, y_label, kind="name"))
    frontier = sorted((dot.x, dot.y) for dot in dots if dot.on_frontier)
    places = " ".join(f"{across(x)},{up(y)}" for x, y in frontier)
    parts.append(_mark("polyline", "frontier", points=places))
    for dot in dots:
        x, y = across(dot.x), up(dot.y)
        anchor, shift = ("end", -8) if x > width * 0.75 else ("start", 8)
        about = f"{dot.label}: {x_label} {short(dot.x)}, {y_label} {y_format(dot.y)}"
        marks = [
            _mark("circle", f"dot {dot.tone or 's0'}", cx=x, cy=y, r=4.5),
            _text(x + shift, y + 4, _cut(dot.label, 24), anchor),
        ]
        parts.append(_linked(_group(about, marks), dot.href))
    return _svg(title, description, width, height, parts)


def share_bar(shares: Sequence[Bar], *, title: str) -> Markup:
    whole = sum(bar.value for bar in shares)
    if whole <= 0:
        return _nothing(title, WIDTH, 14)
    x, parts = 0.0, []
    for bar in shares:
        part = bar.value / whole * WIDTH
        about = f"{bar.label}: {short(bar.value)} ({100 * bar.value / whole:.1f} %)"
        long = max(round(part - 1, 1), 0.5)
        parts.append(_rect(f"bar {bar.tone}", about, x=round(x, 1), y=0, width=long, height=12))
        x += part
    return _svg(title, "", WIDTH, 12, parts)


# Parts


def _mark(tag: str, kind: str = "", inside: str = "", **facts: object) -> Markup:
    """Make an element of the class `kind`."""
    named = {"class": kind} | facts if kind else facts
    written = "".join(f' {name.replace("_", "-")}="{escape(fact)}"' for name, fact in named.items())
    return Markup(f"<{tag}{written}>{escape(inside)}</{tag}>")  # escaped already


def _text(x: float, y: float, text: str, anchor: str = "start", *, kind: str = "") -> Markup:
    return _mark("text", kind, text, x=x, y=y, text_anchor=anchor)


def _line(kind: str, x1: float, x2: float, y1: float, y2: float) -> Markup:
    return _mark("line", kind, x1=x1, x2=x2, y1=y1, y2=y2)


def _rect(kind: str, about: str, **place: float) -> Markup:
    return _mark("rect", kind, _mark("title", "", about), **place)


def _group(about: str, marks: Sequence[Markup]) -> Markup:
    return _mark("g", "", _mark("title", "", about) + Markup("").join(marks))


def _linked(mark: Markup, href: str) -> Markup:
    return _mark("a", "", mark, href=href) if href else mark


def _svg(
    title: str, description: str, width: float, height: float, parts: Sequence[Markup]
) -> Markup:
    about = _mark("title", "", title)
    if description:
        about += _mark("desc", "", description)
    label, box = f"{title}. {description}".strip(), f"0 0 {width} {height}"
    inside = about + Markup("").join(parts)
    return _mark("svg", "chart", inside, viewBox=box, role="img", aria_label=label)


def _nothing(title: str, width: int, height: int = _HEIGHT) -> Markup:
    note = _text(width / 2, height / 2 + 4, "nothing yet", "middle", kind="nothing")
    return _svg(title, "No data yet.", width, height, [note])


def _legend(named: Iterable[tuple[str, str]]) -> Markup:
    items = [_mark("li", "", _mark("i", f"key {tone}") + label) for tone, label in named]
    return _mark("ul", "legend", Markup("").join(items))


def _grid(up: Scale, width: int, form: Format) -> Iterator[Markup]:
    for at in up.ticks():
        yield _line("grid", _LEFT, width - _RIGHT, up(at), up(at))
        yield _text(_LEFT - 6, up(at) + 4, form(at), "end")


def _x_labels(
    across: Scale, height: int, form: Format, *, times: bool = False, lines: bool = False
) -> Iterator[Markup]:
    if times:
        span = across.high - across.low
        values = [across.low + span * at / 3 for at in range(4)] if span else []
        labels = [(at, _time(at, span)) for at in values]
    else:
        labels = [(at, form(at)) for at in across.ticks(5)]
        labels = labels[:: _apart(across, labels)]
    for number, (at, text) in enumerate(labels):
        x, anchor = across(at), "middle"
        if times:
            anchor = "start" if number == 0 else "end" if number == len(labels) - 1 else "middle"
        if lines:
            yield _line("grid", x, x, 0, height - _BOTTOM)
        yield _text(x, height - 5, text, anchor)


def _apart(across: Scale, labels: Sequence[tuple[float, str]]) -> int:
    if len(labels) < 2:
        return 1
    step = abs(across(labels[1][0]) - across(labels[0][0])) or 1
    widest = max(len(text) for _, text in labels) * _CHAR_WIDTH + _CHAR_WIDTH
    return max(math.ceil(widest / step), 1)


def _time(at_s: float, span_s: float) -> str:
    at = datetime.fromtimestamp(at_s, UTC)
    if span_s <= 2 * _DAY_S:
        return f"{at:%H:%M}" if span_s > 5 * _MINUTE_S else f"{at:%H:%M:%S}"
    return f"{at:%b %d}".replace(" 0", " ")


def _cut(text: str, chars_max: int) -> str:
    return text if len(text) <= chars_max else text[: chars_max - 1] + "…"


def _runs(points: Sequence[tuple[float, float | None]]) -> Iterator[list[tuple[float, float]]]:
    for known, run in groupby(points, key=lambda point: point[1] is not None):
        if known:
            yield [(x, y) for x, y in run if y is not None]


def _hover_bands(series: Series, across: Scale) -> Iterator[Markup]:
    """Make an invisible strip with a tooltip around each point, which needs no script."""
    known = [(x, y) for x, y in series.points if y is not None]
    edges = [across.low, *((a[0] + b[0]) / 2 for a, b in pairwise(known)), across.high]
    for (x, y), (start, end) in zip(known, pairwise(edges), strict=False):
        about = f"{_time(x, across.high - across.low)}: {short(y)}"
        about = f"{series.label}, {about}" if series.label else about
        wide, tall = round(max(across(end) - across(start), 0.5), 1), _HEIGHT - _BOTTOM - _TOP
        yield _rect("hover", about, x=across(start), y=_TOP, width=wide, height=tall)
