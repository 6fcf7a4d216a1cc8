"""Whether a service runs with other settings than it did before."""

import msgspec

from penstock.audit.chain import entries_of, record
from penstock.audit.entry import NO_TENANT, OPERATOR, Deed
from penstock.database.engine import Database
from penstock.settings import ENVIRONMENT_PREFIX, ResolvedSetting, Settings, declarations


def note_settings(database: Database, settings: Settings, process: str) -> None:
    """An entry with what is not at its default, where that changed since such a process started
    last. Secrets are told as `***`. Raises DatabaseUnreachable."""
    rooms: dict[str, object] = {}
    for room in (settings, *settings.rooms):
        rooms |= {name: getattr(room, name) for name in vars(room)}
    facts: dict[str, str | int | None] = {}
    for declared in declarations():
        value = rooms.get(declared.name, declared.default)
        if value != declared.default:
            secret = not declared.repr
            shown = ResolvedSetting(declared.name, value, "", "", secret).shown
            facts[ENVIRONMENT_PREFIX + declared.name.upper()] = str(shown)
    deed = Deed(tenant=NO_TENANT, actor=OPERATOR, action="settings", subject=process, facts=facts)
    last = entries_of(database, NO_TENANT, action="settings", subject=process, limit=1)
    if not last or msgspec.json.decode(last[0].facts) != facts:
        record(database, deed)
