"""One partition's way from the log into the lake: read, plan, write, commit."""

import math
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import structlog
from sqlalchemy import Connection

from penstock.clock import Clock
from penstock.eventlog import Claim
from penstock.events.frames import Frame, encode_values
from penstock.ingest.errors import LogExpired, LogTruncated
from penstock.ingest.flush import (
    NONE,
    UNFIT,
    FlushInput,
    decode_frames,
    is_due,
    plan_flush,
    without,
)
from penstock.ingest.rejected_lines import (
    FOLDER,
    SUFFIX,
    enter_rejected,
    read_stored,
    trip_fuses,
    write_rejected,
)
from penstock.ingest.rejection_rules import (
    RejectedRow,
    RejectionFuses,
    Source,
    SourceLines,
    count_by_source,
    plan_rejections,
)
from penstock.ingest.settings import IngestSettings
from penstock.lake import commits
from penstock.lake.commits import LogShape, PartitionAdvance, PartitionClaim
from penstock.lake.duplicates import KnownEvents, NewEvents
from penstock.lake.errors import FencedOff
from penstock.lake.fresh_events import arrivals_of
from penstock.lake.lake import Lake
from penstock.lake.rows import ROW_GROUPS, DecodedEvents
from penstock.lake.segments import SegmentFile, SegmentWriter, discard, new_name
from penstock.lake.settings import LakeSettings
from penstock.metrics import Metrics
from penstock.privacy.tombstones import ErasedEvents, find_erased
from penstock.sealed_texts import SecretSeal

#: How much of the log is read at once.
_READ_BYTES = 4 * 1024 * 1024
#: How long a partition of another process is left alone.
_CLAIM_SECONDS = 0.5

log_line = structlog.get_logger()


@dataclass(frozen=True)
class WriterParts:
    """What a writer works with, and what its partitions share, so that limits hold for the process.
    `crash_point` is called at the steps of the protocol, for tests that end the process there."""

    lake: Lake
    clock: Clock
    metrics: Metrics
    crash_point: Callable[[str], None] = lambda _point: None
    owner: str = field(default_factory=lambda: uuid.uuid4().hex)

    @cached_property
    def known(self) -> KnownEvents:
        bytes_max = self.lake.settings.room(LakeSettings).known_bytes_max
        return KnownEvents(self.lake.database, self.lake.store, bytes_max=bytes_max)

    @cached_property
    def seal(self) -> SecretSeal:
        return SecretSeal.of(self.lake.settings)

    @cached_property
    def fuses(self) -> RejectionFuses:
        return RejectionFuses(self.lake.settings.room(IngestSettings).rejected_ratio_max)

    @cached_property
    def lease_s(self) -> float:
        return self.lake.settings.room(LakeSettings).lease_seconds


@dataclass
class _Buffer:
    """Frames that were read and are not committed yet."""

    position: int
    frames: list[Frame] = field(default_factory=list)
    rows: int = 0
    size: int = 0
    since_s: float = 0.0


class PartitionWriter:
    """Owns one partition while it can. Not shared between threads."""

    def __init__(self, parts: WriterParts, partition: int, log: LogShape) -> None:
        self._parts = parts
        self._partition = partition
        self._log = log
        self._known = parts.known
        self._decoder = arrivals_of(parts.lake)
        self._limits = parts.lake.settings.room(IngestSettings)
        #: The last read brought so much that there is probably more.
        self.behind = False
        #: False when the partition is another writer's share.
        self.in_share = True
        #: Whether the last try to own the partition went well.
        self.owned = False
        self._claim: PartitionClaim | None = None
        self._try_again_s = -math.inf
        self._renewed_s = 0.0
        self._covered: int | None = None
        self._buffer = _Buffer(0)

    @property
    def claimed(self) -> bool:
        return self._claim is not None

    @property
    def idle(self) -> bool:
        """Whether everything that was read is committed."""
        return not self._buffer.size

    def step(self, *, drain: bool = False, end: int | None = None) -> bool:
        """Read new values, and flush when it is time; with `drain`, as soon as there is no more
        to read. A caller that knows the `end` of the partition saves a read. Returns whether
        anything moved. After an exception call `start_over`."""
        claim = self._claim or self._try_claim()
        if claim is None:
            return False
        moved = self._read(end)
        buffer, now_s = self._buffer, self._parts.clock.elapsed_s()
        due = is_due(self._limits, buffer.rows, buffer.size, now_s - buffer.since_s)
        if due or (drain and not moved and not self.idle):
            self._flush(claim)
            return True
        if now_s - self._renewed_s > self._parts.lease_s / 3:
            self._refuse_gap()
            commits.renew_claim(self._parts.lake.database, claim, self._parts.lease_s)
            self._renewed_s = now_s
        return moved

    def start_over(self) -> None:
        """Forget what is in memory: the database says where to go on."""
        self._claim = None
        self.behind = False
        self._try_again_s = -math.inf
        self._known.forget()
        self._known.uncover(self._partition)
        self._buffer = _Buffer(0)

    def release(self) -> None:
        """Leave the partition to another writer, which reads again what is not committed."""
        if self._claim is not None:
            commits.release_claim(self._parts.lake.database, self._claim)
            self._claim = None
            self._known.uncover(self._partition)

    def report_lag(self) -> None:
        """How much of the log lies beyond the last commit. Once the partition is lost, the
        metric keeps its last value."""
        if self._covered is not None:
            lag = self._parts.lake.log.bytes_beyond(self._partition, self._covered)
            self._parts.metrics.set("log_lag_bytes", lag, partition=str(self._partition))

    def _try_claim(self) -> PartitionClaim | None:
        parts, log, number = self._parts, self._parts.lake.log, self._partition
        now_s = parts.clock.elapsed_s()
        if now_s < self._try_again_s:
            return None
        claim, held = None, log.hold(number)
        if held is Claim.MINE or (held is Claim.UNKNOWN and self.in_share):
            bounds = log.bounds(number)
            claim = commits.claim_partition(
                parts.lake.database,
                number,
                parts.owner,
                log=self._log,
                bounds=bounds,
                expires=log.expires,
                lease_s=parts.lease_s,
                sure=held is Claim.MINE,
            )
        self.owned = claim is not None
        if claim is None:
            self._try_again_s = now_s + _CLAIM_SECONDS
            return None
        if bounds.end < claim.next_offset:
            raise LogTruncated(partition=number, end=bounds.end, covered=claim.next_offset)
        self._known.forget()  # another writer may have committed since this one last did
        self._known.cover(number, self._log.partitions)
        log.trim(number, claim.next_offset)  # the last owner may not have done it
        self._go_on_from(claim)
        return claim

    def _go_on_from(self, claim: PartitionClaim) -> None:
        self._claim = claim
        self._covered = claim.next_offset
        self._renewed_s = self._parts.clock.elapsed_s()
        self._buffer = _Buffer(claim.next_offset)

    def _refuse_gap(self) -> None:
        """Raises LogExpired where the log let go of the events that come next."""
        log, position = self._parts.lake.log, self._buffer.position
        if log.expires and (first := log.bounds(self._partition).first) > position:
            raise LogExpired(partition=self._partition, first=first, covered=position)

    def _read(self, end: int | None) -> bool:
        buffer, log = self._buffer, self._parts.lake.log
        if end is not None and buffer.position >= end:
            self.behind = False
            return False
        room = self._limits.flush_bytes_max - buffer.size
        if room <= 0 or buffer.rows >= self._limits.flush_rows_max:
            return False
        bytes_max = min(room, _READ_BYTES)
        entries = log.read(self._partition, buffer.position, bytes_max)
        size = sum(len(value) for entry in entries for value in entry.values)
        self.behind = size > bytes_max / 2
        if not entries:
            return False
        if not buffer.size:
            buffer.since_s = self._parts.clock.elapsed_s()
        if entries[0].offset != buffer.position:
            self._refuse_gap()
        buffer.size += size  # strays included: the offset has to move beyond them
        strays: defaultdict[int, list[bytes]] = defaultdict(list)
        for entry in entries:
            for value in entry.values:
                for partition, frame in self._decoder.placed(value, self._partition):
                    if partition == self._partition:
                        buffer.frames.append(frame)
                        buffer.rows += sum(frame.header.counts.values())
                    else:
                        strays[partition] += encode_values(frame, log.value_bytes_max)
        if strays:
            # Only the owner of a session's partition can say whether its events are new. Events
            # that are sent on twice, after a failure, are duplicates to it.
            log.append(strays)
            self._parts.metrics.add("values_forwarded_total", sum(map(len, strays.values())))
        buffer.position = entries[-1].next_offset
        return True

    def _flush(self, claim: PartitionClaim) -> None:
        frames = self._buffer.frames
        try:
            self._store(claim, decode_frames(frames))
        except UNFIT as error:
            log_line.warning("a line cannot be stored; looking for it", why=str(error))
            self._known.forget()
            self._store(claim, decode_frames(frames, sifted_by=self._parts.lake.summariser))

    def _store(self, claim: PartitionClaim, flush: FlushInput) -> None:
        parts, metrics, started = self._parts, self._parts.metrics, time.perf_counter()
        erased = find_erased(parts.lake.database, parts.seal, flush.decoded)
        dropped = NONE
        if erased.positions:
            flush, dropped = without(flush, erased.positions)
        memories = self._known.recall(set(flush.decoded.sessions))
        fresh, counts = plan_flush(flush, memories, dropped)
        segment = self._write_segment(claim, flush.decoded, fresh) if fresh.new else None
        sources = count_by_source(flush.accepted, flush.rejected)
        change = PartitionAdvance(
            to_offset=self._buffer.position,
            segment=segment,
            counts=counts,
            consents=fresh.stricter,
            also=self._set_aside(claim, flush.rejected, sources, erased),
        )
        parts.crash_point("file written")
        try:
            claim = commits.advance(parts.lake.database, claim, change, lease_s=parts.lease_s)
        except FencedOff:
            if segment is not None:
                discard(parts.lake.store, segment.name)
            raise
        parts.crash_point("committed")
        parts.fuses.add(sources)
        self._known.settle(len(fresh.new))
        self._go_on_from(claim)
        if erased.positions:  # what may not come back does not wait in the log until it is rolled
            parts.lake.log.set_apart(self._partition)
            parts.lake.log.forget(self._partition, claim.next_offset)
        else:
            parts.lake.log.trim(self._partition, claim.next_offset)
        for key, count in counts.items():
            metrics.add("events_stored_total", count.stored, tenant=key.tenant)
            metrics.add("events_duplicate_total", count.duplicate, tenant=key.tenant)
        metrics.observe("flush_seconds", time.perf_counter() - started)
        if segment is not None:
            metrics.add("segments_written_total")
            metrics.add("segment_bytes_total", segment.bytes + segment.sessions_bytes)
            age_s = (parts.clock.now_us() - min(flush.decoded.received_us)) / 1_000_000
            metrics.observe("queryable_seconds", max(0.0, age_s))

    def _set_aside(
        self,
        claim: PartitionClaim,
        rows: Sequence[RejectedRow],
        sources: Mapping[Source, SourceLines],
        erased: ErasedEvents,
    ) -> Callable[[Connection], bool]:
        """Write rejected lines to a file; what returns enters them in the commit, unless there is
        more that was erased by now."""
        if not rows:
            return erased.settle
        database, store = self._parts.lake.database, self._parts.lake.store
        plan = plan_rejections(rows, read_stored(database, {row.tenant for row in rows}))
        trips = self._parts.fuses.trips(sources)
        name = ""
        if plan.stored:
            label = f"{claim.next_offset:016x}-{claim.epoch}"
            name = new_name(self._partition, label, FOLDER, SUFFIX)
            owner = self._parts.owner
            commits.announce_file(database, name, self._partition, owner, claim.epoch)
            write_rejected(store, name, plan)

        def enter(connection: Connection) -> bool:
            trip_fuses(connection, trips)
            enter_rejected(connection, name, plan)
            there = not name or commits.withdraw_intent(connection, name)
            return there and erased.settle(connection)

        return enter

    def _write_segment(
        self, claim: PartitionClaim, decoded: DecodedEvents, fresh: NewEvents
    ) -> SegmentFile:
        parts, partition = self._parts, self._partition
        name = new_name(partition, f"{claim.next_offset:016x}-{claim.epoch}")
        commits.announce_file(parts.lake.database, name, partition, parts.owner, claim.epoch)
        parts.crash_point("intent written")
        with SegmentWriter(parts.lake.store, name, ROW_GROUPS, parts.lake.summariser) as writer:
            for rows in decoded.to_tables(fresh.new, fresh.consents, ROW_GROUPS):
                writer.write(rows)
                parts.crash_point("file half written")
        return writer.finished
