"""Rows of an answer as JSON, CSV, Parquet or an Arrow stream."""

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, get_args

import msgspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from penstock.lake.errors import QueryFailed

if TYPE_CHECKING:  # only type checkers know it before Python 3.12
    from typing_extensions import Buffer

Format = Literal["json", "csv", "arrow", "parquet"]
FORMATS: tuple[Format, ...] = get_args(Format)

_encoder = msgspec.json.Encoder(enc_hook=str)


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows as Python values that JSON can hold."""
    try:
        rows: list[dict[str, Any]] = batch.to_pylist(maps_as_pydicts="lossy")
    except (OverflowError, ValueError) as error:  # infinity, and years before 1 or after 9999
        raise QueryFailed(why=f"a value cannot be shown ({error}); cast it to varchar") from None
    return rows


def encode(value: object) -> bytes:
    """JSON, with what JSON has no form for as text."""
    return _encoder.encode(value)


def write(batches: pa.RecordBatchReader, form: Format, out: BinaryIO) -> int:
    """Write all rows a batch at a time; their number."""
    return _WRITERS[form](batches, out)


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


def _write_csv(batches: pa.RecordBatchReader, out: BinaryIO) -> int:
    flat = pa.schema([pa.field(f.name, _flat_type(f.type)) for f in batches.schema])
    count = 0
    with pyarrow.csv.CSVWriter(out, flat) as writer:
        for batch in batches:
            writer.write_batch(_flattened(batch, flat))
            count += batch.num_rows
    return count


def _flat_type(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_nested(kind) or pa.types.is_decimal(kind) else kind


def _flattened(batch: pa.RecordBatch, flat: pa.Schema) -> pa.RecordBatch:
    """Nested values as JSON texts: CSV has no form for them."""
    columns = []
    for column, field in zip(batch.columns, flat, strict=True):
        if column.type == field.type:
            columns.append(column)
        else:
            values = [None if v is None else encode(v).decode() for v in column.to_pylist()]
            columns.append(pa.array(values, pa.string()))
    return pa.RecordBatch.from_arrays(columns, schema=flat)


def _write_arrow(batches: pa.RecordBatchReader, out: BinaryIO) -> int:
    count = 0
    with pa.ipc.new_stream(out, batches.schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            count += batch.num_rows
    return count


def _write_parquet(batches: pa.RecordBatchReader, out: BinaryIO) -> int:
    count = 0
    with pq.ParquetWriter(out, batches.schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)
            count += batch.num_rows
    return count


_WRITERS: dict[Format, Callable[[pa.RecordBatchReader, BinaryIO], int]] = {
    "json": _write_json,
    "csv": _write_csv,
    "arrow": _write_arrow,
    "parquet": _write_parquet,
}


class AnswerTooLarge(Exception):
    """More than the collector may hold."""


class BoundedBuffer(io.BytesIO):
    """Collects bytes up to a limit; raises AnswerTooLarge beyond."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__()
        self._bytes_max = bytes_max

    def write(self, data: "Buffer") -> int:
        if self.tell() + memoryview(data).nbytes > self._bytes_max:
            raise AnswerTooLarge
        return super().write(data)
