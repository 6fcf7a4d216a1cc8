"""The views `rewards`, `outcomes` and `labels`: what a reader at the snap of a query sees of
them."""

import sqlalchemy as sa

from penstock.lake.segments import sessions_name
from penstock.lake.view_sources import ViewSources
from penstock_jobs.rewards.reward_files import rewards_at
from penstock_jobs.rewards.rows import OUTCOME_FILE_ROWS, REWARD_FILE_ROWS
from penstock_jobs.rewards.tables import follow_up_label


def bind_views(sources: ViewSources, views: frozenset[str]) -> None:
    if "labels" in views:
        _bind_labels(sources)
    if not views & {"rewards", "outcomes"}:
        return
    files = rewards_at(sources.database, sources.snap, tenant=sources.tenant)
    names = [file.name for file in files]
    sources.bind_files("stored_outcomes", list(map(sessions_name, names)), OUTCOME_FILE_ROWS)
    if "rewards" in views:
        sources.bind_files("stored_rewards", names, REWARD_FILE_ROWS)
        sources.create_view("outcomes")  # `rewards` reads it


def _bind_labels(sources: ViewSources) -> None:
    """A table of the metadata database."""
    labels = follow_up_label.c
    query = (
        sa.select(follow_up_label)
        .where(labels.tenant == sources.tenant, sources.known(labels.at))
        .order_by(labels.id)
    )
    sources.bind_query("label_list", query)
