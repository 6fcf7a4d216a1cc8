"""A cache of the filters of segments, which say which segments may hold a session."""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping

import numpy as np
import sqlalchemy as sa

from penstock.backends.database.engine import Database, portions
from penstock.core.settings import MIB
from penstock.lake.catalog import Segment
from penstock.lake.segments import SessionPrefixes, may_hold, read_filter, session_prefixes
from penstock.lake.tables import segment


class SessionFilters:
    """The filters that were used lately; filters never change. Safe to share between threads."""

    def __init__(self, database: Database, bytes_max: float = 64 * MIB) -> None:
        self._database = database
        self._bytes_max = bytes_max
        self._kept: OrderedDict[str, SessionPrefixes] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def of(self, names: Iterable[str]) -> dict[str, SessionPrefixes | None]:
        """Find the filters of these segments; None for one that the database no longer knows."""
        with self._lock:
            known = {name: self._kept.get(name) for name in names}
        query = sa.select(segment.c.name, segment.c.session_filter)
        for missing in portions(name for name, held in known.items() if held is None):
            rows = self._database.rows(query.where(segment.c.name.in_(missing)))
            known |= {name: read_filter(stored) for name, stored in rows}
        self._keep(known)
        return known

    def holding(self, segments: Iterable[Segment], sessions: Iterable[str]) -> list[Segment]:
        """Choose the segments that may hold any of these `session_key`s."""
        prefixes = np.sort(session_prefixes(sessions))  # in order they are found sooner
        by_name = {stored.name: stored for stored in segments}
        return [
            by_name[name]
            for name, held in self.of(by_name).items()
            if held is None or may_hold(held, prefixes).any()
        ]

    def count(self) -> int:
        """Count the sessions of all segments. A session in several segments counts in each."""
        query = sa.select(sa.func.sum(sa.func.length(segment.c.session_filter)))
        held: int = self._database.scalar(query) or 0
        return held // np.dtype(np.uint32).itemsize

    def _keep(self, filters: Mapping[str, SessionPrefixes | None]) -> None:
        with self._lock:
            for name, held in filters.items():
                if held is not None and name not in self._kept:
                    self._kept[name] = held
                    self._bytes += held.nbytes
                elif held is not None:
                    self._kept.move_to_end(name)
            while self._bytes > self._bytes_max:
                self._bytes -= self._kept.popitem(last=False)[1].nbytes
