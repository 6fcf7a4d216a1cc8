"""The rows of an answer as JSON, CSV, Parquet or an Arrow stream."""

import io
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import msgspec
import pyarrow as pa

from penstock.lake.errors import QueryFailed, QueryLimitReached
from penstock.lake.query.shown_rows import show_rows

if TYPE_CHECKING:  # only type checkers know it before Python 3.12
    from typing_extensions import Buffer

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
