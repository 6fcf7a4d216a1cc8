"""The session filters of segments in memory: which files a query of a few sessions has to open."""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence

import numpy as np
import sqlalchemy as sa

from penstock.database.engine import Database, portions
from penstock.lake.catalog import Segment
from penstock.lake.segments import SessionPrefixes, may_hold, read_filter, session_prefixes
from penstock.lake.tables import segment
from penstock.settings import MIB

#: Of filters that are kept: four bytes for each session of each segment.
_BYTES_MAX = 32 * MIB


class SessionFilters:
    """Filters that were asked for lately; they never change. Safe to share between threads."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._kept: OrderedDict[str, SessionPrefixes] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def holding(self, segments: Sequence[Segment], sessions: Iterable[str]) -> list[Segment]:
        """Those that may hold any of these `session_key`s. One that is not known to the database
        any more may."""
        prefixes = session_prefixes(sessions)
        with self._lock:
            known = {stored.name: self._kept.get(stored.name) for stored in segments}
        missing = [name for name, held in known.items() if held is None]
        query = sa.select(segment.c.name, segment.c.session_filter)
        with self._database.read() as connection:
            for names in portions(missing):
                rows = connection.execute(query.where(segment.c.name.in_(names)))
                known |= {name: read_filter(stored) for name, stored in rows}
        holding = [
            stored
            for stored in segments
            if (held := known[stored.name]) is None or may_hold(held, prefixes).any()
        ]
        self._keep(known)
        return holding

    def count(self) -> int:
        """Of how many sessions all segments hold something; one in several counts in each."""
        query = sa.select(sa.func.sum(sa.func.length(segment.c.session_filter)))
        with self._database.read() as connection:
            held: int = connection.scalar(query) or 0
        return held // np.dtype(np.uint32).itemsize

    def _keep(self, filters: dict[str, SessionPrefixes | None]) -> None:
        with self._lock:
            for name, held in filters.items():
                if held is not None and name not in self._kept:
                    self._kept[name] = held
                    self._bytes += held.nbytes
                elif held is not None:
                    self._kept.move_to_end(name)
            while self._bytes > _BYTES_MAX:
                self._bytes -= self._kept.popitem(last=False)[1].nbytes
