"""The settings of the metadata database."""

from dataclasses import dataclass

from penstock.settings import RoomSettings, setting

_KEPT_OPEN = 5


@dataclass(frozen=True, kw_only=True)
class DatabaseSettings(RoomSettings):
    """See docs/settings.md."""

    database_lock_seconds_max: float = setting(
        5.0,
        "wait for another's lock on the database",
        "Raise it when a slow disk makes writers wait for each other longer.",
        minimum=0,
    )
    database_statement_seconds_max: float = setting(
        30.0,
        "one statement on PostgreSQL, or a pause inside a transaction",
        "Raise it when a large lake's statements are ended by it.",
        minimum=0.001,
    )
    database_connect_seconds_max: float = setting(
        10.0,
        "wait for a connection to the database",
        "Raise it when PostgreSQL is far away or often fails over.",
        minimum=0.001,
    )
    database_connections_max: int = setting(
        15,
        "connections of a process to the database",
        "Lower it when all processes together exceed PostgreSQL's max_connections.",
        minimum=1,
    )

    def pool(self) -> dict[str, float]:
        """Arguments of an engine: a few connections stay open, the others are closed after use."""
        kept = min(self.database_connections_max, _KEPT_OPEN)
        return {
            "pool_size": kept,
            "max_overflow": self.database_connections_max - kept,
            "pool_timeout": self.database_connect_seconds_max,
        }
