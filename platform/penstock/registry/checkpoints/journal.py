"""The journal of evidence: all records of a checkpoint at a version of a suite, or of a suite's
versions, in order. Each entry's hash covers the hash of the one before."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.backends.audit.entry import NO_HASH, ChainReader, hash_of
from penstock.backends.audit.signed_heads import chain_name, head_flaw, sign_head
from penstock.backends.database.engine import insert_new
from penstock.registry.checkpoints.tables import benchmark_attempt, benchmark_journal


@dataclass(frozen=True)
class AttemptScope:
    """A checkpoint at one version of a suite."""

    tenant: str
    suite: str
    suite_version: str
    checkpoint: str

    @property
    def chain(self) -> str:
        return chain_name("journal", *asdict(self).values())

    def condition(self, table: sa.Table) -> sa.ColumnElement[bool]:
        return sa.and_(*(table.c[name] == value for name, value in asdict(self).items()))


#: `attempts`: new ones, or scores that replace errors. `run`, `problem`, `end`: parts of a run.
#: `version`: a version of the suite. `design`: the plan of attempts.
EntryKind = Literal["attempts", "run", "problem", "end", "version", "design"]

#: The columns of an attempt beyond its scope.
ATTEMPT_COLUMNS = tuple(
    str(column.name)
    for column in benchmark_attempt.c
    if column.name not in ("tenant", "suite", "suite_version", "checkpoint")
)
#: Attempts per entry: databases limit the length of a text.
ROWS_AN_ENTRY = 5_000

Place = tuple[str, int]
AttemptRow = tuple[Any, ...]


@dataclass(frozen=True)
class JournalHead:
    """A journal up to an entry. With both fields any change of earlier entries is noticed."""

    entries: int = 0
    hash: str = NO_HASH


NOTHING_RECORDED = JournalHead()


@dataclass
class Journal:
    """A journal, and the rows that it records. `damage` names the first altered entry."""

    hashes: list[str] = field(default_factory=list)
    attempts: dict[Place, AttemptRow] = field(default_factory=dict)
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    versions: dict[str, dict[str, Any]] = field(default_factory=dict)
    design: str | None = None
    damage: str | None = None

    @property
    def head(self) -> JournalHead:
        return self.head_at(len(self.hashes))

    def head_at(self, entries: int) -> JournalHead:
        """The head at an entry, or NOTHING_RECORDED if there is none."""
        if not 0 < entries <= len(self.hashes):
            return NOTHING_RECORDED
        return JournalHead(entries, self.hashes[entries - 1])


def append_entry(
    connection: Connection, scope: AttemptScope, kind: EntryKind, document: Mapping[str, Any]
) -> None:
    """Record what the same transaction does to the tables."""
    text = msgspec.json.encode(document).decode()
    columns, whose = benchmark_journal.c, asdict(scope)
    newest = sa.select(columns.number, columns.hash).where(scope.condition(benchmark_journal))
    while True:  # another transaction may have used this number meanwhile
        last = connection.execute(newest.order_by(columns.number.desc()).limit(1)).first()
        number, before = (last.number + 1, last.hash) if last is not None else (1, NO_HASH)
        row = whose | {"number": number, "kind": kind, "document": text}
        row["hash"] = hash_of(row | {"previous_hash": before})
        if insert_new(connection, benchmark_journal, row):
            sign_head(connection, scope.chain, number, row["hash"])
            return


def append_attempts(
    connection: Connection, scope: AttemptScope, rows: Sequence[Mapping[str, Any]]
) -> None:
    """Record rows of the table, all of one run and moment."""
    fields = [name for name in ATTEMPT_COLUMNS if name not in ("run", "scored_at")]
    for start in range(0, len(rows), ROWS_AN_ENTRY):
        part = rows[start : start + ROWS_AN_ENTRY]
        values = [[row[name] for name in fields] for row in part]
        same = {name: part[0][name] for name in ("run", "scored_at")}
        append_entry(connection, scope, "attempts", same | {"fields": fields, "rows": values})


def read_journal(connection: Connection, scope: AttemptScope) -> Journal:
    columns = benchmark_journal.c
    query = sa.select(columns.number, columns.kind, columns.document, columns.hash)
    query = query.where(scope.condition(benchmark_journal)).order_by(columns.number)
    journal, whose, chain = Journal(), asdict(scope), ChainReader()
    for row in connection.execute(query):
        entry = whose | row._asdict() | {"previous_hash": chain.hash}
        if why := chain.follow(row.number, entry):
            journal.damage = f"entry {chain.number + 1} of its journal was altered: {why}"
            break
        journal.hashes.append(row.hash)
        _follow(journal, row.kind, msgspec.json.decode(row.document))
    if journal.damage is None:
        head = journal.head
        if why := head_flaw(connection, scope.chain, head.entries, head.hash):
            journal.damage = f"its journal is not as it was signed: {why}"
    return journal


def _follow(journal: Journal, kind: EntryKind, document: dict[str, Any]) -> None:
    match kind:
        case "attempts":
            same = {name: document[name] for name in ("run", "scored_at")}
            for values in document["rows"]:
                row = dict(zip(document["fields"], values, strict=True)) | same
                kept = tuple(row[name] for name in ATTEMPT_COLUMNS)
                journal.attempts[row["task"], row["attempt"]] = kept
        case "run":
            journal.runs[document["id"]] = document
        case "problem":
            journal.runs[document["run"]]["problems"].append(document["problem"])
        case "end":
            journal.runs[document["run"]]["finished_at"] = document["finished_at"]
        case "version":
            journal.versions[document["version"]] = document
        case "design":
            journal.design = document["document"]
