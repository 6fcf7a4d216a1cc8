"""What a value of the log holds, whoever wrote it: the gateway, or a producer past it."""

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.events.bodies import split_body
from penstock.events.envelope import SCHEMA_VERSION
from penstock.events.frames import Frame, decode_frame
from penstock.events.packing import Packer, Placed, place_again
from penstock.events.reading import Judged, Rejection, judge

_CHUNK_BYTES = 1024 * 1024


@dataclass(frozen=True)
class Arrivals:
    """Reads the values of a log of so many partitions."""

    partitions: int
    event_bytes_max: int
    rejected_line_bytes_max: int

    def placed(self, value: bytes, partition: int) -> Iterator[Placed]:
        """The judged frames of a value that was found in `partition`, each with the partition
        that its sessions belong to."""
        frame = decode_frame(value)
        if frame.header.kind == "unjudged":
            yield from self._judge(frame)
        elif frame.header.kind == "rejected" or frame.header.partitions == self.partitions:
            yield partition, frame
        else:
            yield from place_again(frame, self.partitions)

    def frames(self, value: bytes) -> Iterator[Frame]:
        """The same for a reader to whom partitions do not matter."""
        frame = decode_frame(value)
        if frame.header.kind == "unjudged":
            yield from (judged for _, judged in self._judge(frame))
        else:
            yield frame

    def _judge(self, frame: Frame) -> Iterator[Placed]:
        header = frame.header
        packer = Packer(
            header.tenant, header.received_us, self.partitions, self.rejected_line_bytes_max
        )
        if header.schema_version > SCHEMA_VERSION:
            known = f"this Penstock knows those up to {SCHEMA_VERSION}"
            reason = f"its schema version is {header.schema_version}, {known}"
            yield from packer.pack(_refused(frame.body, reason))
            return
        for number, lines in split_body(frame.body, _CHUNK_BYTES):
            yield from packer.pack(judge(lines, number, self.event_bytes_max))


def _refused(body: bytes, reason: str) -> Judged:
    return Judged([], [], [], [Rejection(1, reason, body, None)])
