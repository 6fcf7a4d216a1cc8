"""The page of queries: an editor, the columns of views, a table and a plot of rows, downloads."""

from typing import Any, Literal

import msgspec
from markupsafe import Markup

from penstock.core.endpoint import Request
from penstock.core.errors import PenstockError
from penstock.doors.console.charts import Bar, Series, bar_chart, line_chart
from penstock.doors.console.figures import short
from penstock.doors.console.page import Content, Download, PageList, Refusal, Visitor
from penstock.lake.query.shown_rows import ROWS_SHOWN_MAX, Plot, ShownRows
from penstock.lake.query.view_sources import column_meanings, view_names

PAGES = PageList("penstock.doors.console:templates/")

_EXAMPLE = "select type, count(*) as events\nfrom events\ngroup by all\norder by events desc"

Format = Literal["csv", "parquet", "arrow"]
_MEDIA_TYPES: dict[Format, str] = {
    "csv": "text/csv",
    "parquet": "application/vnd.apache.parquet",
    "arrow": "application/vnd.apache.arrow.stream",
}


class StatementRequest(Request):
    """A statement to run. `as_of` is a snapshot's name, a time, or an answer's snap."""

    sql: str | None = None
    as_of: str | None = None


class StatementDownloadRequest(Request):
    sql: str
    format: Format
    as_of: str | None = None


@PAGES.page(
    "/query", "Query", "query.html.jinja", reads_rows=True,
    group="Production", place=9, shortcut="q",
)  # fmt: skip
def _show(visitor: Visitor, request: StatementRequest) -> Content | Refusal:
    content: dict[str, Any] = {
        "views": _views(),
        "sql": request.sql or _EXAMPLE,
        "answer": None,
        "problem": "",
        "rows_shown": ROWS_SHOWN_MAX,
    }
    if request.sql is None:
        return content
    try:
        content_bytes, written = visitor.written_rows(
            request.sql, as_of_text(request.as_of), "shown"
        )
    except PenstockError as error:
        problem = " ".join(str(error).split())
        return Refusal(content | {"problem": problem}, error.http_status)
    shown = msgspec.json.decode(content_bytes, type=ShownRows)
    plot = plot_of(shown.plot) if shown.plot else None
    return content | {"answer": shown, "written": written, "plot": plot}


@PAGES.page("/query/rows", "Rows", reads_rows=True)
def _download(visitor: Visitor, request: StatementDownloadRequest) -> Download:
    content, written = visitor.written_rows(request.sql, as_of_text(request.as_of), request.format)
    name = f"query-{written.snap}.{request.format}"
    return Download(name, _MEDIA_TYPES[request.format], content)


def as_of_text(text: str | None) -> str | int | None:
    return int(text) if text is not None and text.isdecimal() and text.isascii() else text


def _views() -> list[tuple[str, list[tuple[str, str]]]]:
    return [
        (view, [(name, meaning) for names, meaning in column_meanings(view) for name in names])
        for view in sorted(view_names())
    ]


def plot_of(plot: Plot) -> Markup:
    """Draw lines over times, or bars over labels."""
    if plot.times is not None:
        lines = [
            Series(name, list(zip(plot.times, values, strict=True)))
            for name, values in plot.series.items()
        ]
        title = f"{', '.join(plot.series)} over {plot.over}"
        return line_chart(lines, title=title, description="", width=720)
    [(name, values)] = plot.series.items()
    bars = [
        Bar(label, value)
        for label, value in zip(plot.labels or (), values, strict=True)
        if value is not None
    ]
    return bar_chart(bars, title=f"{name} by {plot.over}", value_format=short, width=560)
