"""From a decompressed body to what the log will hold of it, and what the producer is told."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Self

from penstock.eventlog import EventLog
from penstock.eventlog.settings import EventLogSettings
from penstock.events.bodies import split_body
from penstock.events.packing import HEADER_BYTES_MAX, REJECTED_LINE_BYTES_MAX, Packer, encode_within
from penstock.events.reading import Judged, Rejection, judge
from penstock.ingest.errors import BodyUnreadable
from penstock.settings import Settings

#: Lines are judged in pieces of this size: other requests get their turn in between.
CHUNK_BYTES = 256 * 1024
#: A body with more lines that are no events is something else: kept one by one, and listed in
#: the answer, they would take many times its size.
REJECTED_LINES_MAX = 100_000


@dataclass(frozen=True)
class Acceptor:
    """How bodies of one tenant become values of the log."""

    tenant: str
    partitions: int
    event_bytes_max: int
    rejected_line_bytes_max: int
    value_bytes_max: int

    @classmethod
    def of(cls, tenant: str, settings: Settings, log: EventLog) -> Self:
        """For bodies that go to this log, as it is now."""
        room = log.value_bytes_max - HEADER_BYTES_MAX
        return cls(
            tenant=tenant,
            partitions=log.partitions,
            event_bytes_max=min(settings.room(EventLogSettings).event_bytes_max, room),
            # What is refused is kept as JSON, where it takes more room.
            rejected_line_bytes_max=min(REJECTED_LINE_BYTES_MAX, room // 2),
            value_bytes_max=log.value_bytes_max,
        )

    def accept(self, body: bytes, received_us: int, first_line: int = 1) -> Iterator["Acceptance"]:
        """A piece at a time, so that the caller may do something else in between.
        Raises BodyUnreadable when hardly anything in the body is an event."""
        packer = Packer(self.tenant, received_us, self.partitions, self.rejected_line_bytes_max)
        rejected = 0
        for number, lines in split_body(body, CHUNK_BYTES, first_line):
            judged = judge(lines, number, self.event_bytes_max)
            rejected += len(judged.rejections)
            if rejected > REJECTED_LINES_MAX:
                last = judged.rejections[-1]
                raise BodyUnreadable(
                    why=f"more than {REJECTED_LINES_MAX} of its lines are no events; "
                    f"line {last.line}: {last.reason}"
                )
            yield self._packed(packer, judged)

    def _packed(self, packer: Packer, judged: Judged) -> "Acceptance":
        acceptance = Acceptance(len(judged.lines), judged.rejections)
        for partition, frame in packer.pack(judged):
            acceptance.values[partition] += encode_within(frame, self.value_bytes_max)
        return acceptance


@dataclass
class Acceptance:
    """What came of a piece of a body, or, summed up, of the whole."""

    accepted: int = 0
    rejections: list[Rejection] = field(default_factory=list)
    values: defaultdict[int, list[bytes]] = field(default_factory=lambda: defaultdict(list))

    def add(self, other: "Acceptance") -> None:
        self.accepted += other.accepted
        self.rejections += other.rejections
        for partition, values in other.values.items():
            self.values[partition] += values

    def answer(self) -> dict[str, Any]:
        """The body of the answer to the producer."""
        rejected = [{"line": one.line, "error": one.reason} for one in self.rejections]
        return {"accepted": self.accepted, "rejected": rejected}
