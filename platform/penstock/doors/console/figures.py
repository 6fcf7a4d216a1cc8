"""Numbers, times and addresses as pages show them."""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from markupsafe import Markup, escape

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

NONE = "–"
_SHORT = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
_UNITS = ("B", "KB", "MB", "GB", "TB", "PB")
_DAY_S, _HOUR_S, _MINUTE_S = 86_400, 3_600, 60


def count(value: float | None) -> str:
    return NONE if value is None else f"{value:,.0f}"


def short(value: float | None) -> str:
    if value is None:
        return NONE
    for size, unit in _SHORT:
        if abs(value) >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g}"


def share(value: float | None, digits: int = 1) -> str:
    return NONE if value is None else f"{100 * value:.{digits}f} %"


def signed(value: float | None, digits: int = 3) -> str:
    return NONE if value is None else f"{value:+.{digits}f}".replace("-", "−")


def size(value: float | None) -> str:
    if value is None:
        return NONE
    for unit in _UNITS:
        if abs(value) < 1000 or unit == _UNITS[-1]:
            return f"{value:.3g} {unit}"
        value /= 1000
    return NONE


def duration(seconds: float | None) -> str:
    if seconds is None:
        return NONE
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < _MINUTE_S:
        return f"{seconds:.3g} s"
    whole = round(seconds)
    for size_s, unit, below_s, below in (
        (_DAY_S, "d", _HOUR_S, "h"),
        (_HOUR_S, "h", _MINUTE_S, "min"),
        (_MINUTE_S, "min", 1, "s"),
    ):
        if whole >= size_s:
            rest = whole % size_s // below_s
            return f"{whole // size_s} {unit}" + (f" {rest} {below}" if rest else "")
    return f"{whole} s"


def as_time(value: datetime | str | int) -> datetime:
    if isinstance(value, int):
        return datetime.fromtimestamp(value / 1_000_000, UTC)
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def moment(value: datetime | str | int | None) -> Markup | str:
    if value is None:
        return NONE
    at = as_time(value)
    form = '<time datetime="{}" title="{}">{}</time>'
    full = at.isoformat(timespec="milliseconds")
    return Markup(form).format(full, f"{full} (UTC)", f"{at:%Y-%m-%d %H:%M}")


def ago(value: datetime | str | int | None, now_us: int) -> Markup | str:
    if value is None:
        return NONE
    at = as_time(value)
    seconds = now_us / 1_000_000 - at.timestamp()
    if seconds < -_MINUTE_S:  # the other clock is ahead
        return moment(at)
    word = "now" if seconds < 1 else f"{_one_unit(seconds)} ago"
    full = at.isoformat(timespec="seconds")
    return Markup('<time datetime="{}" title="{} (UTC)">{}</time>').format(full, full, word)


def _one_unit(seconds: float) -> str:
    for size_s, unit in ((_DAY_S, "d"), (_HOUR_S, "h"), (_MINUTE_S, "min")):
        if seconds >= size_s:
            return f"{seconds / size_s:.0f} {unit}"
    return f"{seconds:.0f} s"


def url(path: str, /, **fields: object) -> str:
    """Make a path of this console with a query. Escape names in the path with `part` first."""
    given = {name: value for name, value in fields.items() if value not in (None, "", False)}
    return f"{path}?{urlencode(given, doseq=True)}" if given else path


def part(text: object) -> str:
    return quote(str(text), safe="")


def marked(text: str, words: str) -> Markup:
    if not (wanted := words.strip()):
        return escape(text)
    pieces = re.split(f"({re.escape(wanted)})", text, flags=re.IGNORECASE)
    mark = Markup("<mark>{}</mark>")
    return Markup("").join(mark.format(p) if at % 2 else p for at, p in enumerate(pieces))


def combined(fields: Mapping[str, object], **others: object) -> dict[str, object]:
    return {**fields, **others}


#: Longer texts are shown as they are: rendering takes the service's time.
_MARKDOWN_CHARS_MAX = 8_000
_MARKS = re.compile(r"[*_`#|]|^ *(?:[-+]|\d+[.)]) ", re.MULTILINE)

#: The page has headings of its own, and its policy allows no style at an element.
_PLAINER = {
    "heading_open": '<p class="heading">', "heading_close": "</p>\n", "th_open": "<th>",
    "td_open": "<td>",
}  # fmt: skip


@cache
def _markdown() -> "MarkdownIt":
    """Markdown without links, images and HTML: nothing that others wrote leads anywhere."""
    from markdown_it import MarkdownIt

    inert = ["link", "image", "autolink", "html_inline", "html_block", "reference", "entity"]
    rules = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable("table").disable(inert)
    for rule, html in _PLAINER.items():
        rules.add_render_rule(rule, lambda *_facts, html=html: html)
    return rules


def markdown(text: str) -> Markup | None:
    """Text as Markdown means it, or None if it is plain or long."""
    if len(text) > _MARKDOWN_CHARS_MAX or not _MARKS.search(text):
        return None
    return Markup('<div class="text markdown">{}</div>').format(Markup(_markdown().render(text)))


_FILTERS = (count, short, share, signed, size, duration, moment, part, marked, combined, markdown)
FILTERS: dict[str, Callable[..., object]] = {each.__name__: each for each in _FILTERS}
