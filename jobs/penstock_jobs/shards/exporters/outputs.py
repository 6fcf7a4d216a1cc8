"""What an exporter writes: files below one directory, and counts."""

from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, Self

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.settings import MIB

#: Of a row group of what is written, before compression. Readers of nested columns fail on large
#: ones.
ROW_GROUP_BYTES = 16 * MIB
_ZSTD_LEVEL = 3


class Output:
    """Use as a context manager. Names are relative, with `/` between parts."""

    def __init__(self, folder: Path) -> None:
        self.files: list[str] = []
        #: Rows of the shard that were written, and why others were not.
        self.rows = 0
        self.left_out: Counter[str] = Counter()
        self.counted: Counter[str] = Counter()
        self._folder = folder
        self._tables: dict[str, _Table] = {}
        self._lines: dict[str, BinaryIO] = {}
        self._open = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is None:
            self.end_files()
        else:
            self._open.close()

    def leave_out(self, reason: str, rows: int = 1) -> None:
        if rows:
            self.left_out[reason] += rows

    def table(self, name: str, rows: pa.Table) -> None:
        """Add rows to a Parquet file."""
        if not rows.num_rows:
            return
        if name not in self._tables:
            writer = pq.ParquetWriter(
                self._new(name), rows.schema, compression="zstd", compression_level=_ZSTD_LEVEL
            )
            self._tables[name] = _Table(self._open.enter_context(writer))
        self._tables[name].add(rows)

    def line(self, name: str, content: bytes) -> None:
        """Add a line to a file of JSON."""
        if name not in self._lines:
            self._lines[name] = self._open.enter_context(self._new(name).open("wb"))
        self._lines[name].write(content + b"\n")

    def file(self, name: str, pieces: Iterable[bytes]) -> None:
        with self._new(name).open("wb") as file:
            file.writelines(pieces)

    def end_files(self) -> None:
        """Nothing more comes into the files that are open."""
        for table in self._tables.values():
            table.flush()
        self._open.close()
        self._tables, self._lines = {}, {}

    def _new(self, name: str) -> Path:
        self.files.append(name)
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


class _Table:
    """A Parquet file, and the rows that wait for their row group to be full."""

    def __init__(self, writer: pq.ParquetWriter) -> None:
        self._writer = writer
        self._waiting: list[pa.Table] = []
        self._bytes = 0

    def add(self, rows: pa.Table) -> None:
        if self._bytes + rows.nbytes > ROW_GROUP_BYTES:
            self.flush()
        self._waiting.append(rows)
        self._bytes += rows.nbytes

    def flush(self) -> None:
        if self._waiting:
            rows = pa.concat_tables(self._waiting).combine_chunks()
            self._writer.write_table(rows, row_group_size=rows.num_rows)
        self._waiting, self._bytes = [], 0
