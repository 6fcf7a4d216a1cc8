"""The room of rewards."""

from functools import partial

from penstock.core.room import Room, items, load, parts

ROOM = Room(
    package="penstock_jobs.rewards",
    summaries={"Read and ask": {"rewards": "What sessions were worth, by what users did next."}},
    commands={"rewards": "penstock_jobs.rewards.cli:app"},
    tables=items("penstock_jobs.rewards.tables"),
    settings=items("penstock_jobs.rewards:RewardSettings"),
    endpoints=items(
        "penstock_jobs.rewards.endpoints:ENDPOINTS",
        "penstock_jobs.rewards.followups.label_endpoints:ENDPOINTS",
    ),
    pages=items("penstock_jobs.rewards.pages:PAGES"),
    views=("rewards", "outcomes", "requests", "labels"),
    bind_views=partial(load, "penstock_jobs.rewards.reward_files:bind_views"),
    erasure=parts(
        {
            "rewards": "penstock_jobs.rewards.erasure:PART",
            "reward_records": "penstock_jobs.rewards.erasure:RECORDS",
        }
    ),
    retention=parts({"superseded": "penstock_jobs.rewards.erasure:SUPERSEDED"}),
)
