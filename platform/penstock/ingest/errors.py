"""The errors of taking events in."""

from penstock.errors import PenstockError


class BodyUnreadable(PenstockError, exit_status=2, http_status=400):
    """The request body could not be read: {why}. Nothing of it was accepted."""


class EncodingUnknown(
    PenstockError, exit_status=2, http_status=415, http_headers={"Accept-Encoding": "gzip, zstd"}
):
    """The content encoding {encoding} is not known; send gzip, zstd or none."""


class LogTruncated(PenstockError):
    """Partition {partition} of the event log ends at {end}, but the lake covers it up to
    {covered}: the log was cut or replaced by an older one. Restore it, or move the log
    directory away, so that a new log is started."""


class LogExpired(PenstockError):
    """Partition {partition} of the event log begins at {first} now, but the lake covers it only
    up to {covered}: its retention ran ahead of the writer. The events between are lost; the
    ledger has the gap. Give the topic a longer retention, or start more writers."""
