"""The settings of the metadata database."""

from dataclasses import dataclass
from typing import ClassVar

from penstock.settings import RoomSettings, setting


@dataclass(frozen=True, kw_only=True)
class DatabaseSettings(RoomSettings):
    """See docs/settings.md."""

    RETIRED: ClassVar = frozenset({
        "database_connect_seconds_max",
        "database_lock_seconds_max",
    })  # fmt: skip

    database_statement_seconds_max: float = setting(
        30.0,
        "one statement on PostgreSQL, or a pause inside a transaction",
        "Raise it when a large lake's statements are ended by it.",
        minimum=0.001,
    )
    database_connections_max: int = setting(
        15,
        "connections of a process to the database",
        "Lower it when all processes together exceed PostgreSQL's max_connections.",
        minimum=1,
    )
