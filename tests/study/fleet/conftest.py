from tests.room.fleet.conftest import database, fleet

__all__ = ["database", "fleet"]
