"""What becomes of rejected lines, decided: which are stored whole, which are only counted, and
which source's fuse trips. Nothing that a tenant sends stops the writer.

A line that the gateway refused is stored whole while its tenant has room for it; beyond that the
first of each kind is, and the others are counted. A line that was acknowledged, and cannot be
stored after all, is always set aside whole.
"""

import re
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.lake.commits import LedgerKey
from penstock.settings import MIB

#: What is stored of one tenant's rejected lines that were not sent again.
ROWS_MAX = 2_000
BYTES_MAX = 16 * MIB
#: Kinds of which a line is stored beyond that.
KINDS_MAX = 200
#: Rejected lines are removed at this age.
DAYS_MAX = 30
#: Lines over which the share of rejected ones is taken.
WINDOW_LINES = 10_000
#: Sources with rejected lines that a process watches; the one longest without any is forgotten.
SOURCES_MAX = 4_096
KIND_CHARS_MAX = 120

_VARYING = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|\d+")
_OTHER_KIND = "other"


class Source(NamedTuple):
    tenant: str
    name: str


class RejectionKind(NamedTuple):
    source: Source
    #: The reason without what differs from line to line.
    reason: str


@dataclass(frozen=True)
class RejectedRow:
    """A rejected line. `line` is its position in the request that brought it."""

    tenant: str
    source: str
    received_at: int
    line: int
    reason: str
    raw: bytes
    truncated: bool
    acknowledged: bool = False

    @property
    def kind(self) -> RejectionKind:
        reason = _VARYING.sub("…", self.reason)[:KIND_CHARS_MAX]
        return RejectionKind(Source(self.tenant, self.source), reason)


@dataclass
class RejectedLines:
    """One row to be stored: its first line, and how many lines it stands for."""

    first: RejectedRow
    kind: RejectionKind
    lines: int = 1
    contents: list[bytes] = field(default_factory=list)

    @property
    def content(self) -> bytes:
        return b"\n".join(self.contents)


@dataclass
class StoredRejections:
    """What is stored of one tenant."""

    rows: int = 0
    bytes: int = 0
    #: The newest row of each kind: an id where it is stored already.
    newest: dict[RejectionKind, int | RejectedLines] = field(default_factory=dict)
    #: Sources whose fuse has tripped: their lines are only counted.
    tripped: set[str] = field(default_factory=set)

    def has_room_for(self, row: RejectedRow) -> bool:
        fits = self.rows < ROWS_MAX and self.bytes + len(row.raw) <= BYTES_MAX
        return fits and row.source not in self.tripped


@dataclass
class RejectionPlan:
    """What one flush stores of its rejected lines."""

    stored: list[RejectedLines] = field(default_factory=list)
    #: How many lines more the rows with these ids stand for.
    counted: Counter[int] = field(default_factory=Counter)


def plan_rejections(
    rows: Iterable[RejectedRow], tenants: Mapping[str, StoredRejections]
) -> RejectionPlan:
    """Changes the tenants to what they are afterwards."""
    plan = RejectionPlan()
    set_aside: dict[RejectionKind, RejectedLines] = {}
    for row in rows:
        tenant, kind = tenants[row.tenant], row.kind
        if row.acknowledged:
            lines = set_aside.get(kind)
            if lines is None:
                lines = set_aside[kind] = RejectedLines(row, kind, lines=0)
                plan.stored.append(lines)
            lines.lines += 1
            lines.contents.append(row.raw)
            continue
        nothing_new = not row.raw and kind in tenant.newest  # of which nothing is kept
        if nothing_new or not tenant.has_room_for(row):
            if kind not in tenant.newest and len(tenant.newest) >= KINDS_MAX:
                kind = RejectionKind(Source(row.tenant, ""), _OTHER_KIND)
            newest = tenant.newest.get(kind)
            if isinstance(newest, RejectedLines):
                newest.lines += 1
                continue
            if newest is not None:
                plan.counted[newest] += 1
                continue
        lines = RejectedLines(row, kind, contents=[row.raw])
        tenant.newest[kind] = lines
        tenant.rows += 1
        tenant.bytes += len(row.raw)
        plan.stored.append(lines)
    return plan


# Fuses


@dataclass(frozen=True)
class SourceLines:
    """The lines of one source, in a flush or over a while."""

    seen: float
    rejected: float
    #: Of the last rejected one.
    reason: str = ""


class RejectionFuses:
    """The share of rejected lines of each source, over its last lines. Sources without rejected
    lines cost nothing."""

    def __init__(
        self, ratio_max: float, window_lines: int = WINDOW_LINES, sources_max: int = SOURCES_MAX
    ) -> None:
        self._ratio_max = ratio_max
        self._window_lines = window_lines
        self._sources_max = sources_max
        self._windows: OrderedDict[Source, SourceLines] = OrderedDict()

    def trips(self, flush: Mapping[Source, SourceLines]) -> dict[Source, SourceLines]:
        """The sources whose share is over the limit with this flush, and their lines. Changes
        nothing: a flush may be tried again."""
        trips = {}
        for source, lines in flush.items():
            total = self._with(source, lines)
            # A share of the whole window, so that a few bad lines on a quiet day trip nothing.
            limit = self._ratio_max * max(total.seen, self._window_lines)
            if lines.rejected and total.rejected > limit:
                trips[source] = total
        return trips

    def add(self, flush: Mapping[Source, SourceLines]) -> None:
        """Count a committed flush. A fuse that trips begins anew: somebody releases it."""
        trips = self.trips(flush)
        for source, lines in flush.items():
            if not lines.rejected and source not in self._windows:
                continue
            total = self._with(source, lines)
            older = min(1.0, self._window_lines / max(total.seen, 1.0))
            self._windows[source] = SourceLines(total.seen * older, total.rejected * older)
            if lines.rejected:
                self._windows.move_to_end(source)
            if source in trips:
                del self._windows[source]
        while len(self._windows) > self._sources_max:
            self._windows.popitem(last=False)

    def _with(self, source: Source, lines: SourceLines) -> SourceLines:
        before = self._windows.get(source, SourceLines(0, 0))
        seen, rejected = before.seen + lines.seen, before.rejected + lines.rejected
        return SourceLines(seen, rejected, lines.reason)


def count_by_source(
    accepted: Mapping[LedgerKey, int], rejected: Iterable[RejectedRow]
) -> dict[Source, SourceLines]:
    """The lines of a flush."""
    counts: defaultdict[Source, SourceLines] = defaultdict(lambda: SourceLines(0, 0))
    for key, count in accepted.items():
        source = Source(key.tenant, key.source)
        counts[source] = SourceLines(counts[source].seen + count, 0)
    bad: Counter[Source] = Counter()
    reasons: dict[Source, str] = {}
    for row in rejected:
        source = Source(row.tenant, row.source)
        bad[source] += 1
        reasons[source] = row.reason
    for source, count in bad.items():
        counts[source] = SourceLines(counts[source].seen + count, count, reasons[source])
    return counts
