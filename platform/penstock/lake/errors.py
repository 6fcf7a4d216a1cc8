"""The errors of the lake."""

from penstock.errors import PenstockError


class QueryRefused(PenstockError):
    """The query was refused: {why}."""

    exit_status = 2
    http_status = 400


class QueryFailed(PenstockError):
    """The query failed: {why}"""

    exit_status = 2
    http_status = 400


class QueryLimitReached(PenstockError):
    """The query was stopped: it reached its limit of {limit}.
    Narrow it, or raise {setting}."""

    exit_status = 1
    http_status = 422


class SnapshotUnknown(PenstockError):
    """There is no snapshot {name}; `penstock snapshots list` shows those there are.
    A time is written as RFC 3339, with its zone."""

    exit_status = 2
    http_status = 404


class HistoryRemoved(PenstockError):
    """The lake as it was at {when} can no longer be read: files that it held were collected.
    Name a snapshot before compaction to keep it for ever."""

    exit_status = 1
    http_status = 410


class SnapshotExists(PenstockError):
    """There is a snapshot named {name} already; drop it first, or take another name."""

    exit_status = 2
    http_status = 409


class LakeMissing(PenstockError):
    """There is no lake at {where} yet. `penstock serve` or `penstock import` makes one;
    --data or PENSTOCK_DATA names another directory."""

    exit_status = 2


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


class UpkeepBusy(PenstockError):
    """Another process does upkeep on this lake and has not finished within {seconds} s.
    Nothing was changed; try again later."""

    http_status = 409


class LakeDamaged(PenstockError):
    """{path} does not match what the metadata database knows: {why}.
    `penstock lake verify` lists all such files."""


class JobResultUnfit(PenstockError):
    """The result of {function} for bucket {bucket} cannot be kept: {why}. A job returns a small
    value that JSON can hold; rows belong into files."""
