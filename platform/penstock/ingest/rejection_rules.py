"""What becomes of rejected lines, decided: which are stored, which are counted, which fuse trips.

A line that the gateway refused is stored while its tenant has room; beyond that the first of each
kind is, and the others are counted. Acknowledged lines that cannot be stored are always kept whole.
Nothing that a tenant sends stops the writer."""

import re
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.core.settings import MIB
from penstock.lake.commits import LedgerCounts, LedgerKey

#: Bounds on one tenant's rejected lines that were not sent again.
ROWS_MAX = 2_000
BYTES_MAX = 16 * MIB
#: Kinds of which a line is stored beyond that.
KINDS_MAX = 200
#: Older rejected lines are removed.
DAYS_MAX = 30
WINDOW_LINES = 10_000
#: Sources with rejected lines that a process watches; the least recent one is forgotten.
SOURCES_MAX = 4_096
KIND_CHARS_MAX = 120

_VARYING = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|\d+")
_OTHER_KIND = "other"


class Source(NamedTuple):
    tenant: str
    name: str


class RejectionKind(NamedTuple):
    source: str
    #: The reason without what differs from line to line.
    kind: str


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
        return RejectionKind(self.source, _VARYING.sub("…", self.reason)[:KIND_CHARS_MAX])


@dataclass
class RejectedLines:
    """A row to store: its first line, and how many lines it stands for."""

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


def plan_rejections(rows: Iterable[RejectedRow], stored: StoredRejections) -> RejectionPlan:
    """Plan the rows of one tenant, and change `stored` to what it is afterwards."""
    plan = RejectionPlan()
    set_aside: dict[RejectionKind, RejectedLines] = {}
    for row in rows:
        kind = row.kind
        if row.acknowledged:
            if kind not in set_aside:
                set_aside[kind] = RejectedLines(row, kind, lines=0)
                plan.stored.append(set_aside[kind])
            set_aside[kind].lines += 1
            set_aside[kind].contents.append(row.raw)
            continue
        nothing_new = not row.raw and kind in stored.newest  # nothing of the line is kept
        if nothing_new or not stored.has_room_for(row):
            if kind not in stored.newest and len(stored.newest) >= KINDS_MAX:
                kind = RejectionKind("", _OTHER_KIND)
            newest = stored.newest.get(kind)
            if isinstance(newest, RejectedLines):
                newest.lines += 1
                continue
            if newest is not None:
                plan.counted[newest] += 1
                continue
        lines = RejectedLines(row, kind, contents=[row.raw])
        stored.newest[kind] = lines
        stored.rows += 1
        stored.bytes += len(row.raw)
        plan.stored.append(lines)
    return plan


# Fuses


@dataclass(frozen=True)
class SourceLines:
    """The lines of one source, in a flush or over time."""

    seen: float
    rejected: float
    #: Why the last one was rejected.
    reason: str = ""


class RejectionFuses:
    """The share of rejected lines of each source, over its last lines."""

    def __init__(
        self, ratio_max: float, window_lines: int = WINDOW_LINES, sources_max: int = SOURCES_MAX
    ) -> None:
        self._ratio_max = ratio_max
        self._window_lines = window_lines
        self._sources_max = sources_max
        self._windows: OrderedDict[Source, SourceLines] = OrderedDict()

    def trips(self, flush: Mapping[Source, SourceLines]) -> dict[Source, SourceLines]:
        """Sources over the limit with this flush. Changes nothing: a flush may be tried again."""
        trips = {}
        for source, lines in flush.items():
            total = self._with(source, lines)
            # A share of the whole window, so that a few bad lines on a quiet day trip nothing.
            limit = self._ratio_max * max(total.seen, self._window_lines)
            if lines.rejected and total.rejected > limit:
                trips[source] = total
        return trips

    def add(self, flush: Mapping[Source, SourceLines]) -> None:
        """Count a committed flush. A tripped fuse begins anew once somebody releases it."""
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
    counts: Mapping[LedgerKey, LedgerCounts], rejected: Iterable[RejectedRow]
) -> dict[Source, SourceLines]:
    reasons = {Source(row.tenant, row.source): row.reason for row in rejected}
    lines: dict[Source, SourceLines] = {}
    for key, count in counts.items():
        source = Source(key.tenant, key.source)
        before = lines.get(source, SourceLines(0, 0))
        seen = before.seen + count.accepted + count.rejected
        bad = before.rejected + count.rejected
        lines[source] = SourceLines(seen, bad, reasons.get(source, ""))
    return lines
