"""What may happen to the file of the embedded database, and the error it gives."""

import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

from penstock.backends.database import DatabaseUnreachable, migrations
from penstock.backends.database.engine import Database
from penstock.lake.tables import lake_head

OpenDatabase = Callable[..., Database]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/penstock.db"


@pytest.fixture
def path(database: Database, tmp_path: Path) -> Path:
    """The file of a database that is in use."""
    migrations.upgrade(database)
    return tmp_path / "penstock.db"


def touch(database: Database) -> None:
    with database.write() as connection:
        connection.execute(sa.update(lake_head).values(snap=lake_head.c.snap + 1))


def look(database: Database) -> int | None:
    with database.read() as connection:
        return connection.scalar(sa.select(lake_head.c.snap))


def remove(path: Path) -> None:
    for file in path.parent.glob(path.name + "*"):
        file.unlink()


def test_a_removed_file_takes_no_commits(database: Database, path: Path) -> None:
    """They would go to a file that nobody can open any more."""
    touch(database)
    remove(path)
    for _ in range(3):
        with pytest.raises(DatabaseUnreachable, match=r"penstock\.db was removed"):
            touch(database)
        with pytest.raises(DatabaseUnreachable, match=r"penstock\.db was removed"):
            look(database)
    assert not path.exists()


def test_a_file_that_is_put_back_is_used_again(database: Database, path: Path) -> None:
    touch(database)
    database.close()  # all is in the one file now
    kept = path.with_name("kept")
    shutil.copy(path, kept)
    touch(database)
    remove(path)
    kept.rename(path)
    with pytest.raises(DatabaseUnreachable, match="replaced"):
        touch(database)
    assert look(database) == 1
    touch(database)
    assert look(database) == 2


@pytest.mark.parametrize(
    ("kept", "why"),
    [(0, "file is not a database"), (100, "malformed")],
    ids=["a letter", "damaged"],
)
def test_a_file_that_is_no_database_is_a_clear_error(
    database: Database, open_database: OpenDatabase, path: Path, kept: int, why: str
) -> None:
    database.close()
    content = path.read_bytes()
    content = content[:kept] + b"\xaa" * (len(content) - kept)
    path.write_bytes(content)
    for use in (look, touch, migrations.upgrade, migrations.check):
        with pytest.raises(DatabaseUnreachable, match=why):
            use(open_database())
    assert path.read_bytes() == content


def test_an_empty_database_is_a_clear_error(open_database: OpenDatabase) -> None:
    for use in (look, touch):
        with pytest.raises(DatabaseUnreachable, match="no such table: lake_head"):
            use(open_database())


@pytest.mark.parametrize("name", ["missing/penstock.db", "."])
def test_a_path_that_cannot_be_opened_is_a_clear_error(tmp_path: Path, name: str) -> None:
    database = Database(f"sqlite:///{tmp_path}/{name}")
    for use in (look, touch, migrations.upgrade, migrations.check):
        with pytest.raises(DatabaseUnreachable, match="unable to open database file"):
            use(database)
    database.close()


def test_who_opens_a_new_file_waits_for_another_that_does(
    open_database: OpenDatabase, tmp_path: Path
) -> None:
    """SQLite itself would not wait here."""
    waiting = open_database(lock_seconds_max=0.2)
    other = sqlite3.connect(tmp_path / "penstock.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    begun = time.monotonic()
    with pytest.raises(DatabaseUnreachable, match="database is locked"):
        migrations.upgrade(waiting)
    assert time.monotonic() - begun >= 0.19
    other.close()
    migrations.upgrade(waiting)


READ_ONLY = """
import sys
from penstock.backends.database import migrations as upgrade
from penstock.backends.database.engine import Database
from penstock.backends.database import DatabaseUnreachable
database = Database("sqlite:///" + sys.argv[1])
try:
    upgrade.upgrade(database)
except DatabaseUnreachable as error:
    print(error)
"""


def test_a_read_only_disk_is_a_clear_error(database: Database, path: Path) -> None:
    database.close()
    mount = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
    unshare = shutil.which("unshare")
    for flags in ("-m", "-rm"):
        script = ("sh", "-c", mount, str(path.parent), sys.executable, "-c", READ_ONLY, str(path))
        if unshare is None:
            break
        probe = [unshare, flags, *script[:4], "true"]
        if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
            done = subprocess.run(
                [unshare, flags, *script], capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
            assert "cannot be used: " in done.stdout
            assert str(path) in done.stdout
            return
    pytest.skip("this system does not let a test mount a file system of its own")


def test_a_database_in_memory_works() -> None:
    database = Database("sqlite://")
    migrations.upgrade(database)
    touch(database)
    assert look(database) == 1
    database.close()
