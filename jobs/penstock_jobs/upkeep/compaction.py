"""Merge small segments, so that queries open few files and sessions lie together."""

from collections.abc import Sequence

from penstock.lake.catalog import Segment, current
from penstock.lake.lake import Lake
from penstock.lake.merging import merge_each
from penstock.lake.settings import LakeSettings
from penstock.metrics import Metrics
from penstock_jobs.tiering import choose_groups

#: A merge reads a little ahead of each of its segments: the more there are, the less.
SEGMENTS_MAX = 64


def run(lake: Lake, metrics: Metrics) -> str | None:
    """Merge what is worth it, where the settings say that heavy work is done."""
    live = current(lake.database).segments
    metrics.set("segments_live", len(live))
    settings = lake.settings
    groups = choose_merges(
        live,
        settings.room(LakeSettings).compaction_segments_min,
        settings.room(LakeSettings).compaction_bytes_target,
    )
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
    return choose_groups(
        segments,
        lambda one: one.bytes,
        bytes_target,
        segments_min,
        files_max=SEGMENTS_MAX,
        apart=lambda one: one.partition,
    )
