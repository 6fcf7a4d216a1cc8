import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.database.engine import Database
from penstock.database.migrations import upgrade
from penstock.database.settings import DatabaseLimits
from penstock.fleet import sidecar
from penstock.fleet.settings import FleetSettings
from penstock.settings import Settings
from tests.support.fleet.following import Fleet


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SQLite database with the newest tables in it, to be copied."""
    path = tmp_path_factory.mktemp("serving") / "penstock.db"
    database = Database(f"sqlite:///{path}")
    upgrade(database)
    database.close()
    return path


@pytest.fixture
def database(tmp_path: Path, migrated_file: Path) -> Iterator[Database]:
    """The database of an embedded lake in `tmp_path`."""
    shutil.copyfile(migrated_file, tmp_path / "penstock.db")
    database = Database(f"sqlite:///{tmp_path}/penstock.db", DatabaseLimits(lock_seconds_max=30))
    yield database
    database.close()


@pytest.fixture
def fleet(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    """With settings that suit tests, which do not wait."""
    monkeypatch.setattr(sidecar, "CHECK_SECONDS", 0.02)
    monkeypatch.setattr(FleetSettings, "replica_report_seconds", 0.1)
    return Fleet(database, tmp_path, Settings(data=tmp_path))
