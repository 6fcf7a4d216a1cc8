import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.backends.database import DatabaseLimits
from penstock.backends.database.engine import Database
from penstock.core.settings import Settings
from penstock.registry.fleet import FleetSettings, sidecar
from tests.support.fleet.following import Fleet
from tests.support.lakes import empty_database


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """The database of an embedded lake in `tmp_path`."""
    shutil.copyfile(empty_database(), tmp_path / "penstock.db")
    database = Database(f"sqlite:///{tmp_path}/penstock.db", DatabaseLimits(lock_seconds_max=30))
    yield database
    database.close()


@pytest.fixture
def fleet(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    """With settings that suit tests, which do not wait."""
    monkeypatch.setattr(sidecar, "CHECK_SECONDS", 0.02)
    monkeypatch.setattr(FleetSettings, "replica_report_seconds", 0.1)
    return Fleet(database, tmp_path, Settings(data=tmp_path))
