"""The event log: append-only and partitioned."""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple, Protocol


class Entry(NamedTuple):
    """Values that became durable together. The next entry begins at `next_offset`."""

    offset: int
    next_offset: int
    values: list[bytes]


class OffsetBounds(NamedTuple):
    """The offsets of a partition: from `first` up to, but without, `end`."""

    first: int
    end: int


class Claim(Enum):
    """Who takes the events of a partition into the lake, as far as the log itself knows."""

    MINE = "this process does, and no other one can until it ends"
    TAKEN = "another process does"
    UNKNOWN = "the log cannot tell: the lease in the database decides"


class EventLog(Protocol):
    """Append-only and partitioned. Offsets of a partition only grow, but are not consecutive."""

    @property
    def id(self) -> str:
        """Names this log while it exists; a new log under the same address has another id."""

    @property
    def partitions(self) -> int:
        """How many there were when this process last looked; they never become fewer."""

    def refresh(self) -> None:
        """Look for new partitions, which whoever has to see every acknowledged event does first."""

    @property
    def value_bytes_max(self) -> int:
        """A larger value cannot be appended."""

    def append(self, values: Mapping[int, Sequence[bytes]]) -> None:
        """Append durably. Raises Backlogged or LogUnwritable: some may be there then; try again."""

    def read(self, partition: int, offset: int, bytes_max: int, wait_s: float = 0) -> list[Entry]:
        """Durable entries from `offset`, or from the first one, on: about `bytes_max`, or at least
        one. Waits up to `wait_s` for it."""

    @property
    def expires(self) -> bool:
        """Whether the log removes events that nobody trimmed."""

    def ends(self) -> list[int]:
        """The `end` of every partition, in one request."""

    def bounds(self, partition: int) -> OffsetBounds: ...

    def bytes_beyond(self, partition: int, offset: int) -> int:
        """The number of bytes from this offset on."""

    def hold(self, partition: int) -> Claim:
        """Try to become the only process that takes this partition into the lake."""

    def trim(self, partition: int, before: int) -> None:
        """The log may remove the events before this offset."""

    def set_apart(self, partition: int) -> int:
        """Keep what is there now apart from what comes, so that it can be deleted; its end."""

    def forget(self, partition: int, before: int) -> bool:
        """Delete the events before this offset, which was set apart. False where their bytes go
        only later, by the log's own rules."""

    def close(self) -> None: ...
