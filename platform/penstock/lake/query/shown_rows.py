"""The rows of a statement as a page shows them: cut to what fits there, and a plot's numbers.

Made in the statement's own process. A value that is small as Arrow may be huge as text."""

import math
from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa

ROWS_SHOWN_MAX = 200
_CELL_CHARS_MAX = 300
_BARS_MAX, _POINTS_MAX, _SERIES_MAX = 24, 1000, 6


class Plot(msgspec.Struct):
    """Bars over labels, or lines over times in seconds since 1970."""

    over: str
    series: dict[str, list[float | None]]
    labels: list[str] | None = None
    times: list[float] | None = None


class ShownRows(msgspec.Struct):
    columns: list[str]
    numeric: list[bool]
    rows: list[list[str | None]]
    #: Of all rows, of which the first are shown.
    count: int
    plot: Plot | None


def show_rows(batches: pa.RecordBatchReader) -> ShownRows:
    """Read all rows, and keep those that are shown or drawn."""
    kept, count = list[pa.RecordBatch](), 0
    for batch in batches:
        if count <= _POINTS_MAX:
            kept.append(batch.slice(0, _POINTS_MAX + 1 - count))
        count += batch.num_rows
    table = pa.Table.from_batches(kept, batches.schema)
    columns = [list(_cells(column.slice(0, ROWS_SHOWN_MAX))) for column in table.columns]
    return ShownRows(
        columns=table.column_names,
        numeric=[_is_number(field.type) for field in table.schema],
        rows=[list(row) for row in zip(*columns, strict=True)],
        count=count,
        plot=_plot_of(table) if 2 <= count <= _POINTS_MAX else None,
    )


def _cells(column: pa.ChunkedArray) -> Iterator[str | None]:
    for scalar in column:
        value = _beginning(scalar)
        text = f"{value:.6g}" if isinstance(value, float) else str(value)
        cut = text if len(text) <= _CELL_CHARS_MAX else text[:_CELL_CHARS_MAX] + "…"
        yield None if value is None else cut


def _beginning(scalar: Any) -> Any:
    """A value with so many elements and characters that its text is longer than a cell."""
    if not scalar.is_valid:
        return None
    if pa.types.is_struct(scalar.type):
        return {name: _beginning(part) for name, part in scalar.items()}
    if pa.types.is_nested(scalar.type) and not pa.types.is_union(scalar.type):
        return [_beginning(part) for part in scalar.values[: _CELL_CHARS_MAX + 1]]
    value = scalar.as_py()
    return value[: _CELL_CHARS_MAX + 1] if isinstance(value, str | bytes) else value


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def _plot_of(table: pa.Table) -> Plot | None:
    """Lines over the first column where that is a time, bars where it is a text."""
    import pyarrow.compute as pc

    first, *others = [field.type for field in table.schema]
    numbers = [at for at, kind in enumerate(others, 1) if _is_number(kind)][:_SERIES_MAX]
    if not numbers:
        return None
    names = table.column_names
    if pa.types.is_temporal(first) and not pa.types.is_time(first):
        times = pc.cast(table.column(0), pa.timestamp("us")).cast(pa.int64())
        rows = table.set_column(0, names[0], times).filter(pc.is_valid(times)).sort_by(names[0])
        values = {names[at]: _numbers(rows.column(at)) for at in numbers}
        seconds = [time / 1_000_000 for time in rows.column(0).to_pylist()]
        return Plot(names[0], values, times=seconds)
    if _is_number(first) or table.num_rows > _BARS_MAX:
        return None
    known = table.filter(pc.is_valid(table.column(numbers[0])))
    labels = [label or "–" for label in _cells(known.column(0))]
    return Plot(names[0], {names[numbers[0]]: _numbers(known.column(numbers[0]))}, labels=labels)


def _numbers(column: pa.ChunkedArray) -> list[float | None]:
    values = (None if value is None else float(value) for value in column.to_pylist())
    return [value if value is not None and math.isfinite(value) else None for value in values]
