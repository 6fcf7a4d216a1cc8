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
    outcomes, columns = list(map(sessions_name, names)), OUTCOME_FILE_ROWS
    sources.bind_whole_files("stored_outcomes", outcomes, columns, with_paths=True)
    sources.keep("stored_outcomes", columns.names)
    _bind_rewards_in(sources, names)
    if "rewards" in views:
        sources.bind_files("stored_rewards", names, REWARD_FILE_ROWS)
        sources.create_view("outcomes")  # `rewards` reads it


def _bind_rewards_in(sources: ViewSources, names: list[str]) -> None:
    """The rewards in some of these files, of which an outcome's file is beside that of its rewards:
    who asks for a session's reads one, and not where all others hold which rows."""
    rows = "read_parquet(paths)"
    if not sources.bind_paths("stored_rewards", names):
        rows = "no_rewards"
        sources.connection.register(rows, REWARD_FILE_ROWS.empty_table())
    sources.connection.execute(f"CREATE MACRO rewards_in(paths) AS TABLE SELECT * FROM {rows}")


def _bind_labels(sources: ViewSources) -> None:
    """A table of the metadata database."""
    labels = follow_up_label.c
    query = (
        sa.select(follow_up_label)
        .where(labels.tenant == sources.tenant, sources.known(labels.at))
        .order_by(labels.id)
    )
    sources.bind_query("label_list", query)
