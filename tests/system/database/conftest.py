from tests.room.database.conftest import database, open_database, url

__all__ = ["database", "open_database", "url"]
