"""Merging small files of rewards, so that a query opens few: the rows stay as they are."""

from collections.abc import Sequence
from operator import attrgetter

import pyarrow as pa
from sqlalchemy import Connection

from penstock.lake.catalog import pinned
from penstock.lake.lake import Lake
from penstock.lake.merges import Merger, choose_groups, merge_each
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

#: Rows of a merged file.
_FILE_ROWS_MAX = 1_000_000


def merge_small(lake: Lake, version: str) -> None:
    """Merge the files of a definition that are worth it. Raises LakeDamaged, FileLost, what the
    store raises."""
    settings = lake.settings
    with pinned(lake.database, None, renewed=True) as pin:
        groups = choose_groups(
            rewards_at(lake.database, pin.snap, version),
            attrgetter("rows"),
            _FILE_ROWS_MAX,
            settings.room(LakeSettings).compaction_segments_min,
        )
        for _ in merge_each(lake, Merger(write_merged, replace_merged), groups):
            pass


def write_merged(lake: Lake, group: Sequence[RewardFile]) -> RewardFile:
    names = [file.name for file in group]
    return write_rewards(
        lake.database,
        lake.store,
        MadeBy(group[0].definition_version, min(file.lake_snap for file in group)),
        rewards=pa.concat_tables([read_rewards(lake.store, name) for name in names]),
        outcomes=pa.concat_tables([read_outcomes(lake.store, name) for name in names]),
    )


def replace_merged(connection: Connection, group: Sequence[RewardFile], merged: RewardFile) -> None:
    replace_rewards(connection, [file.name for file in group], merged)
