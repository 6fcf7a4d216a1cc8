"""Which sessions tell contents in full, as far as this process has seen: some exporters say the
same thing in two records of different detail, minutes apart, and only the fuller one counts."""

from collections import OrderedDict

#: The kinds of content that a session's records may tell in full.
BODIES, RESULTS = "bodies", "results"


_TENANTS_MAX = 1_000


class FullSessions:
    """The newest sessions of each tenant alone: memory is bounded, and no tenant has another's
    forgotten. A session that is, or whose records come by another process, has its lesser records
    counted as well until a fuller one comes."""

    def __init__(self, sessions_max: int = 4_000) -> None:
        self._sessions_max = sessions_max
        self._tenants: OrderedDict[str, OrderedDict[tuple[str, str], None]] = OrderedDict()

    def note(self, tenant: str, session: str, kind: str) -> None:
        known = self._tenants.setdefault(tenant, OrderedDict())
        self._tenants.move_to_end(tenant)
        if len(self._tenants) > _TENANTS_MAX:
            self._tenants.popitem(last=False)
        known[session, kind] = None
        known.move_to_end((session, kind))
        if len(known) > self._sessions_max:
            known.popitem(last=False)

    def tells(self, tenant: str, session: str, *kinds: str) -> bool:
        known = self._tenants.get(tenant)
        return known is not None and any((session, kind) in known for kind in kinds)
