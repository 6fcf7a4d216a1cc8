"""The journal of evidence: all records of a checkpoint at a version of a suite, or of a suite's
versions, in order, as a chain."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.backends.audit.entry import BEGINNING, Head
from penstock.backends.audit.hash_chain import Chain
from penstock.registry.checkpoints.tables import benchmark_attempt, benchmark_journal


@dataclass(frozen=True)
class AttemptScope:
    """A checkpoint at one version of a suite."""

    tenant: str
    suite: str
    suite_version: str
    checkpoint: str

    @property
    def chain(self) -> Chain:
        return Chain(benchmark_journal, asdict(self))

    def condition(self, table: sa.Table) -> sa.ColumnElement[bool]:
        return sa.and_(*(table.c[name] == value for name, value in asdict(self).items()))


#: `attempts`: new ones, or scores that replace errors. `run`, `problem`, `end`: parts of a run.
#: `version`: a version of the suite. `design`: the plan of attempts.
EntryKind = Literal["attempts", "run", "problem", "end", "version", "design"]

#: The columns of an attempt beyond its scope, and which of them all rows of an entry share.
_SCOPE = ("tenant", "suite", "suite_version", "checkpoint")
ATTEMPT_COLUMNS = [str(each.name) for each in benchmark_attempt.c if each.name not in _SCOPE]
_SHARED = ("run", "scored_at")
#: Attempts per entry: databases limit the length of a text.
ROWS_AN_ENTRY = 5_000

Place = tuple[str, int]
Row = dict[str, Any]


@dataclass
class Journal:
    """A journal, and the rows that it records. `damage` names the first altered entry."""

    hashes: list[str] = field(default_factory=list)
    attempts: dict[Place, Row] = field(default_factory=dict)
    runs: dict[str, Row] = field(default_factory=dict)
    versions: dict[str, Row] = field(default_factory=dict)
    #: The first plan of its attempts.
    design: Row | None = None
    damage: str | None = None

    @property
    def head(self) -> Head:
        return self.head_at(len(self.hashes))

    def head_at(self, number: int) -> Head:
        """The head at an entry, or before the first one if there is none."""
        known = 0 < number <= len(self.hashes)
        return Head(number, self.hashes[number - 1]) if known else BEGINNING


def append_entry(
    connection: Connection, scope: AttemptScope, kind: EntryKind, document: Mapping[str, Any]
) -> None:
    """Record what the same transaction does to the tables."""
    scope.chain.append(connection, {"kind": kind, "document": json_text(document)})


def json_text(value: object) -> str:
    return msgspec.json.encode(value).decode()


def append_attempts(
    connection: Connection, scope: AttemptScope, rows: Sequence[Mapping[str, Any]]
) -> None:
    """Record rows of the table, all of one run and moment."""
    fields = [name for name in ATTEMPT_COLUMNS if name not in _SHARED]
    for start in range(0, len(rows), ROWS_AN_ENTRY):
        part = rows[start : start + ROWS_AN_ENTRY]
        values = [[row[name] for name in fields] for row in part]
        same = {name: part[0][name] for name in _SHARED}
        append_entry(connection, scope, "attempts", same | {"fields": fields, "rows": values})


def read_journal(connection: Connection, scope: AttemptScope) -> Journal:
    journal = Journal()
    if flaw := scope.chain.flaw(connection):
        journal.damage = f"entry {flaw.number} of its journal was altered: {flaw.why}"
        return journal
    for row in connection.execute(scope.chain.select_entries()):
        journal.hashes.append(row.hash)
        _follow(journal, row.kind, msgspec.json.decode(row.document))
    return journal


def _follow(journal: Journal, kind: EntryKind, document: dict[str, Any]) -> None:
    match kind:
        case "attempts":
            same = {name: document[name] for name in _SHARED}
            for values in document["rows"]:
                row = dict(zip(document["fields"], values, strict=True)) | same
                journal.attempts[row["task"], row["attempt"]] = row
        case "run":
            journal.runs[document["id"]] = document
        case "problem":
            journal.runs[document["run"]]["problems"].append(document["problem"])
        case "end":
            journal.runs[document["run"]]["finished_at"] = document["finished_at"]
        case "version":
            journal.versions[document["version"]] = document
        case "design":
            journal.design = journal.design or document
