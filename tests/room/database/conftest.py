from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.backends.database import DatabaseLimits
from penstock.backends.database.engine import Database
from tests.support.servers.postgres import PostgresServer

OpenDatabase = Callable[..., Database]


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty database of the test's own."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/penstock.db"
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    with server.database(migrated=False) as url:
        yield url


@pytest.fixture
def open_database(url: str) -> Iterator[OpenDatabase]:
    """Opens the same database again and again, as processes do."""
    opened: list[Database] = []

    def open_it(lock_seconds_max: float = 10) -> Database:
        opened.append(Database(url, DatabaseLimits(lock_seconds_max=lock_seconds_max)))
        return opened[-1]

    yield open_it
    for database in opened:
        database.close()


@pytest.fixture
def database(open_database: OpenDatabase) -> Database:
    return open_database()
