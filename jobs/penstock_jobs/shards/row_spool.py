"""Rows on disk: more of them than fit into memory."""

import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryFile

import pyarrow as pa

from penstock.directories import make_directory

#: About so many rows are in memory at a time.
ROWS_AT_ONCE = 10_000


class RowSpool:
    """Rows in a file without a name: it is gone with this object, or with the process."""

    def __init__(self, folder: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
        make_directory(folder)
        self._file = TemporaryFile(dir=folder)  # noqa: SIM115 it is open as long as this object
        weakref.finalize(self, self._file.close)
        self.schema = schema
        self.count = 0
        with pa.ipc.new_file(self._file, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
                self.count += batch.num_rows
        self._file.flush()

    def batches(self, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        """All rows, in their order."""
        names = self.schema.names if columns is None else columns
        fields = sorted(self.schema.names.index(name) for name in names)
        options = pa.ipc.IpcReadOptions(included_fields=fields)
        reader = pa.ipc.open_file(self._file, options=options)
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)

    def column(self, name: str) -> pa.ChunkedArray:
        # Copied: what is read holds all columns of its batch in memory.
        chunks = [pa.concat_arrays([batch[name]]) for batch in self.batches([name])]
        return pa.chunked_array(chunks, self.schema.field(name).type)
