"""The ingest room."""

from penstock.core.room import Room, items, parts

ROOM = Room(
    package="penstock.ingest",
    summaries={
        "Connect agents": {
            "ledger": "Show what arrived per source and hour, and what became of it.",
            "rejected": "Rejected lines: their reasons, and replaying them.",
            "events": "The format of events.",
        }
    },
    commands={
        "ledger": "penstock.ingest.cli:ledger",
        "rejected": "penstock.ingest.cli:rejected_app",
        "events": "penstock.ingest.cli:events_app",
    },
    tables=items("penstock.ingest.tables"),
    settings=items("penstock.ingest.settings:IngestSettings"),
    endpoints=items("penstock.ingest.endpoints:ENDPOINTS"),
    upkeep=parts({"rejected": "penstock.ingest.rejected_lines:remove_old_lines"}),
    erasure=parts(
        {
            "log": "penstock.ingest.erasure:LOG_PART",
            "rejected": "penstock.ingest.erasure:REJECTED_PART",
            "sources": "penstock.ingest.erasure:SOURCES_PART",
        }
    ),
    retention=parts({"rejected": "penstock.ingest.rejected_lines:AGED_LINES"}),
    checks=items(
        "penstock.ingest.rejected_lines:find_damage",
        "penstock.ingest.partition_writer:find_truncated_log",
    ),
)
