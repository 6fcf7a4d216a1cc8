"""Databases of the kinds that there are, for the tests of checkpoints, gate and channels."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.backends.database import DatabaseLimits
from penstock.backends.database.engine import Database
from penstock.core.settings import Settings, load_settings
from tests.support.lakes import empty_database
from tests.support.servers.postgres import PostgresServer
from tests.support.webhook_receiver import Receiver, receiving

OpenDatabase = Callable[[], Database]

__all__ = [
    "database", "database_url", "embedded", "embedded_url", "open_database", "receiver", "settings",
]  # fmt: skip


@pytest.fixture
def embedded_url(tmp_path: Path) -> str:
    """An SQLite database of the test's own, with the newest tables in it."""
    shutil.copyfile(empty_database(), tmp_path / "penstock.db")
    return f"sqlite:///{tmp_path}/penstock.db"


@pytest.fixture
def embedded(embedded_url: str) -> Iterator[Database]:
    """The same, opened: for what does not depend on the kind of database."""
    database = Database(embedded_url)
    yield database
    database.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A database of the test's own, of each kind, with the newest tables in it."""
    if request.param == "sqlite":
        yield request.getfixturevalue("embedded_url")
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    with server.database() as url:
        yield url


@pytest.fixture
def open_database(database_url: str) -> Iterator[OpenDatabase]:
    """Opens the same database again and again, as processes do."""
    opened: list[Database] = []

    def open_it() -> Database:
        opened.append(Database(database_url, DatabaseLimits(lock_seconds_max=30)))
        return opened[-1]

    yield open_it
    for database in opened:
        database.close()


@pytest.fixture
def database(open_database: OpenDatabase) -> Database:
    return open_database()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as made:
        yield made


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """The receivers of webhooks are on this machine."""
    return load_settings(tmp_path, {}, {"egress_networks": "127.0.0.0/8"})
