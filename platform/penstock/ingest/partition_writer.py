"""One partition's way from the log into the lake: gather, plan, write, commit."""

import math
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from penstock.clock import Clock
from penstock.database.engine import Database
from penstock.eventlog import Bounds, EventLog, Held
from penstock.events.frames import Frame
from penstock.events.packing import encode_within
from penstock.ingest.errors import LogExpired, LogTruncated
from penstock.ingest.flush import Flush, FlushLimits, Gathered, gather, plan
from penstock.ingest.rejection_limit import RejectionLimit
from penstock.ingest.settings import IngestSettings
from penstock.ingest.sieve import UNFIT, Sieve
from penstock.lake import commit, partitions
from penstock.lake.commit import Advance
from penstock.lake.duplicates import KnownEvents
from penstock.lake.errors import FencedOff
from penstock.lake.fresh_events import arrivals_of
from penstock.lake.partitions import Claim, LogState
from penstock.lake.rows import ROW_GROUP_BYTES_MAX, RowGroupLimits
from penstock.lake.segments import SegmentFile, SegmentWriter, discard, new_name
from penstock.lake.settings import LakeSettings
from penstock.lake.summary import Summariser
from penstock.metrics import Metrics
from penstock.settings import Settings
from penstock.storage import ObjectStore

#: How much of the log is read at once.
_READ_BYTES = 4 * 1024 * 1024
#: How long a partition that another process has is left alone.
_CLAIM_SECONDS = 0.5

log_line = structlog.get_logger()


@dataclass(frozen=True)
class Parts:
    """What a writer works with. `crash_point` is told where in the protocol it is, for tests
    that end the process there."""

    settings: Settings
    database: Database
    store: ObjectStore
    log: EventLog
    clock: Clock
    metrics: Metrics
    summariser: Summariser
    crash_point: Callable[[str], None] = lambda _point: None


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

    def __init__(
        self,
        parts: Parts,
        partition: int,
        log: LogState,
        *,
        owner: str,
        known: KnownEvents,
        rejections: RejectionLimit,
    ) -> None:
        self._parts = parts
        self._partition = partition
        self._log = log
        self._arrivals = arrivals_of(log.partitions, parts.settings)
        self._owner = owner
        self._known = known
        self._rejections = rejections
        settings = parts.settings
        self._limits = FlushLimits(
            settings.room(IngestSettings).flush_rows_max,
            settings.room(IngestSettings).flush_bytes_max,
            settings.room(IngestSettings).flush_seconds_max,
        )
        self._groups = RowGroupLimits(
            settings.room(LakeSettings).row_group_rows_max, ROW_GROUP_BYTES_MAX
        )
        #: The last look found so much that there is probably more.
        self.behind = False
        #: False when the partition is another writer's share.
        self.wanted = True
        self._claim: Claim | None = None
        self._owned = False
        self._try_again_s = -math.inf
        self._renewed_s = 0.0
        self._covered: int | None = None
        self._buffer = _Buffer(0)

    @property
    def owned(self) -> bool:
        """Whether the last try to own the partition went well."""
        return self._owned

    @property
    def claimed(self) -> bool:
        return self._claim is not None

    @property
    def idle(self) -> bool:
        """Nothing read waits for a commit."""
        return not self._buffer.size

    def step(self, *, drain: bool = False, end: int | None = None) -> bool:
        """Read what there is, of a partition that is known to go to `end`, and flush when it is
        time; with `drain`, as soon as there is no more to read. Whether anything moved. After an
        exception call `start_over`."""
        claim = self._claim or self._try_claim()
        if claim is None:
            return False
        read = self._read(end)
        age_s = self._parts.clock.elapsed_s() - self._buffer.since_s
        if self._limits.reached(self._buffer.rows, self._buffer.size, age_s) or (
            drain and not read and not self.idle
        ):
            self._flush(claim)
            return True
        self._renew_when_due(claim)
        return read

    def start_over(self) -> None:
        """Believe nothing that is in memory: the database says where to go on."""
        self._claim = None
        self.behind = False
        self._try_again_s = -math.inf
        self._known.forget()
        self._known.uncover(self._partition)
        self._buffer = _Buffer(0)

    def release(self) -> None:
        """Let another have it; what was read and not committed is for the other to read."""
        if self._claim is not None:
            partitions.release_claim(self._parts.database, self._claim)
            self._claim = None
            self._known.uncover(self._partition)

    def tell_lag(self) -> None:
        """How much of the log lies beyond what is committed. What was known last stays when the
        partition is lost."""
        if self._covered is not None:
            lag = self._parts.log.bytes_beyond(self._partition, self._covered)
            self._parts.metrics.set("log_lag_bytes", lag, partition=str(self._partition))

    def _try_claim(self) -> Claim | None:
        now_s = self._parts.clock.elapsed_s()
        if now_s < self._try_again_s:
            return None
        claim = self._claim_now()
        self._owned = claim is not None
        if claim is None:
            self._try_again_s = now_s + _CLAIM_SECONDS
        return claim

    def _claim_now(self) -> Claim | None:
        parts = self._parts
        held = parts.log.hold(self._partition)
        if held is Held.TAKEN or (held is Held.UNKNOWN and not self.wanted):
            return None
        bounds = parts.log.bounds(self._partition)
        claim = partitions.claim_partition(
            parts.database,
            self._partition,
            self._owner,
            log=self._log,
            bounds=bounds,
            expires=parts.log.expires,
            lease_s=parts.settings.room(LakeSettings).lease_seconds,
            sure=held is Held.MINE,
        )
        if claim is not None:
            self._begin(claim, bounds)
        return claim

    def _begin(self, claim: Claim, bounds: Bounds) -> None:
        if bounds.end < claim.next_offset:
            raise LogTruncated(partition=self._partition, end=bounds.end, covered=claim.next_offset)
        self._known.forget()  # another may have committed since this one last did
        self._known.cover(self._partition, self._log.partitions)
        self._parts.log.trim(self._partition, claim.next_offset)  # it may have died before it could
        self._take(claim)

    def _take(self, claim: Claim) -> None:
        self._claim = claim
        self._covered = claim.next_offset
        self._renewed_s = self._parts.clock.elapsed_s()
        self._buffer = _Buffer(claim.next_offset)

    def _renew_when_due(self, claim: Claim) -> None:
        now_s = self._parts.clock.elapsed_s()
        if now_s - self._renewed_s > self._parts.settings.room(LakeSettings).lease_seconds / 3:
            self._refuse_gap()
            partitions.renew_claim(
                self._parts.database, claim, self._parts.settings.room(LakeSettings).lease_seconds
            )
            self._renewed_s = now_s

    def _refuse_gap(self) -> None:
        """Raises LogExpired where the log let go of what was to be read next."""
        log, position = self._parts.log, self._buffer.position
        if log.expires and (first := log.bounds(self._partition).first) > position:
            raise LogExpired(partition=self._partition, first=first, covered=position)

    def _read(self, end: int | None) -> bool:
        buffer = self._buffer
        if end is not None and buffer.position >= end:
            self.behind = False
            return False
        room = self._limits.bytes_max - buffer.size
        if room <= 0 or buffer.rows >= self._limits.rows_max:
            return False
        bytes_max = min(room, _READ_BYTES)
        entries = self._parts.log.read(self._partition, buffer.position, bytes_max)
        size = sum(len(value) for entry in entries for value in entry.values)
        self.behind = size > bytes_max / 2
        if not entries:
            return False
        if not buffer.size:
            buffer.since_s = self._parts.clock.elapsed_s()
        if entries[0].offset != buffer.position:
            self._refuse_gap()
        strays: defaultdict[int, list[bytes]] = defaultdict(list)
        for entry in entries:
            for value in entry.values:
                self._take_in(value, strays)
        self._forward(strays)
        buffer.position = entries[-1].next_offset
        return True

    def _take_in(self, value: bytes, strays: dict[int, list[bytes]]) -> None:
        self._buffer.size += len(value)  # also where it is a stray: the offset has to move on
        for partition, frame in self._arrivals.placed(value, self._partition):
            if partition == self._partition:
                self._buffer.frames.append(frame)
                self._buffer.rows += sum(frame.header.counts.values())
            else:
                strays[partition] += encode_within(frame, self._parts.log.value_bytes_max)

    def _forward(self, strays: dict[int, list[bytes]]) -> None:
        """Send events on to the partition of their session: its owner alone can tell whether
        they are new. Those sent on twice, after a failure, it takes for what they are."""
        if strays:
            self._parts.log.append(strays)
            self._parts.metrics.add("values_forwarded_total", sum(map(len, strays.values())))

    def _flush(self, claim: Claim) -> None:
        try:
            self._store(claim, gather(self._buffer.frames))
        except UNFIT as error:
            log_line.warning("a line cannot be stored; looking for it", why=str(error))
            self._known.forget()
            self._store(claim, gather(self._buffer.frames, Sieve(self._parts.summariser)))

    def _store(self, claim: Claim, gathered: Gathered) -> None:
        started = time.perf_counter()
        reason = gathered.rejected[-1].reason if gathered.rejected else ""
        self._rejections.check(gathered.seen, len(gathered.rejected), reason)
        flush = plan(gathered, self._known.recall(set(gathered.decoded.sessions)))
        segment = self._write_segment(claim, gathered, flush) if flush.told.new else None
        change = Advance(
            to_offset=self._buffer.position,
            segment=segment,
            counts=flush.counts,
            rejected=gathered.rejected,
            consents=flush.told.stricter,
        )
        self._parts.crash_point("file written")
        moved = self._commit(claim, change)
        self._parts.crash_point("committed")
        self._rejections.add(gathered.seen, len(gathered.rejected))
        self._known.settle(len(flush.told.new))
        self._take(moved)
        self._parts.log.trim(self._partition, moved.next_offset)
        self._report(gathered, flush, segment, time.perf_counter() - started)

    def _commit(self, claim: Claim, change: Advance) -> Claim:
        lease_s = self._parts.settings.room(LakeSettings).lease_seconds
        try:
            return commit.advance(self._parts.database, claim, change, lease_s=lease_s)
        except FencedOff:
            if change.segment is not None:
                discard(self._parts.store, change.segment.name)
            raise

    def _write_segment(self, claim: Claim, gathered: Gathered, flush: Flush) -> SegmentFile:
        parts = self._parts
        name = new_name(self._partition, f"{claim.next_offset:016x}-{claim.epoch}")
        commit.announce(parts.database, name, self._partition, self._owner, claim.epoch)
        parts.crash_point("intent written")
        writer = SegmentWriter(parts.store, name, self._groups, parts.summariser)
        with writer:
            for rows in gathered.decoded.to_tables(
                flush.told.new, flush.told.consents, self._groups
            ):
                writer.write(rows)
                parts.crash_point("file half written")
        return writer.finished

    def _report(
        self, gathered: Gathered, flush: Flush, segment: SegmentFile | None, seconds: float
    ) -> None:
        metrics = self._parts.metrics
        for key, counts in flush.counts.items():
            metrics.add("events_stored_total", counts.stored, tenant=key.tenant)
            metrics.add("events_duplicate_total", counts.duplicate, tenant=key.tenant)
        metrics.observe("flush_seconds", seconds)
        if segment is not None:
            metrics.add("segments_written_total")
            metrics.add("segment_bytes_total", segment.bytes + segment.sessions_bytes)
            oldest_us = min(gathered.decoded.received_us)
            age_s = (self._parts.clock.now_us() - oldest_us) / 1_000_000
            metrics.observe("queryable_seconds", max(0.0, age_s))
