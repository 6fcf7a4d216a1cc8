"""What a value of the log holds, whoever wrote it: the gateway, or a producer past it.

Nothing here raises because of what a value holds: what is no event is refused with a reason, as
the gateway would have.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.events.bodies import split_body
from penstock.events.envelope import SCHEMA_VERSION
from penstock.events.frames import Frame, Header, decode_frame, encode_frame
from penstock.events.packing import Packer, Placed, place_again
from penstock.events.reading import Judged, Rejection, judge
from penstock.events.tenants import TENANT_DEFAULT, is_tenant

_CHUNK_BYTES = 1024 * 1024


def encode_unjudged(lines: bytes, tenant: str, received_us: int, schema_version: int) -> bytes:
    """Lines as a producer wrote them past the gateway, as a value of the log."""
    header = Header(
        kind="unjudged",
        tenant=tenant,
        received_us=received_us,
        counts={},
        schema_version=schema_version,
    )
    return encode_frame(Frame(header, lines))


@dataclass(frozen=True)
class Arrivals:
    """Reads the values of a log of so many partitions."""

    partitions: int
    event_bytes_max: int
    rejected_line_bytes_max: int

    def placed(self, value: bytes, partition: int) -> Iterator[Placed]:
        """The judged frames of a value that was found in `partition`, each with the partition
        that its sessions belong to."""
        frame = _decode(value)
        if frame.header.kind == "unjudged":
            yield from self._judge(frame)
        elif frame.header.kind == "rejected" or frame.header.partitions == self.partitions:
            yield partition, frame
        else:
            yield from place_again(frame, partition, self.partitions)

    def frames(self, value: bytes) -> Iterator[Frame]:
        """The same for a reader to whom partitions do not matter."""
        frame = _decode(value)
        if frame.header.kind == "unjudged":
            yield from (judged for _, judged in self._judge(frame))
        else:
            yield frame

    def _judge(self, frame: Frame) -> Iterator[Placed]:
        header = frame.header
        known = is_tenant(header.tenant)
        packer = Packer(
            header.tenant if known else TENANT_DEFAULT,
            header.received_us,
            self.partitions,
            self.rejected_line_bytes_max,
        )
        if not known:
            yield from packer.pack(_refused(frame.body, "its tenant is empty, long or unprintable"))
        elif header.schema_version > SCHEMA_VERSION:
            reason = (
                f"its schema version is {header.schema_version}, "
                f"this Penstock knows those up to {SCHEMA_VERSION}"
            )
            yield from packer.pack(_refused(frame.body, reason))
        else:
            for number, lines in split_body(frame.body, _CHUNK_BYTES):
                yield from packer.pack(judge(lines, number, self.event_bytes_max))


def _decode(value: bytes) -> Frame:
    """What is no frame, or names no tenant, comes back as lines to be judged: they are refused."""
    try:
        frame = decode_frame(value)
    except ValueError:
        frame = decode_frame(encode_unjudged(value, TENANT_DEFAULT, 0, SCHEMA_VERSION))
    if not is_tenant(frame.header.tenant):
        frame.header.kind = "unjudged"
    return frame


def _refused(body: bytes, reason: str) -> Judged:
    return Judged([], [], [], [Rejection(1, reason, body, None)])
