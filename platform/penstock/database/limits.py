"""How long to wait for the database, and how many connections a process may have."""

from dataclasses import dataclass
from typing import Self

from penstock.database.settings import DatabaseSettings
from penstock.settings import Settings

_KEPT_OPEN = 5
#: Wait for the lock of another process or transaction.
_LOCK_SECONDS_MAX = 5.0
#: Wait for a connection, to the database or from the pool.
_CONNECT_SECONDS_MAX = 10.0


@dataclass(frozen=True, kw_only=True)
class DatabaseLimits:
    """For a Database; the settings say what each means."""

    lock_seconds_max: float = _LOCK_SECONDS_MAX
    statement_seconds_max: float = DatabaseSettings.database_statement_seconds_max
    connect_seconds_max: float = _CONNECT_SECONDS_MAX
    connections_max: int = DatabaseSettings.database_connections_max

    @classmethod
    def of(cls, settings: Settings) -> Self:
        limits = settings.room(DatabaseSettings)
        return cls(
            statement_seconds_max=limits.database_statement_seconds_max,
            connections_max=limits.database_connections_max,
        )

    def pool(self) -> dict[str, float]:
        """A few connections stay open; the others are closed after use."""
        kept = min(self.connections_max, _KEPT_OPEN)
        return {
            "pool_size": kept,
            "max_overflow": self.connections_max - kept,
            "pool_timeout": self.connect_seconds_max,
        }
