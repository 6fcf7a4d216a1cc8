"""Erasure and retention of rewards: files of rewards and outcomes, due sessions, and labels.

A file is replaced by one without the erased sessions, by the protocol of segments. Retention
removes rewards and outcomes that were computed again later."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa

from penstock.access.privacy.orders import CONTENT, ErasedPart, ErasureOrder, ErasureStep
from penstock.access.privacy.retention import RetentionCount, RetentionPart, RetentionScope
from penstock.backends.database.engine import put_rows
from penstock.lake import CompactionConflict, FileLost
from penstock.lake.buckets import SessionId, of_sessions
from penstock.lake.catalog import claim_files, withdraw_intents
from penstock.lake.commits import next_snap
from penstock.lake.lake import Lake
from penstock.lake.query.spill import sorting_engine
from penstock.lake.segments import discard, sessions_name
from penstock.lake.upkeep.rewrites import REWRITE, note_replaced
from penstock_jobs.rewards.reward_files import RewardFile, read_rows, write_rewards
from penstock_jobs.rewards.rows import row_tuples, sql_of
from penstock_jobs.rewards.tables import follow_up_label, judge_answer, reward_due, reward_file

_PAGE_ROWS = 200


def _erase_rewards(order: ErasureOrder) -> Iterator[ErasedPart]:
    rewritten = True
    while rewritten:  # merges, and runs that began before, go on meanwhile
        rewritten, after = False, 0
        query = sa.select(reward_file).order_by(reward_file.c.id).limit(_PAGE_ROWS)
        if not order.breaks_snapshots:
            live = reward_file.c.removed_snap.is_(None)
            query = query.where(live, reward_file.c.tenant == order.scope.tenant)
        while True:
            rows = order.lake.database.rows(query.where(reward_file.c.id > after))
            if not rows:
                break
            after = rows[-1].id
            for row in rows:
                if removed := _rewrite(order, row):
                    rewritten = True
                    yield ErasedPart({"rewards": removed})


def _rewrite(order: ErasureOrder, row: sa.Row[Any]) -> int:
    try:
        outcomes = read_rows(order.lake.store, sessions_name(row.name), SessionId._fields)
    except FileNotFoundError:  # merged and collected meanwhile
        return 0
    chosen = order.chosen({SessionId(*key) for key in row_tuples(outcomes, *SessionId._fields)})
    if not chosen:
        return 0
    # What is left of a session in part is computed again.
    due = {"definition_version": row.definition_version, "due_at": 0, "computed_at": 0}
    rest = [due | each._asdict() for each, named_us in chosen.items() if named_us is not None]
    with order.lake.database.write() as connection:
        put_rows(connection, reward_due, rest)

    def kept(rows: pa.Table) -> pa.ChunkedArray:
        return pc.invert(of_sessions(rows, chosen))

    return replace_file(order.lake, row, kept, breaks_snapshots=order.breaks_snapshots)


def replace_file(
    lake: Lake,
    row: sa.Row[Any],
    kept: Callable[[pa.Table], pa.ChunkedArray],
    *,
    breaks_snapshots: bool,
) -> int:
    """Replace a file by the rows for which `kept` is true.

    Returns the number of removed rewards; at least 1, or 0 if a merge was faster."""
    try:
        rewards = read_rows(lake.store, row.name)
        outcomes = read_rows(lake.store, sessions_name(row.name))
    except FileNotFoundError:  # merged and collected meanwhile
        return 0
    rest, left = rewards.filter(kept(rewards)), outcomes.filter(kept(outcomes))
    written: RewardFile | None = None
    if left.num_rows:
        version = row.definition_version
        written = write_rewards(
            lake, version, row.lake_snap, row.tenant, rewards=rest, outcomes=left
        )
    if not _swap(lake, row, written, breaks_snapshots=breaks_snapshots):
        if written is not None:
            discard(lake.store, written.name)
        return 0
    removed: int = rewards.num_rows - rest.num_rows
    return max(removed, 1)


def _swap(
    lake: Lake, row: sa.Row[Any], written: RewardFile | None, *, breaks_snapshots: bool
) -> bool:
    """Swap in the new file if the old one is unchanged. Raises FileLost."""
    same = (
        reward_file.c.name == row.name,
        reward_file.c.removed_snap.is_not_distinct_from(row.removed_snap),
    )
    with suppress(CompactionConflict), lake.database.write() as connection:
        claim_files(connection, to_collect=True)
        snap = next_snap(connection, REWRITE)
        place = {"added_snap": row.added_snap, "removed_snap": row.removed_snap}
        if not breaks_snapshots:
            place = {"added_snap": snap, "removed_snap": None}
            old: sa.Update | sa.Delete = (
                sa.update(reward_file).where(*same).values(removed_snap=snap)
            )
        else:
            note_replaced(connection, row.name)
            old = sa.delete(reward_file).where(*same)
        if connection.execute(old).rowcount != 1:
            raise CompactionConflict
        if written is not None:
            if not withdraw_intents(connection, [written.name]):
                raise FileLost(name=written.name)
            connection.execute(sa.insert(reward_file).values(**asdict(written), **place))
        return True
    return False


def _erase_records(order: ErasureOrder) -> Iterator[ErasedPart]:
    due = order.delete_rows(reward_due)
    yield ErasedPart({"rewards due": due, "labels": order.delete_rows(follow_up_label)})
    yield ErasedPart({"hints that a model wrote": order.delete_rows(judge_answer)})


PART = ErasureStep(CONTENT, _erase_rewards, aged="files")
RECORDS = ErasureStep(CONTENT, _erase_records, aged="records")


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
    """Yield files with their rows that were computed again before the scope's time."""
    query = sa.select(reward_file).where(reward_file.c.tenant == scope.tenant)
    if not scope.breaks_snapshots:
        query = query.where(reward_file.c.removed_snap.is_(None))
    files = {row.id: row for row in lake.database.rows(query.order_by(reward_file.c.id))}
    with sorting_engine(lake.settings.data) as connection:
        computed = pa.RecordBatchReader.from_batches(_COMPUTED, _computed(lake, files))
        connection.register("rows", computed)
        connection.execute("create table computed as from rows")
        until = {"until_us": scope.until_us}
        connection.sql(sql_of("superseded.sql"), params=until).create("superseded")
        numbers = connection.execute("select distinct file from superseded order by 1").fetchall()
        own = "select session_id, computed_at from superseded where file = $1"
        yield (
            (files[number], connection.sql(own, params=[number]).to_arrow_table())
            for (number,) in numbers
        )


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


def _others(rows: pa.Table, old: pa.Array) -> pa.ChunkedArray:
    return pc.invert(pc.is_in(_keys(rows), old))


def _keys(rows: pa.Table) -> pa.ChunkedArray:
    times = rows["computed_at"].cast(pa.timestamp("us")).cast(pa.int64()).cast(pa.string())
    return pc.binary_join_element_wise(times, rows["session_id"].cast(pa.string()), " ")


SUPERSEDED = RetentionPart(_count, _run)
