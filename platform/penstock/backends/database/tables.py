"""Helpers that the tables of all rooms share, and the table of leases."""

from typing import Any

from sqlalchemy import DDL, BigInteger, Boolean, Column, Float, MetaData, String, Table, event
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateTable

from penstock.core.room import rooms

NAMES = {
    "ix": "ix_%(column_0_label)s",
    "uq": "uq_%(table_name)s_%(column_0_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}

metadata = MetaData(naming_convention=NAMES)

#: All that a strict table of SQLite knows.
_SQLITE_NAMES = {BigInteger: "INTEGER", Boolean: "INTEGER", Float: "REAL", String: "TEXT"}
for _kind, _name in _SQLITE_NAMES.items():
    compiles(_kind, "sqlite")(lambda _type, _compiler, _known=_name, **_options: _known)


@compiles(CreateTable, "sqlite")
def _strict_table(create: CreateTable, compiler: Any, **options: Any) -> str:
    """Make SQLite refuse values of another type, as PostgreSQL does."""
    return f"{compiler.visit_create_table(create, **options).rstrip()} STRICT"


def name_columns(*names: str, **options: Any) -> list[Column[str]]:
    return [Column(name, String(128), **options) for name in names]


def required(kind: Any, *names: str) -> list[Column[Any]]:
    return [Column(name, kind, nullable=False) for name in names]


def all_tables() -> MetaData:
    for room in rooms():
        room.tables()
    return metadata


def run_once_made(table: Table, statement: str, dialect: str | None = None) -> None:
    """Run a statement when the table is created. Double each `%`."""
    made = DDL(statement)  # type: ignore[no-untyped-call]  # it has no types
    event.listen(table, "after_create", made.execute_if(dialect=dialect))


def keep_rows(table: Table) -> None:
    """Make the database refuse changes of the rows: they are evidence."""
    kept = f"rows of {table.name} are evidence and stay"
    sqlite = [
        f"CREATE TRIGGER keep_{table.name}_{change.lower()} BEFORE {change} ON {table.name}"
        f" BEGIN SELECT RAISE(ABORT, '{kept}'); END"
        for change in ("UPDATE", "DELETE")
    ]
    postgresql = [
        "CREATE OR REPLACE FUNCTION keep_evidence() RETURNS trigger LANGUAGE plpgsql AS $$"
        " BEGIN RAISE EXCEPTION 'rows of %% are evidence and stay', TG_TABLE_NAME; END $$",
        f"CREATE TRIGGER keep_{table.name} BEFORE UPDATE OR DELETE OR TRUNCATE ON {table.name}"
        " FOR EACH STATEMENT EXECUTE FUNCTION keep_evidence()",
    ]
    for dialect, statements in (("sqlite", sqlite), ("postgresql", postgresql)):
        for statement in statements:
            run_once_made(table, statement, dialect)


#: Work that only one process may do at a time, by name.
lease = Table(
    "lease",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("owner", String(64)),
    Column("epoch", BigInteger, nullable=False),
    Column("until", BigInteger, nullable=False),
)
