"""Processes are upgraded one by one: code of the revision before works on the newer tables."""

import shutil
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import Connection, Table

from penstock.database import migrations
from penstock.database.engine import Database
from penstock.database.errors import DatabaseOutdated
from tests.database.test_migrations import breaks_older_code, revision_of, revisions
from tests.support.servers.interleaving import Running

OpenDatabase = Callable[..., Database]
STEPS = list(zip(revisions(), revisions()[1:], strict=False))
#: Tables whose rows are never changed or deleted: the database itself refuses it.
EVIDENCE = frozenset(
    {"benchmark_design", "benchmark_journal", "channel_change", "checkpoint_move", "verdict"}
)


@pytest.mark.parametrize(("older", "newer"), STEPS)
def test_a_step_only_adds(database: Database, older: str, newer: str) -> None:
    """Or it says `breaks_older_code = True`."""
    migrations.upgrade(database, older)
    before = sa.inspect(database.engine)
    tables = {name: what_older_code_relies_on(before, name) for name in before.get_table_names()}
    migrations.upgrade(database, newer)
    after = sa.inspect(database.engine)
    if breaks_older_code(newer):
        return
    assert set(tables) <= set(after.get_table_names())
    for name, (columns, keys) in tables.items():
        columns_now, keys_now = what_older_code_relies_on(after, name)
        assert columns.items() <= columns_now.items()
        assert keys_now == keys
        for column in after.get_columns(name):
            fills_itself = column["nullable"] or column["default"] is not None
            assert column["name"] in columns or fills_itself


def what_older_code_relies_on(
    inspector: sa.Inspector, table: str
) -> tuple[dict[str, str], list[str]]:
    columns = {
        one["name"]: f"{one['type']} {one['nullable']} {one['default']}"
        for one in inspector.get_columns(table)
    }
    keys = [
        inspector.get_pk_constraint(table),
        *inspector.get_unique_constraints(table),
        *inspector.get_foreign_keys(table),
        *inspector.get_check_constraints(table),
        *(index for index in inspector.get_indexes(table) if index["unique"]),
    ]
    return columns, sorted(map(str, keys))


class OlderCode:
    """Knows the tables of its revision, and uses each column of each in every way."""

    #: Of rows; all that run share them, since what is evidence stays.
    _numbers = count(1000)

    def __init__(self, database: Database) -> None:
        self._database = database
        metadata = sa.MetaData()
        metadata.reflect(database.engine)
        ours = ("alembic_version", "supported_revision")
        self.tables = [one for one in metadata.sorted_tables if one.name not in ours]

    def work(self) -> None:
        for table in self.tables:
            with self._database.write() as connection:
                self.use(connection, table)

    def use(self, connection: Connection, table: Table) -> None:
        number = next(self._numbers)
        row = {column.name: _value(column, number) for column in table.columns}
        here = sa.and_(*(column == row[column.name] for column in table.primary_key))
        connection.execute(sa.insert(table).values(row))
        if table.name in EVIDENCE:  # written once, and read
            assert connection.execute(sa.select(table).where(here)).one()._asdict() == row
            return
        same = sa.update(table).where(here).values(row)
        assert connection.execute(same).rowcount == 1
        assert connection.execute(sa.select(table).where(here)).one()._asdict() == row
        assert connection.execute(sa.delete(table).where(here)).rowcount == 1


def _value(column: sa.Column[Any], number: int) -> Any:
    python_type = column.type.python_type
    return str(number).encode() if python_type is bytes else python_type(number)


@pytest.mark.parametrize(("older", "newer"), STEPS)
def test_older_code_works_on_during_an_upgrade_and_after(
    database: Database, open_database: OpenDatabase, older: str, newer: str
) -> None:
    if breaks_older_code(newer):
        return
    migrations.upgrade(database, older)
    code, other_process = OlderCode(database), OlderCode(open_database())
    upgraded = threading.Event()
    rounds_after: list[int] = []

    def work_on() -> None:
        while len(rounds_after) < 2:
            after = upgraded.is_set()
            other_process.work()
            if after:
                rounds_after.append(1)

    def step() -> None:
        migrations.upgrade(open_database(), newer)
        upgraded.set()

    beside, step_up = Running(work_on), Running(step)
    beside.start()
    with database.write() as connection:
        for table in code.tables:
            code.use(connection, table)
        step_up.start()
        while step_up.thread.is_alive() and not waits_where_that_can_be_seen(database):
            pass
        for table in code.tables:
            code.use(connection, table)
    step_up.finish()
    beside.finish()
    code.work()
    assert revision_of(database) == newer


def waits_where_that_can_be_seen(database: Database) -> bool:
    if database.is_sqlite:
        return True
    waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'relation' AND NOT granted"
    with database.read() as connection:
        return bool(connection.exec_driver_sql(waits).scalar_one())


@pytest.mark.parametrize(("older", "newer"), STEPS)
def test_older_code_can_be_started_on_newer_tables(
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    older: str,
    newer: str,
) -> None:
    """As when a process dies while the others are upgraded."""
    migrations.upgrade(database, newer)
    breaks = breaks_older_code(newer)
    as_shipped_with(older, monkeypatch, tmp_path)
    assert migrations.newest_revision() == older
    if breaks:
        with pytest.raises(DatabaseOutdated):
            migrations.check(database)
        return
    assert migrations.check(database) == newer
    migrations.upgrade(database)
    assert migrations.check(database) == newer


def as_shipped_with(revision: str, monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    """Only the migrations up to this one."""
    wanted = {one.path for one in migrations._scripts().iterate_revisions(revision, "base")}
    shipped = directory / "migrations"
    (shipped / "versions").mkdir(parents=True)
    shutil.copy(migrations._migrations() / "env.py", shipped)
    for path in wanted:
        shutil.copy(path, shipped / "versions")
    monkeypatch.setattr(migrations, "_migrations", lambda: shipped)
