"""What can go wrong with an erasure."""

from penstock.errors import PenstockError


class ErasureUnknown(PenstockError, exit_status=2):
    """There is no erasure {erasure}: see penstock erase --list."""


class ErasureBusy(PenstockError, exit_status=1):
    """Another process erases at this moment, and is at it for over {seconds} s. What was asked for
    is kept: run penstock erase --resume when it is done."""


class LogNotCovered(PenstockError, exit_status=1):
    """The event log still holds events that the lake has not taken over after {seconds} s, and
    events of the erased may be among them. Look at /readyz for why the writer waits, then run
    penstock erase --resume."""
