"""The migration, the script and the tables of the code are the same."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from bench.schema_script import schema_script
from penstock.backends.database import DatabaseOutdated, migrations
from penstock.backends.database.engine import Database
from penstock.backends.database.tables import all_tables
from penstock.lake.tables import lake_head

OpenDatabase = Callable[..., Database]


def schema_of(database: Database) -> dict[str, object]:
    """Tables with all that belongs to them."""
    inspector = sa.inspect(database.engine)
    return {
        table: (
            [str(column) for column in inspector.get_columns(table)],
            inspector.get_pk_constraint(table),
            sorted(map(str, inspector.get_unique_constraints(table))),
            sorted(map(str, inspector.get_foreign_keys(table))),
            sorted(map(str, inspector.get_check_constraints(table))),
            sorted(map(str, inspector.get_indexes(table))),
        )
        for table in inspector.get_table_names()
        if table != "alembic_version"
    }


def test_script_migration_and_tables_are_the_same(database: Database) -> None:
    """Names of keys and indexes included, which Alembic's comparison does not see."""
    all_tables().create_all(database.engine)
    made = schema_of(database)
    all_tables().drop_all(database.engine)
    migrations.upgrade(database)
    assert schema_of(database) == made
    with database.read() as connection:
        options = {"compare_type": True, "compare_server_default": True}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, all_tables()) == []
        assert connection.execute(sa.select(lake_head)).all() == [(1, 0, 0, 0)]


def test_the_script_is_up_to_date() -> None:
    """Otherwise: `make schema`."""
    written = (migrations.migrations_folder() / "schema.sql").read_text(encoding="utf-8")
    assert written == schema_script()
    config = Config()
    config.set_main_option("script_location", str(migrations.migrations_folder()))
    assert ScriptDirectory.from_config(config).get_heads() == [migrations.REVISION]


def test_an_empty_database_gets_its_tables(database: Database) -> None:
    with pytest.raises(DatabaseOutdated, match="at revision none"):
        migrations.check(database)
    for _ in range(2):  # nothing to do is no error
        migrations.upgrade(database)
        assert migrations.check(database) == migrations.REVISION


def test_a_value_of_another_type_is_refused(database: Database) -> None:
    migrations.upgrade(database)
    with pytest.raises(sa.exc.DBAPIError), database.write() as connection:
        connection.exec_driver_sql("UPDATE lake_head SET snap = 'many'")


def test_everything_in_the_database_has_a_name_by_the_rule(database: Database) -> None:
    """A migration can change only what it can name."""
    migrations.upgrade(database)
    inspector = sa.inspect(database.engine)
    for table in all_tables().tables:
        assert inspector.get_pk_constraint(table)["name"] == f"pk_{table}"
        for unique in inspector.get_unique_constraints(table):
            assert unique["name"] == f"uq_{table}_{unique['column_names'][0]}"
        for key in inspector.get_foreign_keys(table):
            columns = key["constrained_columns"]
            assert key["name"] == f"fk_{table}_{columns[0]}_{key['referred_table']}"
        for check in inspector.get_check_constraints(table):
            assert str(check["name"]).startswith(f"ck_{table}_")
        for index in inspector.get_indexes(table):
            if not index.get("duplicates_constraint"):
                assert str(index["name"]).startswith(f"ix_{table}_")


def test_an_upgrade_that_fails_changes_nothing(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables and revision change together or not at all."""

    class Stop(Exception):
        pass

    def stop(*_arguments: object) -> None:
        raise Stop

    with monkeypatch.context() as patch:
        if database.is_sqlite:
            patch.setattr("sqlalchemy.engine.Transaction.commit", stop)
        else:
            patch.setattr("alembic.operations.Operations.get_bind", stop)
        with pytest.raises(Stop):
            migrations.upgrade(database)
    assert schema_of(database) == {}
    migrations.upgrade(database)


def test_a_database_of_another_revision_is_refused(database: Database) -> None:
    migrations.upgrade(database)
    before = schema_of(database)
    with database.write() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    for attempt in (migrations.check, migrations.upgrade):
        with pytest.raises(DatabaseOutdated) as refused:
            attempt(database)
        assert refused.value.facts == {"found": "9999", "needed": migrations.REVISION}
    assert schema_of(database) == before


UPGRADE = """
import sys
from penstock.backends.database.engine import Database
from penstock.backends.database import DatabaseLimits as Limits
from penstock.backends.database.migrations import upgrade
database = Database(sys.argv[1], Limits(lock_seconds_max=30))
print("ready", flush=True)
sys.stdin.readline()
upgrade(database)
"""


def test_processes_upgrade_at_once_and_all_succeed(url: str, database: Database) -> None:
    pipes: Any = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    command = [sys.executable, "-c", UPGRADE, url]
    processes = [subprocess.Popen(command, text=True, **pipes) for _ in range(3)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        _, error = process.communicate("go\n", timeout=300)
        assert process.returncode == 0, error
    migrations.check(database)
    with database.read() as connection:
        assert connection.scalar(sa.select(sa.func.count()).select_from(lake_head)) == 1
