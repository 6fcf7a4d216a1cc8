"""The way of one partition from the log into the lake: read, plan, write, commit."""

import math
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice, takewhile

import structlog
from sqlalchemy import Connection

from penstock.access.privacy.tombstones import find_erased
from penstock.backends.eventlog.log import Claim
from penstock.core.clock import Clock
from penstock.core.errors import PenstockError
from penstock.core.lake_keys import SecretSeal
from penstock.core.metrics import Metrics
from penstock.events.frames import Frame, encode_values
from penstock.events.redaction import SourceRule
from penstock.ingest.flush import (
    UNFIT,
    FlushInput,
    Waiting,
    choose_due,
    choose_oldest,
    decode_frames,
    fills,
)
from penstock.ingest.masked_sessions import drop_token_ids
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
from penstock.lake import FencedOff, LakeSettings, commits
from penstock.lake.catalog import announce, read_next_offsets, withdraw_intents
from penstock.lake.commits import CoveredSegment, LogShape, PartitionAdvance, PartitionClaim
from penstock.lake.duplicates import KnownEvents, NewEvents
from penstock.lake.lake import Lake
from penstock.lake.query.fresh_events import frame_decoder
from penstock.lake.rows import ROW_GROUPS, DecodedEvents
from penstock.lake.segments import SegmentWriter, discard, new_name
from penstock.lake.upkeep.verification import VerificationFinding

_READ_BYTES = 1024 * 1024
#: The pause before another attempt to claim a partition that another process holds.
_CLAIM_RETRY_SECONDS = 0.5

log_line = structlog.get_logger()


class LogTruncated(PenstockError):
    """Partition {partition} of the event log ends at {end}, but the lake covers it up to {covered}:
    the log was truncated or replaced by an older one. Restore it, or move the log directory away to
    start a new log."""


def refuse_truncated_log(lake: Lake) -> None:
    """Raise LogTruncated where new events would take the places of others that the lake covers, and
    be acknowledged but never stored."""
    lake.log.mend()
    with lake.database.read() as connection:
        partitions = read_next_offsets(connection)
    for number, covered in partitions.items():
        most = max(covered.next_offset, *covered.ahead.values(), 0)
        if covered.log_id == lake.log.id and (end := lake.log.bounds(number).end) < most:
            raise LogTruncated(partition=number, end=end, covered=most)


def find_truncated_log(lake: Lake) -> Iterator[VerificationFinding]:
    try:
        refuse_truncated_log(lake)
    except LogTruncated as error:
        yield VerificationFinding("the event log", str(error))


class LogExpired(PenstockError):
    """Partition {partition} of the event log now begins at {first}, but the lake covers it only up
    to {covered}: the log's retention overtook the writer. The events between are lost; the ledger
    shows the gap. Give the topic a longer retention, or start more writers."""


@dataclass(frozen=True)
class WriterParts:
    """Parts shared by the partitions of a writer, so that limits hold for the process.

    `crash_point` is called at the steps of the protocol; tests end the process there."""

    lake: Lake
    clock: Clock
    metrics: Metrics
    crash_point: Callable[[str], None] = lambda _point: None
    owner: str = field(default_factory=lambda: uuid.uuid4().hex)

    @cached_property
    def known(self) -> KnownEvents:
        bytes_max = self.lake.settings.room(LakeSettings).known_bytes_max
        return KnownEvents(self.lake, bytes_max=bytes_max)

    @cached_property
    def seal(self) -> SecretSeal:
        return SecretSeal.of(self.lake.settings)

    @cached_property
    def fuses(self) -> RejectionFuses:
        return RejectionFuses(self.lake.settings.room(IngestSettings).rejected_ratio_max)

    @cached_property
    def lease_s(self) -> float:
        return self.lake.settings.room(LakeSettings).lease_seconds


class PartitionWriter:
    """Takes one partition into the lake while it holds the claim. Not thread-safe."""

    def __init__(self, parts: WriterParts, partition: int, log: LogShape) -> None:
        self._parts = parts
        self._partition = partition
        self._log = log
        self._known = parts.known
        self._decoder = frame_decoder(parts.lake, log.partitions, self._count_redactions)
        self._limits = parts.lake.settings.room(IngestSettings)
        #: Whether there is probably more to read.
        self.behind = False
        #: False when the partition is another writer's share.
        self.in_share = True
        #: Whether the last attempt to own the partition succeeded.
        self.owned = False
        self._claim: PartitionClaim | None = None
        self._try_again_s = -math.inf
        self._renewed_s = 0.0
        self._covered: int | None = None
        #: Frames up to the position that are not committed yet.
        self._waiting = Waiting()
        #: Announced names of the next segments, by tenant.
        self._next_names: dict[str, str] = {}
        self._position = 0
        self._moved_s = 0.0

    def _count_redactions(self, tenant: str, matches: Mapping[SourceRule, int]) -> None:
        """Count redactions in lines that no gateway counted: a gateway counts its own."""
        if matches:
            now_us = self._parts.clock.now_us()
            self._parts.lake.redaction_tally.count(tenant, now_us, matches)

    @property
    def claimed(self) -> bool:
        return self._claim is not None

    @property
    def idle(self) -> bool:
        """Whether everything that was read is committed."""
        return self._claim is None or self._position == self._claim.next_offset

    def step(self, *, drain: bool = False, hurried: bool = False, end: int | None = None) -> bool:
        """Read new values, and flush when due.

        `drain` flushes once there is no more to read, `hurried` even before."""
        claim = self._claim or self._try_claim()
        if claim is None:
            return False
        moved = self._read(claim, end)
        now_s = self._parts.clock.elapsed_s()
        due = choose_due(self._waiting, self._limits, now_s, self._log.partitions)
        at_once = hurried or (drain and not moved)
        if at_once and not due:
            due = choose_oldest(self._waiting, self._limits, self._waiting.tenants)
        if not due and fills(self._waiting, self._limits):
            self._waiting.free_memory()
        # Where nothing waits, the committed offset must still move only_offset what was read.
        timely = at_once or now_s - self._moved_s >= self._limits.flush_seconds_max
        only_offset = timely and not self._waiting.tenants
        if due or (only_offset and not self.idle):
            self._flush(claim, due)
            return True
        if now_s - self._renewed_s > self._parts.lease_s / 3:
            self._refuse_gap()
            commits.renew_claim(self._parts.lake.database, claim, self._parts.lease_s)
            self._renewed_s = now_s
        return moved

    def start_over(self) -> None:
        """Forget what is in memory; the database says where to resume."""
        self._claim = None
        self.behind = False
        self._try_again_s = -math.inf
        self._known.forget()
        self._known.uncover(self._partition)
        self._waiting, self._next_names = Waiting(), {}

    def release(self) -> None:
        """Leave the partition to another writer, which reads uncommitted values again."""
        if self._claim is not None:
            unused = list(self._next_names.values())
            commits.release_claim(self._parts.lake.database, self._claim, unused)
            self._claim, self._next_names = None, {}
            self._known.uncover(self._partition)

    def report_lag(self) -> None:
        """Measure the log beyond the last commit; a lost partition keeps its last value."""
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
            self._try_again_s = now_s + _CLAIM_RETRY_SECONDS
            return None
        refuse_truncated_log(parts.lake)
        self._known.forget()  # another writer may have committed meanwhile
        self._known.cover(number, self._log.partitions)
        log.trim(number, claim.next_offset)  # the last owner may not have done it
        self._go_on_with(claim)
        self._waiting, self._position = Waiting(), claim.next_offset
        return claim

    def _go_on_with(self, claim: PartitionClaim) -> None:
        self._claim = claim
        self._covered = claim.next_offset
        self._renewed_s = self._parts.clock.elapsed_s()

    def _refuse_gap(self) -> None:
        log, position = self._parts.lake.log, self._position
        if log.expires and (first := log.bounds(self._partition).first) > position:
            raise LogExpired(partition=self._partition, first=first, covered=position)

    def _read(self, claim: PartitionClaim, end: int | None) -> bool:
        waiting, log = self._waiting, self._parts.lake.log
        if end is not None and self._position >= end:
            self.behind = False
            return False
        if fills(waiting, self._limits):
            return False
        bytes_max = min(self._limits.flush_bytes_max - waiting.size, _READ_BYTES)
        entries = log.read(self._partition, self._position, bytes_max)
        size = sum(len(value) for entry in entries for value in entry.values)
        self.behind = size > bytes_max / 2
        if not entries:
            return False
        if entries[0].offset != self._position:
            self._refuse_gap()
        self._moved_s = now_s = self._parts.clock.elapsed_s()
        strays: defaultdict[int, list[bytes]] = defaultdict(list)
        for entry in entries:
            for value in entry.values:
                for partition, frame in self._decoder.placed(value, self._partition):
                    if entry.offset < claim.ahead.get(frame.header.tenant, 0):
                        continue  # stored or forwarded before this writer began to read here
                    if partition == self._partition:
                        waiting.add(frame, entry.offset, now_s)
                    else:
                        strays[partition] += encode_values(frame, log.value_bytes_max)
            waiting.read += sum(map(len, entry.values))
        if strays:
            # Only the owner of a session's partition knows which of its events are new. Events
            # forwarded twice, after a failure, are duplicates there.
            log.append(strays)
            self._parts.metrics.add("values_forwarded_total", sum(map(len, strays.values())))
        self._position = entries[-1].next_offset
        return True

    def _flush(self, claim: PartitionClaim, tenants: Sequence[str]) -> None:
        frames = self._frames_of(tenants)
        try:
            self._store(claim, tenants, decode_frames(frames))
        except UNFIT as error:
            log_line.warning("a line cannot be stored; looking for it", why=str(error))
            self._known.forget()
            self._store(claim, tenants, decode_frames(frames, sift=True))

    def _frames_of(self, tenants: Sequence[str]) -> list[Frame]:
        """Frames from memory, or read again. Raises LogExpired."""
        waiting = [self._waiting.tenants[tenant] for tenant in tenants]
        frames = [frame for of_tenant in waiting for frame in of_tenant.frames]
        let_go = {tenant: of for tenant, of in zip(tenants, waiting, strict=True) if of.let_go}
        if not let_go:
            return frames
        first = offset = min(of_tenant.offset for of_tenant in let_go.values())
        log, rows_left = self._parts.lake.log, sum(of_tenant.rows for of_tenant in let_go.values())
        while offset < self._position:
            entries = log.read(self._partition, offset, _READ_BYTES)
            for entry in takewhile(lambda entry: entry.offset < self._position, entries):
                for value in entry.values:
                    for partition, frame in self._decoder.placed(value, self._partition):
                        of = let_go.get(frame.header.tenant)
                        mine = of is not None and entry.offset >= of.offset
                        if mine and partition == self._partition:
                            frames.append(frame)
                            rows_left -= sum(frame.header.counts.values())
            offset = entries[-1].next_offset if entries else self._position
        if rows_left:
            kept = log.bounds(self._partition).first
            raise LogExpired(partition=self._partition, first=kept, covered=first)
        return frames

    def _store(self, claim: PartitionClaim, tenants: Sequence[str], flush: FlushInput) -> None:
        parts, metrics, started = self._parts, self._parts.metrics, time.perf_counter()
        lines = [(row.tenant, row.raw) for row in flush.rejected]
        erased = find_erased(parts.lake.database, parts.seal, flush.decoded, lines)
        flush.empty_erased(erased.lines)
        sources = count_by_source(flush.counts, flush.rejected)
        if erased.positions:
            flush.drop_erased(erased.positions)
        memories = self._known.recall(set(flush.decoded.sessions))
        masked = drop_token_ids(parts.lake.database, flush.decoded, flush.signs)
        fresh = flush.find_new(memories)

        segments = self._write_segments(claim, flush.decoded, fresh)
        names: dict[str, str] = {}

        def confirm(connection: Connection) -> bool:
            masked.save(connection)
            withdraw_intents(connection, list(self._next_names.values()))
            # The next flush needs no commit before its files, if it is of these tenants again.
            again = [segment.file.tenant for segment in segments]
            names.update(self._announce(connection, claim, again))
            return erased.is_current(connection)

        to_offset = self._covered_after(tenants)
        change = PartitionAdvance(
            to_offset=to_offset,
            segments=segments,
            ahead=dict.fromkeys(tenants, self._position) if to_offset < self._position else {},
            counts=flush.counts,
            consents=fresh.stricter,
            oldest_us=min(flush.decoded.received_us) if segments else None,
            also=self._set_aside(claim, flush.rejected, sources, confirm),
        )
        parts.crash_point("file written")
        parts.lake.log.secure(self._partition, self._position)
        try:
            claim = commits.advance(parts.lake.database, claim, change, lease_s=parts.lease_s)
        except FencedOff:
            for segment in segments:
                discard(parts.lake.store, segment.file.name)
            raise
        self._next_names = names
        parts.crash_point("committed")
        parts.fuses.add(sources)
        if masked.calls:
            metrics.add("redactions_total", masked.calls, rule="token_ids")
        self._known.committed(len(fresh.new))
        self._waiting.remove(tenants)
        self._go_on_with(claim)
        if erased.positions or masked.calls:
            parts.lake.log.set_apart(self._partition)
            parts.lake.log.forget(self._partition, claim.next_offset)
        else:
            parts.lake.log.trim(self._partition, claim.next_offset)
        for key, count in flush.counts.items():
            metrics.add("events_stored_total", count.stored, tenant=key.tenant)
            metrics.add("events_duplicate_total", count.duplicate, tenant=key.tenant)
        metrics.observe("flush_seconds", time.perf_counter() - started)
        if segments:
            metrics.add("segments_written_total", len(segments))
            files = (segment.file for segment in segments)
            metrics.add("segment_bytes_total", sum(file.bytes for file in files))
            age_s = (parts.clock.now_us() - min(flush.decoded.received_us)) / 1_000_000
            metrics.observe("queryable_seconds", max(0.0, age_s))

    def _set_aside(
        self,
        claim: PartitionClaim,
        rows: Sequence[RejectedRow],
        sources: Mapping[Source, SourceLines],
        confirm: Callable[[Connection], bool],
    ) -> Callable[[Connection], bool]:
        """Write rejected lines to files. Returns a function that registers them in the commit.

        That returns False if more was erased, or a file was collected, meanwhile."""
        if not rows:
            return confirm
        of_tenant: defaultdict[str, list[RejectedRow]] = defaultdict(list)
        for row in rows:
            of_tenant[row.tenant].append(row)
        stored = read_stored(self._parts.lake.database, of_tenant)
        plans = {tenant: plan_rejections(of, stored[tenant]) for tenant, of in of_tenant.items()}
        trips = self._parts.fuses.trips(sources)
        named = [tenant for tenant, plan in plans.items() if plan.stored]
        with self._parts.lake.database.write() as connection:
            names = self._announce(connection, claim, named, FOLDER, SUFFIX)
        for tenant, name in names.items():
            write_rejected(self._parts.lake.store, name, plans[tenant])

        def enter(connection: Connection) -> bool:
            trip_fuses(connection, trips)
            for tenant, plan in plans.items():
                enter_rejected(connection, names.get(tenant, ""), plan)
            there = withdraw_intents(connection, list(names.values()))
            return there and confirm(connection)

        return enter

    def _write_segments(
        self, claim: PartitionClaim, decoded: DecodedEvents, fresh: NewEvents
    ) -> list[CoveredSegment]:
        """Write one segment per tenant with new events."""
        parts = self._parts
        positions: defaultdict[str, list[int]] = defaultdict(list)
        for at in fresh.new:
            positions[decoded.tenants[at]].append(at)
        names = {
            tenant: self._next_names.pop(tenant)
            for tenant in positions.keys() & self._next_names.keys()
        }
        if unnamed := sorted(positions.keys() - names.keys()):
            with parts.lake.database.write() as connection:
                names |= self._announce(connection, claim, unnamed)
        segments: list[CoveredSegment] = []
        for tenant in sorted(positions):
            parts.crash_point("between files" if segments else "intent written")
            with SegmentWriter(parts.lake.store, names[tenant], tenant, ROW_GROUPS) as writer:
                for rows in decoded.to_tables(positions[tenant], fresh.consents, ROW_GROUPS):
                    writer.write(rows)
                    parts.crash_point("file half written")
            from_offset = self._waiting.tenants[tenant].offset
            segments.append(CoveredSegment(writer.finished, from_offset, self._position))
        return segments

    def _announce(
        self, connection: Connection, claim: PartitionClaim, tenants: Sequence[str], *kind: str
    ) -> dict[str, str]:
        """Name files that will be written, one per tenant."""
        label = f"{self._position:016x}-{claim.epoch}"
        names = {tenant: new_name(tenant, self._partition, label, *kind) for tenant in tenants}
        owner = self._parts.owner
        announce(connection, list(names.values()), self._partition, owner, claim.epoch)
        return names

    def _covered_after(self, tenants: Sequence[str]) -> int:
        """Find the offset that the lake covers once the events of these tenants are stored."""
        stored = set(tenants)
        left = (frames for tenant, frames in self._waiting.tenants.items() if tenant not in stored)
        return min((frames.offset for frames in islice(left, 1)), default=self._position)
