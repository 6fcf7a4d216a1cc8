"""Decisions on rejected lines: which are stored, which are counted, and which fuse trips.

A refused line is stored while its tenant has room; beyond that only the first of each kind is, and
the others are counted. Acknowledged lines that cannot be stored are always kept whole. Nothing that
a tenant sends stops the writer."""

import re
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from penstock.core.settings import MIB
from penstock.lake.commits import LedgerCounts, LedgerKey

#: The limit of a tenant's rejected lines that were not replayed.
ROWS_MAX = 2_000
BYTES_MAX = 16 * MIB
#: Kinds that still get a stored line beyond that.
KINDS_MAX = 200
#: The age at which rejected lines are removed.
DAYS_MAX = 30
WINDOW_LINES = 10_000
#: Sources with rejected lines that a process tracks; the least recent one is forgotten.
SOURCES_MAX = 4_096
KIND_CHARS_MAX = 120

_VARYING = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|\d+")
_OTHER_KIND = "other"


class Source(NamedTuple):
    tenant: str
    name: str


class RejectionKind(NamedTuple):
    source: str
    #: The reason without its variable parts.
    kind: str


@dataclass(frozen=True)
class RejectedRow:
    """A rejected line. `line` is its position in its request."""

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
    """A row to store: its first line, and how many lines it represents."""

    first: RejectedRow
    kind: RejectionKind
    lines: int = 1
    contents: list[bytes] = field(default_factory=list)

    @property
    def content(self) -> bytes:
        return b"\n".join(self.contents)


@dataclass
class StoredRejections:
    """The stored rejected lines of one tenant."""

    rows: int = 0
    bytes: int = 0
    #: The newest row of each kind: its id, once it is stored.
    newest: dict[RejectionKind, int | RejectedLines] = field(default_factory=dict)
    #: Sources with a tripped fuse, whose lines are only counted.
    tripped: set[str] = field(default_factory=set)

    def has_room_for(self, row: RejectedRow) -> bool:
        fits = self.rows < ROWS_MAX and self.bytes + len(row.raw) <= BYTES_MAX
        return fits and row.source not in self.tripped


@dataclass
class RejectionPlan:
    """The rejected lines that one flush stores."""

    stored: list[RejectedLines] = field(default_factory=list)
    #: Additional lines that the rows with these ids represent.
    counted: Counter[int] = field(default_factory=Counter)


def plan_rejections(rows: Iterable[RejectedRow], stored: StoredRejections) -> RejectionPlan:
    """Plan the rows of one tenant, and update `stored` accordingly."""
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
        nothing_new = not row.raw and kind in stored.newest  # the line is not stored
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


class SourceLines(msgspec.Struct, frozen=True):
    """Line counts of one source, in a flush or over time."""

    seen: float
    rejected: float
    #: The last reason of a rejection.
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
        """Sources over the limit with this flush. Changes nothing, since a flush may be retried."""
        trips = {}
        for source, lines in flush.items():
            total = self._with(source, lines)
            # A share of the whole window, so that a few bad lines on a quiet day trip no fuse.
            limit = self._ratio_max * max(total.seen, self._window_lines)
            if lines.rejected and total.rejected > limit:
                trips[source] = total
        return trips

    def add(self, flush: Mapping[Source, SourceLines]) -> None:
        """Count a committed flush. A tripped fuse starts anew once it is released."""
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
