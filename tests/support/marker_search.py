"""Looks for a text in everything that a lake keeps, wherever that is."""

import io
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import sqlalchemy as sa

from penstock.backends.database.tables import metadata
from penstock.lake.lake import Lake
from penstock.lake.upkeep.rounds import upkeep_jobs

_READ_BYTES = 1 << 20


def places_with(lake: Lake, text: str) -> list[str]:
    """Where it is: files of the data directory, objects, rows of tables, entries of the log."""
    upkeep_jobs()  # so that the tables of all rooms are known
    places = [*_files(lake.settings.data, text), *_rows(lake, text), *_entries(lake, text)]
    if not lake.store.local:
        for stored in lake.store.list():
            with lake.store.open(stored.name) as source:
                if holds(stored.name, source.read(), text):
                    places.append(f"object {stored.name}")
    return sorted(places)


def holds(name: str, content: bytes, text: str) -> bool:
    """Whether a file does, by its name, its bytes or, since Parquet packs them, its rows."""
    if text.encode() in content or text in name:
        return True
    return content[:4] == b"PAR1" and text in str(pq.read_table(io.BytesIO(content)).to_pylist())


def _files(folder: Path, text: str) -> Iterator[str]:
    for path in folder.rglob("*"):
        if path.is_file() and holds(path.name, path.read_bytes(), text):
            yield str(path.relative_to(folder))


def _rows(lake: Lake, text: str) -> Iterator[str]:
    with lake.database.read() as connection:
        for table in metadata.sorted_tables:
            for row in connection.execute(sa.select(table)):
                if any(text in str(value) or text.encode() in _bytes(value) for value in row):
                    yield f"row of {table.name}"


def _bytes(value: object) -> bytes:
    return bytes(value) if isinstance(value, bytes | memoryview) else b""


def _entries(lake: Lake, text: str) -> Iterator[str]:
    """What the log gives to who reads it from its beginning."""
    lake.log.refresh()
    for partition in range(lake.log.partitions):
        offset, end = lake.log.bounds(partition)
        while offset < end and (entries := lake.log.read(partition, offset, _READ_BYTES)):
            for entry in entries:
                if any(text.encode() in value for value in entry.values):
                    yield f"log, {partition}:{entry.offset}"
            offset = entries[-1].next_offset
