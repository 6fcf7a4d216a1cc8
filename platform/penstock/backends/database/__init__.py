"""The metadata database: its settings and errors."""

from dataclasses import dataclass

from penstock.core.errors import PenstockError
from penstock.core.settings import RoomSettings, setting


class DatabaseUnreachable(
    PenstockError, exit_status=3, http_status=503, http_headers={"Retry-After": "5"}
):
    """The metadata database cannot be used: {why}."""


class DatabaseOutdated(PenstockError, http_status=503):
    """The metadata database is at revision {found}, this Penstock needs {needed}.
    Run `penstock db upgrade`, or, when the database is the newer one, a newer Penstock."""


_KEPT_OPEN = 5


@dataclass(frozen=True, kw_only=True)
class DatabaseSettings(RoomSettings):
    database_statement_seconds_max: float = setting(
        30.0,
        "one statement on PostgreSQL, or a pause inside a transaction",
        "Raise it when it ends statements of a large lake.",
        minimum=0.001,
    )
    database_connections_max: int = setting(
        15,
        "connections of a process to the database",
        "Lower it when all together exceed PostgreSQL's max_connections.",
        minimum=1,
    )


@dataclass(frozen=True, kw_only=True)
class DatabaseLimits:
    lock_seconds_max: float = 5.0
    statement_seconds_max: float = DatabaseSettings.database_statement_seconds_max
    #: To the database or from the pool.
    connect_seconds_max: float = 10.0
    connections_max: int = DatabaseSettings.database_connections_max

    def pool(self) -> dict[str, float]:
        """Make arguments of an engine. Some connections stay open."""
        idle = min(self.connections_max, _KEPT_OPEN)
        sizes = {"pool_size": idle, "max_overflow": self.connections_max - idle}
        return {**sizes, "pool_timeout": self.connect_seconds_max}
