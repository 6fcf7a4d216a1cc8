"""The lake: segments of events in Parquet, the commits that add them, and queries over them. Here
are its settings and errors."""

from dataclasses import dataclass

from penstock.core.errors import PenstockError
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


class QueryRefused(PenstockError, exit_status=2, http_status=400):
    """The query was refused: {why}."""


class QueryFailed(PenstockError, exit_status=2, http_status=400):
    """The query failed: {why}"""


class QueryLimitReached(PenstockError, http_status=422):
    """The query was stopped: it reached its limit of {limit}.
    Narrow it, or raise {setting}."""


class QueriesUnavailable(PenstockError, http_status=503, http_headers={"Retry-After": "5"}):
    """The query has no process: none can be started, and the log of the service says why. Ask again
    later."""


class SnapshotUnknown(PenstockError, exit_status=2, http_status=404):
    """The snapshot {name} is unknown; `penstock snapshots list` lists all. A time is written as RFC
    3339, with its zone."""


class HistoryRemoved(PenstockError, http_status=410):
    """The lake as of {when} can no longer be read: files of it were collected. A snapshot, made
    before compaction, keeps files for ever."""


class SnapshotExists(PenstockError, exit_status=2, http_status=409):
    """The snapshot {name} exists already; drop it first, or take another name."""


class LakeMissing(PenstockError, exit_status=2):
    """{where} holds no lake yet. `penstock serve` or `penstock import` makes one; --data or
    PENSTOCK_DATA names another directory."""


class FencedOff(PenstockError):
    """Another writer took over partition {partition}: this one expected epoch {epoch} at offset
    {expected}. Nothing was committed; the other writer has the events."""


class LogGrew(PenstockError):
    """The event log has {found} partitions now; this writer worked with {believed}. Nothing was
    committed. The writer starts again with the new number, since sessions moved."""


class CompactionConflict(PenstockError):
    """The merge was dropped: some of its files are not live any more. Nothing changed; the next run
    makes a new plan."""


class FileLost(PenstockError):
    """The file {name} was collected before it was committed: writing it took longer than
    PENSTOCK_COLLECTION_GRACE_SECONDS. Nothing was changed; run it again."""


class UpkeepBusy(PenstockError, http_status=409):
    """Another process does upkeep on this lake and did not finish within {seconds} s. Nothing was
    changed; try again later."""


class LakeDamaged(PenstockError):
    """{path} does not match the metadata database: {why}.
    `penstock lake verify` lists all such files."""


class BackupNotEmbedded(PenstockError, exit_status=2):
    """Only an embedded lake can be backed up so, and the setting {setting} names another place than
    {data}. Back that up with its own tools; docs/deploy.md gives the order."""


class BackupDamaged(PenstockError, exit_status=2):
    """{source} cannot be restored: {why}. Nothing was changed; take another backup."""


class RestoreCutOff(PenstockError, exit_status=2):
    """{data} holds half a lake: a restore was cut off. Run `penstock restore` again."""


class RedactionLoosened(PenstockError, exit_status=1, http_status=403):
    """Redaction cannot become {mode}: it is {before}, and a key may only make it stricter. An
    operator can use `penstock redaction set` on the lake's machine."""
