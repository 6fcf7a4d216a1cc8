"""The views `rewards` and `outcomes`: what a reader at the snap of a query sees of them."""

from penstock.lake.segments import sessions_name
from penstock.lake.view_sources import ViewSources
from penstock_jobs.rewards.reward_files import rewards_at
from penstock_jobs.rewards.rows import OUTCOME_FILE_ROWS, REWARD_FILE_ROWS


def bind_views(sources: ViewSources, views: frozenset[str]) -> None:
    names = [file.name for file in rewards_at(sources.database, sources.snap)]
    sources.bind_files("stored_outcomes", list(map(sessions_name, names)), OUTCOME_FILE_ROWS)
    if "rewards" in views:
        sources.bind_files("stored_rewards", names, REWARD_FILE_ROWS)
        sources.create_view("outcomes")  # `rewards` reads it
