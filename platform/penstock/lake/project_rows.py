"""What a query of one project may read: copies of the rows of that project's sessions.

A condition in a view would not do: the engine may work out a user's condition first, and say in an
error what was in a row that the view leaves out. So statements of our own copy the project's rows
before the user's statement runs, and the connection is shut off from the files that they came
from. Whatever the statement is, there is nothing else to read. Statements of our own say nothing
but what they are written to say: they read the same rows without a copy.
"""

from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from penstock.lake.statements import Preparation

#: The column that says which session a row is of.
SESSION = "session_id"
#: Relations that were whole, and that nothing needs once the copies are there.
_WHOLE = ("session_parts", "event_rows", "stored_sessions", "stored_events")
_WHOLE_TABLES = ("fresh_sessions", "fresh_events", "consent_changes")
_FIND = files("penstock.lake").joinpath("project_sessions.sql").read_text(encoding="utf-8")


@dataclass
class ProjectRows:
    """Copies relations of a connection, into a folder that is the statement's own."""

    project: str
    folder: str
    connection: Preparation
    #: Whether the statement is a user's.
    copies: bool
    _paths: list[str] = field(default_factory=list)

    def find_sessions(self) -> None:
        """Which sessions are the project's, by the relations `session_parts` and `event_rows`."""
        self.connection.execute("SET VARIABLE project = ?", [self.project])
        self.connection.execute(_FIND)
        if self.copies:
            self.connection.left_paths = self._paths

    def keep(self, name: str) -> None:
        """Has the relation hold the rows of these sessions, and no others."""
        whole = f"whole_{name}"
        rows = f"SELECT * FROM {name if self.copies else whole} "
        rows += f"SEMI JOIN project_sessions USING ({SESSION})"
        if not self.copies:
            self.connection.execute(f"ALTER VIEW {name} RENAME TO {whole}")
            self.connection.execute(f"CREATE VIEW {name} AS {rows}")
            return
        path = str(Path(self.folder, f"{name}.parquet"))
        quoted = path.replace("'", "''")
        copy = f"COPY ({rows}) TO '{quoted}' (FORMAT parquet, COMPRESSION zstd)"
        self.connection.execute(copy)
        self.connection.drop(name)
        self.connection.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{quoted}')")
        self._paths.append(path)

    def drop_others(self) -> None:
        """Leaves the copies, and what is made of them."""
        if not self.copies:
            return
        kept = {Path(path).stem for path in self._paths}
        for name in (*_WHOLE, *_WHOLE_TABLES):
            if name not in kept:
                self.connection.drop(name)
        self.connection.execute("DROP TABLE project_sessions")
