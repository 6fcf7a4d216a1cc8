"""The room of the loop and its canaries."""

from penstock.core.room import Room, items, parts

ROOM = Room(
    package="penstock_jobs.loop",
    summaries={
        "Train": {
            "loop": "From sessions to a checkpoint that serves, again and again, by a loop file."
        },
        "Measure, promote, roll back": {
            "canary": "A checkpoint on part of the traffic: look, give it more, or take it back."
        },
    },
    commands={
        "canary": "penstock_jobs.loop.cli:canary_app",
        "gate.hindsight": "penstock_jobs.loop.cli:hindsight",
        "loop": "penstock_jobs.loop.cli:app",
    },
    tables=items("penstock_jobs.loop.tables"),
    settings=items("penstock_jobs.loop:CanarySettings", "penstock_jobs.loop:LoopSettings"),
    endpoints=items(
        "penstock_jobs.loop.endpoints:ENDPOINTS",
        "penstock_jobs.loop.canary.look:ENDPOINTS",
        "penstock_jobs.loop.hindsight:ENDPOINTS",
    ),
    pages=items("penstock_jobs.loop.canary.pages:PAGES"),
    proof=parts({"training": "penstock_jobs.loop.cycles:show_training"}),
    shard_uses=items("penstock_jobs.loop.cycles:shard_uses"),
)
