"""The rows of what others export: lines of JSON, a JSON document, or Parquet."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock_jobs.importers.report import Notes, SourceUnfit
from penstock_jobs.importers.sources import Candidate, Source

_PARQUET = b"PAR1"
_ROWS_AT_ONCE = 200
#: No row group of an export is so large, uncompressed.
_GROUP_BYTES_MAX = 2 * 1024 * 1024 * 1024

Row = dict[str, Any]


def is_export(candidate: Candidate) -> bool:
    return not candidate.is_folder and candidate.name.endswith((".json", ".jsonl", ".parquet"))


def columns_of(candidate: Candidate) -> frozenset[str]:
    """Of a Parquet file; none for anything else."""
    if not candidate.beginning.startswith(_PARQUET):
        return frozenset()
    try:
        with _parquet(candidate.source()) as file:
            return frozenset(file.schema_arrow.names)
    except SourceUnfit:
        return frozenset()


def rows_of(source: Source, notes: Notes, *holders: str) -> Iterator[tuple[str, Row]]:
    """With where each stands. A document is a list of rows, an object that holds one under one of
    the names of `holders`, or one row. Raises SourceUnfit."""
    name = source.name.removesuffix(".gz").removesuffix(".zst")
    if name.endswith(".jsonl"):
        for number, row in source.rows(notes):
            yield f"line {number}", row
        return
    rows = _parquet_rows(source) if name.endswith(".parquet") else _held(source, holders)
    for at, row in enumerate(rows):
        if isinstance(row, dict):
            yield f"row {at + 1}", row
        else:
            notes.skip("row that is no object", f"row {at + 1}")


def _held(source: Source, holders: tuple[str, ...]) -> list[Any]:
    document = source.document()
    if isinstance(document, dict):
        held = (document[name] for name in holders if isinstance(document.get(name), list))
        document = next(held, document)
    return document if isinstance(document, list) else [document]


def _parquet_rows(source: Source) -> Iterator[Any]:
    with _parquet(source) as file:
        for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE):
            yield from map(_plain, _in_microseconds(batch).to_pylist(maps_as_pydicts="lossy"))


def _in_microseconds(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Python has no nanoseconds."""
    for at, field in enumerate(batch.schema):
        if pa.types.is_timestamp(field.type):
            column = batch.column(at).cast(pa.timestamp("us", field.type.tz), safe=False)
            batch = batch.set_column(at, field.name, column)
    return batch


def _plain(value: Any) -> Any:
    """As JSON would have it."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.isoformat() if isinstance(value, datetime) else value


@contextmanager
def _parquet(source: Source) -> Iterator[pq.ParquetFile]:
    """Raises SourceUnfit, also for what goes wrong while it is read."""
    with source.opened() as opened:
        try:
            file = pq.ParquetFile(opened, memory_map=False)
            groups = (file.metadata.row_group(at) for at in range(file.metadata.num_row_groups))
            if any(group.total_byte_size > _GROUP_BYTES_MAX for group in groups):
                raise SourceUnfit("it has a row group of more than 2 GiB")
            yield file
        except (pa.ArrowException, OSError) as error:
            raise SourceUnfit(f"it is no Parquet file that can be read: {error}") from error
