"""Merging small files of rewards, so that a query opens few: the rows stay as they are."""

from collections.abc import Sequence

import pyarrow as pa

from penstock.lake.catalog import pinned
from penstock.lake.errors import CompactionConflict
from penstock.lake.lake import Lake
from penstock.lake.segments import discard
from penstock.lake.settings import LakeSettings
from penstock_jobs.rewards.reward_files import (
    MadeBy,
    RewardFile,
    read_outcomes,
    read_rewards,
    replace_rewards,
    rewards_at,
    write_rewards,
)
from penstock_jobs.tiering import choose_groups

#: Rows of a merged file.
_FILE_ROWS_MAX = 1_000_000


def merge_small(lake: Lake, version: str) -> int:
    """Merge the files of a definition that are worth it; how many went into others. Raises
    LakeDamaged, what the store raises."""
    settings = lake.settings
    with pinned(
        lake.database, None, settings.room(LakeSettings).reader_lease_seconds, renewed=True
    ) as pin:
        files = rewards_at(lake.database, pin.snap, version)
        groups = choose_groups(
            files,
            lambda one: one.rows,
            _FILE_ROWS_MAX,
            settings.room(LakeSettings).compaction_segments_min,
        )
        return sum(len(group) for group in groups if _merge(lake, group))


def _merge(lake: Lake, group: Sequence[RewardFile]) -> bool:
    names = [one.name for one in group]
    merged = write_rewards(
        lake.database,
        lake.store,
        MadeBy(group[0].definition_version, min(one.lake_snap for one in group)),
        rewards=pa.concat_tables([read_rewards(lake.store, name) for name in names]),
        outcomes=pa.concat_tables([read_outcomes(lake.store, name) for name in names]),
    )
    try:
        with lake.database.write() as connection:
            replace_rewards(connection, names, merged)
    except CompactionConflict:
        discard(lake.store, merged.name)
        return False
    return True
