"""The room of the lake."""

from penstock.core.room import Room, items, parts

ROOM = Room(
    package="penstock.lake",
    summaries={
        "Read and ask": {
            "query": "Query the lake with SQL.",
            "snapshots": "Name the lake as it is; a query as of it reads the same rows for ever.",
        },
        "Operate": {
            "lake": "The files of the lake.",
            "db": "The metadata database.",
            "backup": "Copy an embedded lake as it is now, while it is served.",
            "restore": "Restore a lake from a backup, into an empty data directory.",
            "iceberg": "Tables of Apache Iceberg over the lake.",
        },
    },
    commands={
        "query": "penstock.lake.cli:query",
        "snapshots": "penstock.lake.cli:snapshots_app",
        "lake": "penstock.lake.cli:lake_app",
        "db": "penstock.lake.cli:database_app",
        "backup": "penstock.lake.cli:backup",
        "restore": "penstock.lake.cli:restore",
        "iceberg": "penstock.lake.iceberg.cli:app",
    },
    tables=items("penstock.lake.tables", "penstock.lake.iceberg.event_table"),
    settings=items("penstock.lake:LakeSettings"),
    endpoints=items("penstock.lake.endpoints:ENDPOINTS"),
    upkeep=parts(
        {
            "compaction": "penstock.lake.upkeep.merges:compact",
            "summaries": "penstock.lake.upkeep.merges:summarise_new",
            "collection": "penstock.lake.upkeep.rounds:clean_up",
            "iceberg": "penstock.lake.iceberg.publication:publish_due",
        }
    ),
)
