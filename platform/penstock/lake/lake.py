"""The lake that commands, the server and users' scripts open.

Its parts are loaded when it is opened: a command that shows its help opens none."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.backends.terminal.output import say
from penstock.core.errors import InvalidInput
from penstock.core.files import make_directory, make_private
from penstock.core.settings import Settings, load_settings
from penstock.events.event import TENANT_DEFAULT
from penstock.lake import LakeMissing, RestoreCutOff
from penstock.lake.lake_parts import LakeParts

if TYPE_CHECKING:
    from penstock.backends.database.engine import Database
    from penstock.lake.query.lake_query import LakeQuery, OwnQuery

#: The folder in a data directory while a backup is restored.
RESTORING = ".restoring"


class Lake(LakeParts):
    """A lake: segments, their database, and the log with events that are in no segment yet."""

    def query(
        self, sql: "str | OwnQuery", *, as_of: str | int | None = None, tenant: str = TENANT_DEFAULT
    ) -> "LakeQuery":
        """Make a query to be run. docs/reference/sql.md lists the views."""
        from penstock.lake.query.lake_query import LakeQuery

        return LakeQuery(self, sql, as_of, tenant)


# Opening


def open_lake(data: str | Path | None = None) -> Lake:
    return Lake(load_settings(data))


def open_existing(data: Path | None) -> Lake:
    """Open a lake that has to be there. Raises LakeMissing, DatabaseOutdated."""
    from penstock.backends.database import migrations

    settings = load_settings(data)
    check_lake(settings)
    return _opened(settings, migrations.check)


def check_lake(settings: Settings) -> None:
    _narrow(settings.data)
    embedded = _embedded_file(settings)
    if embedded is not None and not embedded.exists():
        raise LakeMissing(where=settings.data)


def open_or_make(settings: Settings) -> Lake:
    """Open a lake; an embedded one is made if it is missing. Raises DatabaseOutdated,
    RestoreCutOff."""
    from penstock.backends.database import migrations

    embedded = _embedded_file(settings)
    if embedded is not None:
        if not embedded.exists() and (settings.data / RESTORING).exists():
            raise RestoreCutOff(data=settings.data)
        make_data_directory(embedded.parent)
    _narrow(settings.data)
    return _opened(settings, migrations.check if embedded is None else migrations.upgrade)


def make_data_directory(directory: Path) -> None:
    """Make the data directory. Raises InvalidInput."""
    try:
        make_directory(directory)
    except OSError as error:
        why = error.strerror or str(error)
        raise InvalidInput(what=f"The directory {directory}", why=why) from error


def _narrow(data: Path) -> None:
    if make_private(data):
        say(f"Other users of this machine could read {data}; now only its owner can")


def _opened(settings: Settings, prepare: "Callable[[Database], object]") -> Lake:
    lake = Lake(settings)
    try:
        prepare(lake.database)
    except BaseException:
        lake.close()
        raise
    return lake


def _embedded_file(settings: Settings) -> Path | None:
    from penstock.backends.database.engine import parse_database_address

    url = parse_database_address(settings.database_url)
    return Path(url.database) if url.get_backend_name() == "sqlite" and url.database else None


# Size


def read_statistics(lake: Lake) -> dict[str, Any]:
    """Count segments, events and bytes. `segments_kept` are replaced and still needed."""
    import sqlalchemy as sa

    from penstock.lake.tables import lake_head, segment, segment_intent, snapshot

    live = segment.c.removed_snap.is_(None)
    size = sa.func.coalesce(sa.func.sum(segment.c.bytes + segment.c.sessions_bytes), 0)
    events = sa.func.coalesce(sa.func.sum(segment.c.rows), 0)
    count = sa.func.count()
    counts = {
        "segments": sa.select(count).select_from(segment).where(live),
        "segments_kept": sa.select(count).select_from(segment).where(~live),
        "intents": sa.select(count).select_from(segment_intent),
        "snapshots": sa.select(count).select_from(snapshot),
    }
    with lake.database.read() as connection:
        held = connection.execute(sa.select(events, size).where(live)).one()
        snap = connection.execute(sa.select(lake_head.c.snap)).scalar_one()
        numbers = {name: connection.execute(query).scalar_one() for name, query in counts.items()}
    return {
        "snap": snap,
        "segments": numbers.pop("segments"),
        "events": held[0],
        "bytes": held[1],
        "bytes_per_event": round(held[1] / held[0], 1) if held[0] else 0.0,
        **numbers,
    }
