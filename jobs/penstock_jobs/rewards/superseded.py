"""Rewards and outcomes that were computed again since, and how long they are kept."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa

from penstock.lake.lake import Lake
from penstock.lake.segments import sessions_name
from penstock.lake.spill import sorting_engine
from penstock.privacy.retention import RetentionCount, RetentionPart, RetentionScope
from penstock_jobs.rewards.erasure import replace_file
from penstock_jobs.rewards.reward_files import read_rows
from penstock_jobs.rewards.tables import reward_file

_SQL = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
_COLUMNS = ["session_id", "definition_version", "computed_at"]
_COMPUTED = pa.schema(
    [
        ("file", pa.int64()),
        ("session_id", pa.string()),
        ("definition_version", pa.string()),
        ("computed_at", pa.timestamp("us")),
    ]
)


def _count(lake: Lake, scope: RetentionScope) -> RetentionCount:
    with _superseded(lake, scope) as by_file:
        return RetentionCount(rows=sum(old.num_rows for _, old in by_file))


def _run(lake: Lake, scope: RetentionScope) -> RetentionCount:
    """What is merged meanwhile stays until the next run."""
    removed = 0
    with _superseded(lake, scope) as by_file:
        for row, old in by_file:
            kept = partial(_others, old=_keys(old).combine_chunks())
            if replace_file(lake, row, kept, breaks_snapshots=scope.breaks_snapshots):
                removed += old.num_rows
    return RetentionCount(rows=removed)


@contextmanager
def _superseded(
    lake: Lake, scope: RetentionScope
) -> Iterator[Iterator[tuple[sa.Row[Any], pa.Table]]]:
    """Files with what of them was computed again before the time of the scope. Times of the lake
    only grow, so that a session's last answer is never among them."""
    query = sa.select(reward_file).where(reward_file.c.tenant == scope.tenant)
    if not scope.breaks_snapshots:
        query = query.where(reward_file.c.removed_snap.is_(None))
    with lake.database.read() as connection:
        files = {row.id: row for row in connection.execute(query.order_by(reward_file.c.id))}
    with sorting_engine(lake.settings.data) as connection:
        computed = pa.RecordBatchReader.from_batches(_COMPUTED, _computed(lake, files))
        connection.register("rows", computed)
        connection.execute("create table computed as from rows")
        found = connection.sql(_SQL, params={"until_us": scope.until_us}).to_arrow_reader()
        yield ((files[file], rows) for file, rows in _by_file(found))


def _computed(lake: Lake, files: dict[int, sa.Row[Any]]) -> Iterator[pa.RecordBatch]:
    for id_, row in files.items():
        try:
            rows = read_rows(lake.store, sessions_name(row.name), _COLUMNS)
        except FileNotFoundError:  # merged and collected meanwhile
            continue
        for batch in rows.to_batches():
            values = [batch[name].cast(_COMPUTED.field(name).type) for name in _COLUMNS]
            numbers = pa.array([id_] * batch.num_rows, pa.int64())
            yield pa.record_batch([numbers, *values], schema=_COMPUTED)


def _by_file(found: pa.RecordBatchReader) -> Iterator[tuple[int, pa.Table]]:
    """They come in the order of their files."""
    held: dict[int, list[pa.RecordBatch]] = {}
    for batch in found:
        for number in pc.unique(batch["file"]).to_pylist():
            if number not in held:
                yield from _tables(held)
                held = {number: []}
            held[number].append(batch.filter(pc.equal(batch["file"], number)))
    yield from _tables(held)


def _tables(held: dict[int, list[pa.RecordBatch]]) -> Iterator[tuple[int, pa.Table]]:
    for number, batches in held.items():
        yield number, pa.Table.from_batches(batches)


def _others(rows: pa.Table, old: pa.Array) -> pa.ChunkedArray:
    return pc.invert(pc.is_in(_keys(rows), old))


def _keys(rows: pa.Table) -> pa.ChunkedArray:
    times = rows["computed_at"].cast(pa.timestamp("us")).cast(pa.int64()).cast(pa.string())
    return pc.binary_join_element_wise(times, rows["session_id"].cast(pa.string()), " ")


SUPERSEDED = RetentionPart(_count, _run)
