"""The lake: segments of events in Parquet, the commits that add them, and queries over them."""

from dataclasses import dataclass

from penstock.core.settings import GIB, MIB, RoomSettings, setting


@dataclass(frozen=True, kw_only=True)
class LakeSettings(RoomSettings):
    """See docs/reference/settings.md."""

    known_bytes_max: int = setting(
        16 * MIB,
        "memory for the identities of recent sessions",
        "Raise it when so many sessions are active that the writer reads segments.",
        minimum=1,
    )
    lease_seconds: float = setting(
        30.0,
        "a writer or runner of a loop that is silent so long is replaced",
        "Lower it to take over sooner; raise it where machines stall.",
        minimum=1,
    )
    upkeep_seconds: float = setting(
        15.0,
        "pause between rounds of compaction and collection",
        "Lower it when small segments pile up.",
        minimum=0,
    )
    compaction_segments_min: int = setting(
        8,
        "small segments that are worth a merge",
        "Lower it for faster queries, raise it for fewer writes to the store.",
        minimum=2,
    )
    compaction_bytes_target: int = setting(
        128 * MIB,
        "segments of this size are left alone",
        "Raise it for a lake of many terabytes.",
        minimum=1,
    )
    compaction_memory_bytes_max: int = setting(
        256 * MIB, "memory of a merge", "Raise it for quicker merges.", minimum=64 * MIB
    )
    collection_grace_seconds: float = setting(
        600.0,
        "a removed file is kept so long",
        "Raise it above the time of a backup of the store.",
        minimum=0,
    )
    bucket_bytes_target: int = setting(
        64 * MIB,
        "bytes of segments in a bucket of a job",
        "Lower it when workers run out of memory.",
        minimum=1,
    )
    query_memory_bytes_max: int = setting(
        2 * GIB, "memory of one query", "Set it so that queries_max of them fit.", minimum=16 * MIB
    )
    query_seconds_max: float = setting(
        60.0, "time of one query", "Raise it for analyses over the whole lake.", minimum=0.001
    )
    query_threads: int = setting(
        2, "threads of one query", "Raise it on a machine with many cores.", minimum=1
    )
    query_spill_bytes_per_second: int = setting(
        16 * MIB,
        "how fast a query over HTTP fills the disk with what its memory cannot hold; 0 is no limit",
        "Raise it when the event log has a disk of its own, or a fast one.",
        minimum=0,
    )
    query_answer_bytes_max: int = setting(
        64 * MIB,
        "answer of POST /v1/query",
        "Raise it when programs fetch large results over HTTP.",
        minimum=1,
    )
    queries_max: int = setting(
        4,
        "queries over HTTP at the same time; a tenant that runs none starts one all the same",
        "Raise it with the memory and the cores of the machine.",
        minimum=1,
    )
    iceberg: str = setting(
        "off",
        "whether upkeep keeps a table of Apache Iceberg in step with each tenant's segments",
        "Turn it on where Spark, Trino, Snowflake or another engine reads the lake.",
        choices=("off", "on"),
    )
