"""An index of the log: where each tenant's events wait, so that a query need not read all."""

import threading
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.backends.eventlog.log import EventLog
from penstock.core.settings import MIB
from penstock.events.frames import tenant_of

READ_BYTES = 4 * MIB
#: Runs of all partitions, some 200 bytes each. Beyond it the log is read without an index.
_RUNS_MAX = 500_000


class Run(NamedTuple):
    """Neighbouring entries of the log with events of a tenant, up to `end`."""

    start: int
    end: int
    #: Bytes of all their values.
    size: int


@dataclass
class _PartitionIndex:
    through: int = 0
    runs: dict[str, list[Run]] = field(default_factory=dict)
    count: int = 0
    #: The index begins here.
    known_from: int = 0


class WaitingIndex:
    """The index of one process. Safe to share between threads."""

    def __init__(self, runs_max: int = _RUNS_MAX) -> None:
        self._runs_max = runs_max
        self._partitions: dict[int, _PartitionIndex] = {}
        self._lock = threading.Lock()

    def runs(
        self, log: EventLog, partition: int, tenant: str, *, covered: int, unread_max: int
    ) -> tuple[list[Run], int] | None:
        """Find where the tenant's events wait, and how many bytes were read to know it.

        At about `unread_max` bytes the search stops, and not all is known. None where too much
        waits, or where the index has forgotten this place for a later pin."""
        with self._lock:
            index = self._partitions.setdefault(partition, _PartitionIndex())
            if covered < index.known_from:
                return None
            self._forget(index, covered)
            looked = self._extend(index, log, partition, unread_max)
            if sum(each.count for each in self._partitions.values()) > self._runs_max:
                blind = _PartitionIndex(index.through, known_from=index.through)
                self._partitions[partition] = blind
                return None
            return list(index.runs.get(tenant, ())), looked

    def _extend(self, index: _PartitionIndex, log: EventLog, partition: int, left: int) -> int:
        looked = 0
        while looked < left and (entries := log.read(partition, index.through, READ_BYTES)):
            for entry in entries:
                size = sum(map(len, entry.values))
                looked += size
                for tenant in {tenant_of(value) for value in entry.values}:
                    own = index.runs.setdefault(tenant, [])
                    if own and own[-1].end == entry.offset:
                        own[-1] = Run(own[-1].start, entry.next_offset, own[-1].size + size)
                    else:
                        own.append(Run(entry.offset, entry.next_offset, size))
                        index.count += 1
            index.through = entries[-1].next_offset
            if index.count > self._runs_max:
                break
        return looked

    @staticmethod
    def _forget(index: _PartitionIndex, covered: int) -> None:
        if covered <= index.known_from:
            return
        index.known_from = covered
        index.through = max(index.through, covered)
        left = {
            tenant: kept
            for tenant, runs in index.runs.items()
            if (kept := [run for run in runs if run.end > covered])
        }
        index.runs, index.count = left, sum(map(len, left.values()))
