"""The protocol of an event log, its errors and settings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from penstock.core.errors import Backlogged, PenstockError
from penstock.core.settings import GIB, MIB, RoomSettings, setting


class Entry(NamedTuple):
    """Values that became durable together, up to `next_offset`. An entry without values stands for
    a damaged part."""

    offset: int
    next_offset: int
    values: list[bytes]


class OffsetBounds(NamedTuple):
    """The offsets of a partition: from `first` up to, but without, `end`."""

    first: int
    end: int


class DamagedPart(NamedTuple):
    """Bytes of the log that could not be read; `name` says where their copy is."""

    name: str
    bytes: int


class Claim(Enum):
    """The answer of `hold`: who takes a partition into the lake, as far as the log can tell."""

    MINE = "this process does, and no other one can until it ends"
    TAKEN = "another process does"
    UNKNOWN = "the log cannot tell: the lease in the database decides"


class EventLog(Protocol):
    """Append-only and partitioned. Offsets of a partition only grow, but are not consecutive."""

    @property
    def id(self) -> str:
        """The id of this log. A new log under the same address has another."""

    @property
    def partitions(self) -> int:
        """The number of partitions when this process last looked. It never falls."""

    def refresh(self) -> None:
        """Look for new partitions. Call it before reading every acknowledged event."""

    @property
    def value_bytes_max(self) -> int:
        """The largest value that can be appended."""

    def append(self, values: Mapping[int, Sequence[bytes]]) -> None:
        """Append durably. Raises Backlogged or LogUnwritable: then some of the values may be in the
        log already. Append all of them again."""

    def read(self, partition: int, offset: int, bytes_max: int, wait_s: float = 0) -> list[Entry]:
        """Read entries from `offset` on, or from the first that is left. Returns about `bytes_max`,
        but at least one entry, if one comes within `wait_s`. It waits for no appender: the last
        entry may be taken back, and what comes next has another offset."""

    def secure(self, partition: int, offset: int) -> None:
        """Return once the entries read before this offset are durable. Call it before a promise
        rests on them."""

    def mend(self) -> None:
        """Cut off what a crash left torn, and set aside what it damaged. Appenders do it first."""

    @property
    def expires(self) -> bool:
        """Whether the log removes events that nobody trimmed."""

    def ends(self) -> list[int]:
        """Read the `end` of every partition, in one request."""

    def bounds(self, partition: int) -> OffsetBounds: ...

    def bytes_beyond(self, partition: int, offset: int) -> int:
        """Count the bytes from this offset on."""

    def hold(self, partition: int) -> Claim:
        """Try to become the only process that takes this partition into the lake."""

    def trim(self, partition: int, before: int) -> None:
        """Allow the log to remove the events before this offset."""

    def set_apart(self, partition: int) -> int:
        """Separate the present events from later ones, so that they can be deleted. Returns their
        end."""

    def forget(self, partition: int, before: int) -> bool:
        """Delete the events before an offset of `set_apart`. False where the log deletes their
        bytes only later, by its own rules."""

    def damage(self, *, look: bool = False) -> list[DamagedPart]:
        """List the parts that were set aside because they could not be read. With `look` the whole
        log is searched for damage."""

    def close(self) -> None: ...


# Errors


class LogUnwritable(Backlogged):
    """The event log cannot be written: {why}. Nothing was accepted.
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


# Settings

#: A larger block is slower to check after a crash, and no quicker to write.
_BLOCK_BYTES_MAX = 4 * MIB
#: A file of the local log before the next begins: space is given back by whole files.
FILE_BYTES_MAX = 64 * MIB


@dataclass(frozen=True, kw_only=True)
class EventLogSettings(RoomSettings):
    event_bytes_max: int = setting(
        8 * MIB,
        "the largest event",
        "Raise it when agents send larger edits or outputs.",
        minimum=1,
        at_most="body_decoded_bytes_max",
    )
    log_partitions: int = setting(
        1,
        "partitions of a new log; a local one keeps them, a topic may get more",
        "Set it before the first start to the number of writers.",
        minimum=1,
    )
    log_bytes_max: int = setting(
        8 * GIB,
        "events that wait in the local log; beyond it the answer is 503",
        "Raise it to outlast longer outages of the database or the store.",
        minimum=1,
    )
    disk_reserve_bytes: int = setting(
        256 * MIB,
        "disk kept free for the writer: below it 503",
        "Raise it when other programs fill the disk quickly.",
        minimum=0,
    )
    log_request_seconds_max: float = setting(
        10.0,
        "the longest wait for an answer from Kafka",
        "Raise it when brokers are far away or overloaded.",
        minimum=0.1,
    )

    @property
    def file_bytes_max(self) -> int:
        """Bytes of a file; less for a small log, so that it has several."""
        return min(FILE_BYTES_MAX, self.log_bytes_max // 4)

    @property
    def block_bytes_max(self) -> int:
        """Bytes of events that share one fsync and one checksum."""
        return min(_BLOCK_BYTES_MAX, self.file_bytes_max // 2)
