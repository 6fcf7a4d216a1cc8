"""Inserts that say what to do when the row is there already."""

from typing import Any

from sqlalchemy import Connection
from sqlalchemy.dialects import postgresql, sqlite


def insert_of(connection: Connection) -> Any:
    """The `insert` of this database, with its `on_conflict_do_…`."""
    return postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
