"""How fleets stand, for Prometheus: looked up now and then, since replicas that are silent make no
requests."""

from collections import Counter

from penstock.database.engine import Database
from penstock.fleet.fleet import STATES
from penstock.fleet.replicas import fleets
from penstock.metrics import Metrics
from penstock.settings import Settings

_SILENT = "silent"
#: Tenant, channel and part.
_Part = tuple[str, str, str]


class FleetGauges:
    def __init__(self, database: Database, settings: Settings, metrics: Metrics) -> None:
        self._database = database
        self._settings = settings
        self._metrics = metrics
        self._shown: set[_Part] = set()

    def refresh(self) -> None:
        """Raises DatabaseUnreachable."""
        mixed: dict[_Part, int] = {}
        behind: dict[_Part, int] = {}
        states: Counter[tuple[_Part, str]] = Counter()
        for place, groups, parts in fleets(self._database, self._settings):
            for group in groups:
                state = _SILENT if group.silent else group.state
                states[(*place, group.part), state] += group.replicas
            for one in parts:
                mixed[(*place, one.part)] = int(one.mixed)
                behind[(*place, one.part)] = one.behind + one.unsure
        for tenant, channel, part in self._shown | set(mixed):
            names = {"tenant": tenant, "channel": channel, "part": part}
            key = (tenant, channel, part)
            self._metrics.set("fleet_mixed", mixed.get(key, 0), **names)
            self._metrics.set("replicas_behind", behind.get(key, 0), **names)
            for state in (*STATES, _SILENT):
                self._metrics.set("replicas", states[key, state], **names, state=state)
        self._shown |= set(mixed)
