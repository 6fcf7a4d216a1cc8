"""Merge small segments, so that queries open few files and sessions lie together."""

from collections import defaultdict
from collections.abc import Sequence
from math import floor, log

from penstock.lake.catalog import Segment, current
from penstock.lake.compaction import merge_each
from penstock.lake.lake import Lake
from penstock.telemetry.metrics import Metrics

#: Segments whose sizes differ by less than this factor are merged together, so that a row is
#: rewritten a few times in its life, not with every new neighbour.
TIER_FACTOR = 8
#: A merge reads a little ahead of each of its segments: the more there are, the less.
SEGMENTS_MAX = 64


def run(lake: Lake, metrics: Metrics) -> str | None:
    """Merge what is worth it, where the settings say that heavy work is done."""
    live = current(lake.database).segments
    metrics.set("segments_live", len(live))
    settings = lake.settings
    groups = choose_merges(live, settings.compaction_segments_min, settings.compaction_bytes_target)
    if not groups:
        return None
    done: list[int] = []
    for merged in merge_each(lake, groups, lake.executor):
        metrics.add("segments_merged_total", len(merged.group))
        done.append(len(merged.group))
    return f"merged {sum(done)} segments into {len(done)}" if done else None


def choose_merges(
    segments: Sequence[Segment], segments_min: int, bytes_target: int
) -> list[list[Segment]]:
    """Groups of one partition and of similar size, each not above the target, nor of more
    segments than can well be read side by side. Segments of an eighth of the target and more are
    left alone."""
    tiers: defaultdict[tuple[int, int], list[Segment]] = defaultdict(list)
    for one in segments:
        if one.bytes < bytes_target / TIER_FACTOR:
            tiers[one.partition, floor(log(max(one.bytes, 1), TIER_FACTOR))].append(one)
    chosen = []
    for tier in tiers.values():
        group: list[Segment] = []
        size = 0
        for one in tier:
            if group and (size + one.bytes > bytes_target or len(group) == SEGMENTS_MAX):
                chosen.append(group)
                group, size = [], 0
            group.append(one)
            size += one.bytes
        chosen.append(group)
    return [group for group in chosen if len(group) >= segments_min]
