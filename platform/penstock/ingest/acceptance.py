"""From a decompressed body to what the log will hold of it, and what the producer is told."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from penstock.errors import BodyUnreadable
from penstock.events.bodies import split_body
from penstock.events.frames import (
    Frame,
    Header,
    RejectedLine,
    encode_frame,
    encode_rejected,
)
from penstock.events.identity import partition_of, session_key
from penstock.events.reading import Judged, Rejection, judge

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

    def accept(self, body: bytes, received_us: int, first_line: int = 1) -> Iterator["Acceptance"]:
        """A piece at a time, so that the caller may do something else in between.
        Raises BodyUnreadable when hardly anything in the body is an event."""
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
            acceptance = Acceptance(len(judged.lines), judged.rejections)
            for partition, frame in self._frames(judged, received_us):
                acceptance.values[partition].append(encode_frame(frame))
            yield acceptance

    def _frames(self, judged: Judged, received_us: int) -> Iterator[tuple[int, Frame]]:
        for partition, lines, sources in self._by_partition(judged):
            counts = {source or "": n for source, n in Counter(sources).items()}
            header = self._header("events", counts, received_us)
            yield partition, Frame(header, b"\n".join(lines))
        if judged.rejections:
            refused = [self._kept(rejection) for rejection in judged.rejections]
            counts = dict(Counter(line.source for line in refused))
            header = self._header("rejected", counts, received_us)
            yield 0, Frame(header, encode_rejected(refused))

    def _header(
        self, kind: Literal["events", "rejected"], counts: dict[str, int], received_us: int
    ) -> Header:
        return Header(kind=kind, tenant=self.tenant, received_us=received_us, counts=counts)

    def _by_partition(self, judged: Judged) -> Iterator[tuple[int, list[bytes], list[str | None]]]:
        if self.partitions == 1:
            if judged.lines:
                yield 0, judged.lines, judged.sources
            return
        places: defaultdict[int, list[int]] = defaultdict(list)
        for position, session_id in enumerate(judged.sessions):
            session = session_key(self.tenant, session_id)
            places[partition_of(session, self.partitions)].append(position)
        for partition, some in places.items():
            yield partition, [judged.lines[i] for i in some], [judged.sources[i] for i in some]

    def _kept(self, rejection: Rejection) -> RejectedLine:
        return RejectedLine(
            line=rejection.line,
            reason=rejection.reason,
            raw=rejection.raw[: self.rejected_line_bytes_max],
            source=rejection.source or "",
            truncated=len(rejection.raw) > self.rejected_line_bytes_max,
        )


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
