"""What is done too often for an entry each: it is added up, and noted a few times a minute at most.

A process that is killed loses what it had not noted yet, a minute at most: of events, the ledger
still says how many there were."""

import threading
from collections import Counter

from penstock.audit.chain import record
from penstock.audit.entry import Action, Deed
from penstock.database.engine import Database

#: Of one process between two notes. What is over is noted without its subject.
_SUBJECTS_MAX = 10_000

_Place = tuple[str, str, Action, str]


class Tally:
    """For one process. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._amounts: dict[_Place, Counter[str]] = {}

    def count(
        self, tenant: str, actor: str, action: Action, subject: str = "", **amounts: int
    ) -> None:
        place = (tenant, actor, action, subject)
        with self._lock:
            if place not in self._amounts and len(self._amounts) >= _SUBJECTS_MAX:
                place = (tenant, actor, action, "")
            self._amounts.setdefault(place, Counter()).update(amounts, times=1)

    def flush(self, database: Database) -> None:
        """Note what was counted. What cannot be noted is kept. Raises DatabaseUnreachable."""
        with self._lock:
            amounts, self._amounts = self._amounts, {}
        deeds = [
            Deed(tenant=tenant, actor=actor, action=action, subject=subject, facts=dict(counts))
            for (tenant, actor, action, subject), counts in sorted(amounts.items())
        ]
        try:
            record(database, *deeds)
        except BaseException:
            with self._lock:
                for place, counts in amounts.items():
                    self._amounts.setdefault(place, Counter()).update(counts)
            raise
