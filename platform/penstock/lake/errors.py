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
    """No process can be started for the query; the log of the service says why. Ask again later."""


class SnapshotUnknown(PenstockError, exit_status=2, http_status=404):
    """There is no snapshot {name}; `penstock snapshots list` shows those there are.
    A time is written as RFC 3339, with its zone."""


class HistoryRemoved(PenstockError, http_status=410):
    """The lake as it was at {when} can no longer be read: files that it held were collected.
    Name a snapshot before compaction to keep it for ever."""


class SnapshotExists(PenstockError, exit_status=2, http_status=409):
    """There is a snapshot named {name} already; drop it first, or take another name."""


class LakeMissing(PenstockError, exit_status=2):
    """There is no lake at {where} yet. `penstock serve` or `penstock import` makes one;
    --data or PENSTOCK_DATA names another directory."""


class FencedOff(PenstockError):
    """Another writer took partition {partition} over: this one expected epoch {epoch} at
    offset {expected}. Nothing was committed; the other writer has the events."""


class LogGrew(PenstockError):
    """The event log has {found} partitions by now, and this writer worked with {believed}. Nothing
    was committed. The writer starts again with the new number, since sessions moved."""


class CompactionConflict(PenstockError):
    """The merge was dropped and nothing changed: some of its files are not live any more. The next
    run makes a new plan."""


class FileLost(PenstockError):
    """The file {name} was cleared away before it could be committed: writing it took longer than
    PENSTOCK_COLLECTION_GRACE_SECONDS. Nothing was changed; run it again."""


class UpkeepBusy(PenstockError, http_status=409):
    """Another process does upkeep on this lake and has not finished within {seconds} s.
    Nothing was changed; try again later."""


class LakeDamaged(PenstockError):
    """{path} does not match what the metadata database knows: {why}.
    `penstock lake verify` lists all such files."""


class BackupNotEmbedded(PenstockError, exit_status=2):
    """This is of an embedded lake alone, and the setting {setting} names another place than
    {data}. Back up what it names with its own tools; docs/deploy.md says in which order."""


class BackupDamaged(PenstockError, exit_status=2):
    """{source} cannot be restored: {why}. Nothing was made of it; take another backup."""


class RestoreCutOff(PenstockError, exit_status=2):
    """{data} holds half a lake: restoring it was cut off. Run penstock restore again."""


class RedactionLoosened(PenstockError, exit_status=1, http_status=403):
    """Redaction would become {mode}, and was {before}: a key may only make it stricter. Ask whoever
    runs the service: `penstock redaction set` on the lake's machine."""
