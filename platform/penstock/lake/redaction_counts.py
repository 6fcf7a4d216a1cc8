"""How often each redaction rule had a match, by tenant, source and hour of arrival.

They are added up where lines are masked, and noted a few times a minute: also of lines that were
dropped, of which nothing goes on. A process that is killed loses what it had not noted yet, a
minute at most; a line that is sent twice is masked, and counted, twice."""

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import sqlalchemy as sa

from penstock.database.engine import Database, insert_of
from penstock.lake.tables import redaction_count

_HOUR_US = 3_600_000_000
#: Of one process between two notes. What is over is counted without its source.
_PLACES_MAX = 10_000


class SourceRule(NamedTuple):
    """A rule that had a match in a line of this source, which is empty where it names none."""

    source: str
    rule: str


@dataclass(frozen=True)
class RedactionCount:
    tenant: str
    source: str
    hour: int
    rule: str
    matches: int


class RedactionTally:
    """For one process. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._matches: Counter[tuple[str, str, int, str]] = Counter()

    def count(self, tenant: str, received_us: int, matches: Mapping[SourceRule, int]) -> None:
        hour = received_us - received_us % _HOUR_US
        with self._lock:
            for (source, rule), count in matches.items():
                place = (tenant, source, hour, rule)
                if place not in self._matches and len(self._matches) >= _PLACES_MAX:
                    place = (tenant, "", hour, rule)
                self._matches[place] += count

    def flush(self, database: Database) -> None:
        """Note what was counted. What cannot be noted is kept. Raises DatabaseUnreachable."""
        with self._lock:
            matches, self._matches = self._matches, Counter()
        if not matches:
            return
        names = [column.name for column in redaction_count.columns]
        rows = [dict(zip(names, (*place, n), strict=True)) for place, n in sorted(matches.items())]
        try:
            with database.write() as connection:
                insert = insert_of(connection)(redaction_count)
                added = redaction_count.c.matches + insert.excluded.matches
                keys = redaction_count.primary_key.columns
                adding = insert.on_conflict_do_update(index_elements=keys, set_={"matches": added})
                connection.execute(adding, rows)
        except BaseException:
            with self._lock:
                self._matches.update(matches)
            raise


def read_redaction_counts(
    database: Database, tenant: str | None = None, since_us: int = 0
) -> list[RedactionCount]:
    """From the hour of `since_us` on, of all tenants or of one; the oldest first."""
    columns = redaction_count.c
    query = sa.select(redaction_count).where(columns.hour > since_us - _HOUR_US)
    if tenant is not None:
        query = query.where(columns.tenant == tenant)
    order = (columns.hour, columns.tenant, columns.source, columns.rule)
    with database.read() as connection:
        return [
            RedactionCount(**row._mapping) for row in connection.execute(query.order_by(*order))
        ]
