"""migrations/schema.sql: what the migration makes in a new SQLite database."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from penstock.backends.database.engine import Database
from penstock.backends.database.migrations import migrate, migrations_folder

_ORDER = "CASE type WHEN 'table' THEN 1 WHEN 'index' THEN 2 ELSE 3 END, name"


def schema_script() -> str:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "penstock.db"
        database = Database(f"sqlite:///{path}")
        with database.write() as connection:
            migrate(connection)
        database.close()
        with closing(sqlite3.connect(path)) as made:
            query = f"SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY {_ORDER}"
            schema = [re.sub(r"\s+\n", "\n", sql) for (sql,) in made.execute(query)]
            rows = [line for line in made.iterdump() if line.startswith("INSERT")]
    return ";\n".join([*schema, *(row.rstrip(";") for row in rows)]) + "\n"


if __name__ == "__main__":
    (migrations_folder() / "schema.sql").write_text(schema_script(), encoding="utf-8")
