"""Every way through the migrations ends in the tables that the code knows."""

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import Script, ScriptDirectory

from penstock.database import migrations
from penstock.database.engine import Database
from penstock.database.errors import DatabaseOutdated
from penstock.database.tables import all_tables, supported_revision
from penstock.lake.tables import lake_head

OpenDatabase = Callable[..., Database]


def revisions() -> list[str]:
    """From the first to the newest."""
    config = Config()
    config.set_main_option("script_location", str(migrations._migrations()))
    scripts = ScriptDirectory.from_config(config).walk_revisions()
    return [script.revision for script in scripts][::-1]


def revision_of(database: Database) -> str | None:
    with database.read() as connection:
        return MigrationContext.configure(connection).get_current_revision()


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


def test_an_empty_database_reaches_the_newest_revision(database: Database) -> None:
    assert revision_of(database) is None
    with pytest.raises(DatabaseOutdated, match="at revision none"):
        migrations.check(database)
    migrations.upgrade(database)
    assert migrations.check(database) == migrations.newest_revision() == revisions()[-1]
    migrations.upgrade(database)  # nothing to do is no error
    assert migrations.check(database) == migrations.newest_revision()


def test_the_files_say_which_revision_is_the_newest(tmp_path: Path) -> None:
    """As Alembic says, which takes long to load."""
    assert migrations.revision_by_files(migrations._migrations()) == migrations.newest_revision()
    versions = tmp_path / "versions"
    versions.mkdir()
    (versions / "one.py").write_text('revision = "1"\ndown_revision = None\n')
    assert migrations.revision_by_files(tmp_path) == "1"
    (versions / "other.py").write_text('revision = "2"\ndown_revision = None\n')
    assert migrations.revision_by_files(tmp_path) is None


def test_every_step_goes_up_and_down_and_up_again(database: Database) -> None:
    before = schema_of(database)
    assert before == {}
    below = "base"
    for revision in revisions():
        migrations.upgrade(database, revision)
        after = schema_of(database)
        assert after != before
        migrations.downgrade(database, below)
        assert schema_of(database) == before
        migrations.upgrade(database, revision)
        assert schema_of(database) == after
        before, below = after, revision
    migrations.downgrade(database, "base")
    assert schema_of(database) == {}


def test_migrations_make_the_tables_that_the_code_knows(database: Database) -> None:
    migrations.upgrade(database)
    with database.read() as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "compare_server_default": True}
        )
        assert compare_metadata(context, all_tables()) == []


def test_migrations_and_metadata_make_the_same_schema(database: Database) -> None:
    """Names of keys and indexes included, which the comparison above does not see."""
    all_tables().create_all(database.engine)
    made = schema_of(database)
    all_tables().drop_all(database.engine)
    migrations.upgrade(database)
    assert schema_of(database) == made


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


def test_a_new_lake_has_its_head(database: Database) -> None:
    migrations.upgrade(database)
    with database.read() as connection:
        [row] = connection.execute(sa.select(lake_head))
    assert tuple(row) == (1, 0, 0, 0)


def test_a_failed_upgrade_changes_nothing(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables and revision change together or not at all."""

    class Stop(Exception):
        pass

    def stop(*_arguments: object) -> None:
        raise Stop

    monkeypatch.setattr("alembic.operations.Operations.execute", stop)
    with pytest.raises(Stop):
        migrations.upgrade(database)
    monkeypatch.undo()
    assert schema_of(database) == {}
    assert revision_of(database) is None
    migrations.upgrade(database)
    migrations.check(database)


def make_newer(database: Database, *, suited: Sequence[str]) -> None:
    """As a Penstock of the future leaves it."""
    with database.write() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
        connection.execute(sa.delete(supported_revision))
        for revision in suited:
            connection.execute(sa.insert(supported_revision).values(revision=revision))


def test_a_newer_database_that_suits_this_penstock_is_used_and_left_alone(
    database: Database,
) -> None:
    migrations.upgrade(database)
    before = schema_of(database)
    make_newer(database, suited=["9999", migrations.newest_revision()])
    migrations.upgrade(database)
    assert migrations.check(database) == "9999"
    with pytest.raises(DatabaseOutdated):
        migrations.downgrade(database, "base")
    assert schema_of(database) == before


def test_an_older_database_is_refused_until_it_is_upgraded(database: Database) -> None:
    migrations.upgrade(database, revisions()[-2])
    with pytest.raises(DatabaseOutdated, match=f"at revision {revisions()[-2]}"):
        migrations.check(database)
    migrations.upgrade(database)
    assert migrations.check(database) == revisions()[-1]


def test_each_step_notes_whose_code_the_database_suits(database: Database) -> None:
    suited: list[str] = []
    for revision in revisions():
        migrations.upgrade(database, revision)
        suited = [revision] if breaks_older_code(revision) else [*suited, revision]
        if supported_revision.name in schema_of(database):
            assert suited_by(database) == set(suited)
    migrations.downgrade(database, revisions()[-2])
    assert revisions()[-1] not in suited_by(database)


def breaks_older_code(revision: str) -> bool:
    module = migrations._scripts().get_revision(revision).module
    return bool(getattr(module, "breaks_older_code", False))


def suited_by(database: Database) -> set[str]:
    with database.read() as connection:
        return set(connection.scalars(sa.select(supported_revision.c.revision)))


def test_a_step_that_breaks_older_code_ends_the_list(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_module = Script.__init__

    def broken(self: Script, module: Any, revision: str, path: str) -> None:
        module.breaks_older_code = revision == revisions_known[-1]
        load_module(self, module, revision, path)

    revisions_known = revisions()
    monkeypatch.setattr(Script, "__init__", broken)
    migrations.upgrade(database)
    assert suited_by(database) == {revisions_known[-1]}


def test_a_database_of_a_newer_penstock_is_refused(database: Database) -> None:
    migrations.upgrade(database)
    before = schema_of(database)
    make_newer(database, suited=["9998", "9999"])
    newest = migrations.newest_revision()
    for attempt in (
        lambda: migrations.check(database),
        lambda: migrations.upgrade(database),
        lambda: migrations.downgrade(database, "base"),
    ):
        with pytest.raises(DatabaseOutdated) as refused:
            attempt()
        assert refused.value.facts == {"found": "9999", "needed": newest}
    assert schema_of(database) == before


UPGRADE = """
import sys
from penstock.database.engine import Database
from penstock.database.settings import DatabaseLimits as Limits
from penstock.database.migrations import check, upgrade
database = Database(sys.argv[1], Limits(lock_seconds_max=30))
print("ready", flush=True)
sys.stdin.readline()
upgrade(database)
check(database)
"""


def test_processes_upgrade_at_once_and_all_succeed(url: str, database: Database) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", UPGRADE, url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        _, error = process.communicate(timeout=300)
        assert process.returncode == 0, error
    migrations.check(database)
    with database.read() as connection:
        assert connection.scalar(sa.select(sa.func.count()).select_from(lake_head)) == 1
