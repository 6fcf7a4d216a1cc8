from tests.support.registry_fixtures import (
    database,
    database_url,
    embedded,
    embedded_url,
    migrated_file,
    open_database,
    receiver,
    settings,
)

__all__ = [
    "database",
    "database_url",
    "embedded",
    "embedded_url",
    "migrated_file",
    "open_database",
    "receiver",
    "settings",
]
