"""Rewards, erased: files of rewards and outcomes, what is due, and labels.

A file is replaced by one without the sessions that stands where the old one stood, so that an
older moment shows what it showed, without them. It is the same protocol as for segments."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa

from penstock.lake.buckets import SessionId, of_sessions
from penstock.lake.catalog import claim_files
from penstock.lake.commits import next_snap
from penstock.lake.errors import CompactionConflict, FileLost
from penstock.lake.intents import withdraw_intent
from penstock.lake.rewrites import REWRITE, note_replaced
from penstock.lake.segments import discard, sessions_name
from penstock.privacy.orders import CONTENT, ErasedPart, ErasureOrder, ErasureStep
from penstock_jobs.rewards.reward_files import RewardFile, read_rows, write_rewards
from penstock_jobs.rewards.tables import follow_up_label, reward_due, reward_file

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
            with order.lake.database.read() as connection:
                rows = connection.execute(query.where(reward_file.c.id > after)).all()
            if not rows:
                break
            after = rows[-1].id
            for row in rows:
                removed = _rewrite(order, row)
                if removed:
                    rewritten = True
                    yield ErasedPart({"rewards": removed})


def _rewrite(order: ErasureOrder, row: sa.Row[Any]) -> int:
    """How many rewards are gone; 0 where the file holds none, or a merge was faster."""
    store = order.lake.store
    try:
        outcomes = read_rows(store, sessions_name(row.name))
        columns = (outcomes[name].to_pylist() for name in SessionId._fields)
        chosen = order.chosen({SessionId(*session) for session in zip(*columns, strict=True)})
        if not chosen:
            return 0
        rewards = read_rows(store, row.name)
    except FileNotFoundError:  # merged and collected meanwhile
        return 0
    kept = _without(rewards, chosen)
    removed: int = rewards.num_rows - kept.num_rows
    rest = _without(outcomes, chosen)
    written: RewardFile | None = None
    if rest.num_rows:
        version = row.definition_version
        written = write_rewards(
            order.lake, version, row.lake_snap, row.tenant, rewards=kept, outcomes=rest
        )
    if not _swap(order, row, written):
        if written is not None:
            discard(store, written.name)
        return 0
    return max(removed, 1)


def _without(rows: pa.Table, chosen: set[SessionId]) -> pa.Table:
    return rows.filter(pc.invert(of_sessions(rows, chosen)))


def _swap(order: ErasureOrder, row: sa.Row[Any], written: RewardFile | None) -> bool:
    """Put the new file in the place of the old one, if that is still as it was. Raises FileLost."""
    same = (
        reward_file.c.name == row.name,
        reward_file.c.removed_snap.is_not_distinct_from(row.removed_snap),
    )
    with suppress(CompactionConflict), order.lake.database.write() as connection:
        claim_files(connection, to_collect=True)
        snap = next_snap(connection, REWRITE)
        place = {"added_snap": row.added_snap, "removed_snap": row.removed_snap}
        if not order.breaks_snapshots:
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
            if not withdraw_intent(connection, written.name):
                raise FileLost(name=written.name)
            connection.execute(sa.insert(reward_file).values(**asdict(written), **place))
        return True
    return False


def _erase_records(order: ErasureOrder) -> Iterator[ErasedPart]:
    due = order.delete_rows(reward_due)
    yield ErasedPart({"rewards due": due, "labels": order.delete_rows(follow_up_label)})


PART = ErasureStep(CONTENT, _erase_rewards, aged="files")
RECORDS = ErasureStep(CONTENT, _erase_records, aged="records")
