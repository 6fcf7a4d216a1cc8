"""The errors of the lake."""

from penstock.core.errors import PenstockError


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
