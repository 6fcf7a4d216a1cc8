"""Buckets with the commits of a repository, as they are once the commits are events of the lake."""

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from penstock_jobs.rewards.bucket import Bucket
from penstock_jobs.rewards.history.git_history import HistoryGaps, history_events
from penstock_jobs.rewards.history.git_repository import Repository


def with_history(
    bucket: Bucket, repository: Repository, *, horizons_s: Sequence[int] = ()
) -> tuple[Bucket, HistoryGaps]:
    events, gaps = history_events(bucket, repository, horizons_s=horizons_s)
    if bucket.events.num_columns:
        events = pa.concat_tables([bucket.events, events], promote_options="permissive")
    return replace(bucket, events=events), gaps
