"""Merging small files of rewards, so that a query opens few: the rows stay as they are."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import floor, log

import pyarrow as pa

from penstock.errors import CompactionConflict
from penstock.lake.catalog import pinned
from penstock.lake.lake import Lake
from penstock.lake.reward_files import (
    MadeBy,
    RewardFile,
    read_outcomes,
    read_rewards,
    replace_rewards,
    rewards_at,
    write_rewards,
)
from penstock.lake.segments import discard

#: Files whose sizes differ by less than this factor are merged together, so that a row is
#: rewritten a few times in its life.
TIER_FACTOR = 8


def merge_small(lake: Lake, version: str) -> int:
    """Merge the files of a definition that are worth it; how many went into others. Raises
    LakeDamaged, what the store raises."""
    settings = lake.settings
    with pinned(lake.database, None, settings.reader_lease_seconds, renewed=True) as pin:
        files = rewards_at(lake.database, pin.snap, version)
        groups = choose(files, settings.compaction_segments_min, settings.rewards_file_rows_max)
        return sum(len(group) for group in groups if _merge(lake, group))


def choose(
    files: Sequence[RewardFile], files_min: int, rows_max: int
) -> Iterator[list[RewardFile]]:
    """Groups of similar size, each not above `rows_max` together."""
    tiers: defaultdict[int, list[RewardFile]] = defaultdict(list)
    for one in files:
        if one.rows < rows_max / TIER_FACTOR:
            tiers[floor(log(max(one.rows, 1), TIER_FACTOR))].append(one)
    for tier in tiers.values():
        for group in _filled(tier, rows_max):
            if len(group) >= files_min:
                yield group


def _filled(tier: Sequence[RewardFile], rows_max: int) -> Iterator[list[RewardFile]]:
    group: list[RewardFile] = []
    for one in tier:
        if group and sum(other.rows for other in (*group, one)) > rows_max:
            yield group
            group = []
        group.append(one)
    yield group


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
