from tests.room.fleet.conftest import database, fleet, migrated_file

__all__ = ["database", "fleet", "migrated_file"]
