"""The room of shard building and consent."""

from penstock.core.room import Room, items, parts

ROOM = Room(
    package="penstock_jobs.shards",
    summaries={
        "Train": {
            "shards": "Training shards, built from queries.",
            "consent": "Whether data of users, projects and sessions may be trained on.",
        }
    },
    commands={
        "shards": "penstock_jobs.shards.cli:app",
        "consent": "penstock_jobs.shards.cli:consent_app",
    },
    endpoints=items(
        "penstock_jobs.shards.endpoints:ENDPOINTS", "penstock_jobs.shards.consents:ENDPOINTS"
    ),
    python=parts({"build_shard": "penstock_jobs.shards.build:build_from_file"}),
    pages=items("penstock_jobs.shards.pages:PAGES"),
    erasure=parts(
        {
            "shards": "penstock_jobs.shards.consents:PART",
            "shard_builds": "penstock_jobs.shards.consents:BUILDS",
        }
    ),
    proof=parts({"consent_withdrawn": "penstock_jobs.shards.registration:show_withdrawn"}),
)
