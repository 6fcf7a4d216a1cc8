"""The errors of the event log."""

from penstock.core.errors import Backlogged, PenstockError


class LogUnwritable(Backlogged):
    """The event log cannot be written: {why}. Nothing of the request was accepted.
    Send it again in {retry_after_s} s."""


class LogCorrupt(PenstockError):
    """The event log file {path} is damaged at byte {position}, before its end: {why}.
    Nothing was cut off. Restore the file, or move the whole log directory away, so that a new
    log is started; the ledger will show the gap."""


class LogShapeChanged(PenstockError, exit_status=2):
    """The event log at {path} was made with {found} partitions; the settings say {wanted}.
    Another number would move sessions to other partitions. Set PENSTOCK_LOG_PARTITIONS={found}."""


class LogUnreachable(PenstockError, exit_status=3, http_status=503):
    """The event log {where} cannot be reached: {why}."""


class LogUnsuitable(PenstockError, exit_status=3, http_status=503):
    """The event log {where} cannot be used: {why}."""
