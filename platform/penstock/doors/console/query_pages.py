"""The page of queries: an editor, the views' columns, a table and a plot of the rows, downloads."""

import io
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup

from penstock.core.endpoint import Request
from penstock.core.errors import PenstockError
from penstock.doors.console.charts import Bar, Series, bar_chart, line_chart
from penstock.doors.console.figures import short
from penstock.doors.console.page import Content, Download, PageList, Refusal, Visitor
from penstock.lake.query.row_formats import write_rows
from penstock.lake.query.view_sources import column_meanings, view_names

PAGES = PageList("penstock.doors.console:templates/")

_EXAMPLE = "select type, count(*) as events\nfrom events\ngroup by all\norder by events desc"
_ROWS_SHOWN = 200
_CELL_CHARS_MAX = 300
_BARS_MAX, _POINTS_MAX = 24, 1000

Format = Literal["csv", "parquet", "arrow"]
_MEDIA_TYPES: dict[Format, str] = {
    "csv": "text/csv",
    "parquet": "application/vnd.apache.parquet",
    "arrow": "application/vnd.apache.arrow.stream",
}


class StatementRequest(Request):
    """`as_of` is the name of a snapshot, a time, or the number of an answer's snap."""

    sql: str | None = None
    as_of: str | None = None


class StatementDownloadRequest(Request):
    sql: str
    format: Format
    as_of: str | None = None


@dataclass(frozen=True)
class ShownRows:
    columns: list[str]
    numeric: list[bool]
    rows: list[list[str | None]]
    count: int
    snap: int
    cut_off: bool
    plot: Markup | None


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
        "rows_shown": _ROWS_SHOWN,
    }
    if request.sql is None:
        return content
    try:
        table, written = visitor.rows(request.sql, as_of_text(request.as_of))
    except PenstockError as error:
        problem = " ".join(str(error).split())
        return Refusal(content | {"problem": problem}, error.http_status)
    return content | {"answer": shown_rows(table, written.snap, cut_off=written.cut_off)}


@PAGES.page("/query/rows", "Rows", reads_rows=True)
def _download(visitor: Visitor, request: StatementDownloadRequest) -> Download:
    table, written = visitor.rows(request.sql, as_of_text(request.as_of))
    out = io.BytesIO()
    write_rows(table.to_reader(), request.format, out)
    name = f"query-{written.snap}.{request.format}"
    return Download(name, _MEDIA_TYPES[request.format], out.getvalue())


def as_of_text(text: str | None) -> str | int | None:
    return int(text) if text is not None and text.isdecimal() and text.isascii() else text


def _views() -> list[tuple[str, list[tuple[str, str]]]]:
    return [
        (view, [(name, meaning) for names, meaning in column_meanings(view) for name in names])
        for view in sorted(view_names())
    ]


def shown_rows(table: pa.Table, snap: int, *, cut_off: bool) -> ShownRows:
    head = table.slice(0, _ROWS_SHOWN)
    columns = [_cells(column) for column in head.columns]
    return ShownRows(
        columns=table.column_names,
        numeric=[_is_number(field.type) for field in table.schema],
        rows=[list(row) for row in zip(*columns, strict=True)],
        count=table.num_rows,
        snap=snap,
        cut_off=cut_off,
        plot=plot_of(table),
    )


def _cells(column: pa.ChunkedArray) -> list[str | None]:
    return [None if value is None else _cell(value) for value in column.to_pylist()]


def _cell(value: object) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _CELL_CHARS_MAX else text[:_CELL_CHARS_MAX] + "…"


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def plot_of(table: pa.Table) -> Markup | None:
    """Lines over the first column where that is a time, bars where it is a text."""
    kinds = [field.type for field in table.schema]
    numbers = [at for at, kind in enumerate(kinds) if at > 0 and _is_number(kind)]
    if not numbers or not 2 <= table.num_rows <= _POINTS_MAX:
        return None
    names = table.column_names
    if pa.types.is_temporal(kinds[0]) and not pa.types.is_time(kinds[0]):
        times = pc.cast(table.column(0), pa.timestamp("us")).to_pylist()
        known = (at for at, time in enumerate(times) if time is not None)
        order = sorted(known, key=times.__getitem__)
        series = []
        for at in numbers:
            values = [None if v is None else float(v) for v in table.column(at).to_pylist()]
            points = [(times[row].timestamp(), values[row]) for row in order]
            series.append(Series(names[at], points))
        title = f"{', '.join(names[at] for at in numbers)} over {names[0]}"
        return line_chart(series, title=title, description="", width=720)
    if _is_number(kinds[0]) or table.num_rows > _BARS_MAX:
        return None
    labels = _cells(table.column(0))
    values = table.column(numbers[0]).to_pylist()
    bars = [
        Bar(label or "–", float(value))
        for label, value in zip(labels, values, strict=True)
        if value is not None
    ]
    title = f"{names[numbers[0]]} by {names[0]}"
    return bar_chart(bars, title=title, value_format=short, width=560)
