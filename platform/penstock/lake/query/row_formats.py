"""The rows of an answer as JSON, CSV, Parquet or an Arrow stream, or cut to what a page shows.

Made in the statement's own process. A value that is small as Arrow may be huge as text."""

import io
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import msgspec
import pyarrow as pa

from penstock.lake import QueryFailed, QueryLimitReached

if TYPE_CHECKING:  # only type checkers know it before Python 3.12
    from typing_extensions import Buffer


import math
from collections.abc import Iterator

Format = Literal["json", "csv", "arrow", "parquet"]
#: What the process of a statement writes. `members` are the first two of a JSON object, "columns"
#: and "rows"; `shown` is a ShownRows.
WireFormat = Literal["arrow", "members", "csv", "parquet", "shown"]

_encoder = msgspec.json.Encoder(enc_hook=str)


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Convert rows to values that JSON can hold. Raises QueryFailed."""
    try:
        rows: list[dict[str, Any]] = batch.to_pylist(maps_as_pydicts="lossy")
    # Infinity, years before 1 or after 9999, lists as the keys of a map
    except (OverflowError, TypeError, ValueError, pa.ArrowException) as error:
        raise _not_shown(error) from None
    return rows


def encode(value: object) -> bytes:
    """Encode as JSON, values without a form in JSON as text. Raises QueryFailed."""
    try:
        return _encoder.encode(value)
    except (OverflowError, TypeError, ValueError) as error:  # more than 64 bits, keys of no text
        raise _not_shown(error) from None


def _not_shown(error: Exception) -> QueryFailed:
    return QueryFailed(why=f"a value cannot be shown ({error}); cast it to varchar")


def write_rows(batches: pa.RecordBatchReader, form: Format | WireFormat, out: BinaryIO) -> int:
    if form == "shown":
        shown = show_rows(batches)
        out.write(encode(shown))
        return shown.count
    if form == "members":
        out.write(b'"columns": %s, "rows": ' % encode(batches.schema.names))
        form = "json"
    if form == "json":
        return _write_json(batches, out)
    count, schema, portions = 0, batches.schema, iter(batches)
    if form == "csv":
        import pyarrow.csv

        flat = [(column.name, _flat(pa.array([], column.type)).type) for column in schema]
        schema = pa.schema(flat)
        portions = (
            pa.RecordBatch.from_arrays([_flat(column) for column in batch.columns], schema=schema)
            for batch in batches
        )
        writer: Any = pyarrow.csv.CSVWriter(out, schema)
    elif form == "arrow":
        writer = pa.ipc.new_stream(out, schema)
    else:
        import pyarrow.parquet as pq

        writer = pq.ParquetWriter(out, schema, compression="zstd")
    with writer:
        for portion in portions:
            writer.write_batch(portion)
            count += portion.num_rows
    return count


def _write_json(batches: pa.RecordBatchReader, out: BinaryIO) -> int:
    count = 0
    out.write(b"[")
    for batch in batches:
        for row in rows_of(batch):
            out.write(b",\n" if count else b"\n")
            out.write(encode(row))
            count += 1
    out.write(b"\n]\n" if count else b"]\n")
    return count


def _flat(column: pa.Array) -> pa.Array:
    """Convert nested values to JSON texts: CSV has no form for them."""
    if not (pa.types.is_nested(column.type) or pa.types.is_decimal(column.type)):
        return column
    texts = [value if value is None else encode(value).decode() for value in column.to_pylist()]
    return pa.array(texts, pa.string())


class AnswerBuffer(io.BytesIO):
    """A buffer for an answer, up to a limit. Raises QueryLimitReached beyond it."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__()
        self._bytes_max = bytes_max

    def write(self, data: "Buffer") -> int:
        if self.tell() + memoryview(data).nbytes > self._bytes_max:
            limit = f"{self._bytes_max} bytes of answer"
            raise QueryLimitReached(limit=limit, setting="PENSTOCK_QUERY_ANSWER_BYTES_MAX")
        return super().write(data)


# Rows on a page, and a plot's numbers


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
