"""Add the journal of evidence and the ids of trials. The journal begins with what stands in the
tables: whether that was changed before, nobody can say."""

import hashlib
import json
import time
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

_ROWS_AN_ENTRY = 5_000
_SCOPE = ("tenant", "suite", "suite_version", "checkpoint")
_ATTEMPT: dict[str, sa.types.TypeEngine[Any]] = {
    "task": sa.String(),
    "attempt": sa.Integer(),
    "run": sa.String(),
    "status": sa.String(),
    "score": sa.Float(),
    "error": sa.Text(),
    "completion_tokens": sa.BigInteger(),
    "prompt_tokens": sa.BigInteger(),
    "cost_usd": sa.Float(),
    "latency_s": sa.Float(),
    "steps": sa.BigInteger(),
    "tool_calls": sa.BigInteger(),
    "invalid_tool_calls": sa.BigInteger(),
    "edited": sa.Boolean(),
    "asked": sa.Boolean(),
    "retries": sa.Integer(),
    "scored_at": sa.BigInteger(),
}
Columns = list[sa.ColumnClause[Any]]
_RUN = ("id", "kind", "source", "conditions", "problems", "started_at", "finished_at")
_READ = ("benchmark_design", "benchmark_run", "suite_version")


def upgrade() -> None:
    op.add_column("benchmark_attempt", sa.Column("trial", sa.String(length=64), nullable=True))
    op.create_table(
        "benchmark_journal",
        sa.Column("tenant", sa.String(length=128), nullable=False),
        sa.Column("suite", sa.String(length=128), nullable=False),
        sa.Column("suite_version", sa.String(length=80), nullable=False),
        sa.Column("checkpoint", sa.String(length=128), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint(*_SCOPE, "number", name=op.f("pk_benchmark_journal")),
    )
    connection = op.get_bind()
    if connection.dialect.name == "postgresql":
        op.execute(f"LOCK TABLE {', '.join(_READ)} IN SHARE MODE")
    _write_down(connection)
    if connection.dialect.name == "postgresql":
        op.execute(
            "CREATE TRIGGER keep_benchmark_journal BEFORE UPDATE OR DELETE OR TRUNCATE"
            " ON benchmark_journal FOR EACH STATEMENT EXECUTE FUNCTION keep_evidence()"
        )
        return
    for change in ("UPDATE", "DELETE"):
        op.execute(
            f"CREATE TRIGGER keep_benchmark_journal_{change.lower()} BEFORE {change} ON"
            " benchmark_journal BEGIN SELECT RAISE(ABORT,"
            " 'rows of benchmark_journal are evidence and stay'); END"
        )


def downgrade() -> None:
    op.drop_table("benchmark_journal")
    op.drop_column("benchmark_attempt", "trial")


def _write_down(connection: sa.Connection) -> None:
    now = int(time.time() * 1_000_000)
    scope: Columns = [sa.column(name) for name in _SCOPE]
    for whose in _scopes(connection, "suite_version", _SCOPE[:2]):
        entry = {"versions": _versions(connection, whose), "runs": [], "design": None}
        _append(connection, (*whose, "", ""), [entry | {"at": now, "fields": [], "rows": []}])
    scopes = {
        whose
        for table in ("benchmark_attempt", "benchmark_run", "benchmark_design")
        for whose in _scopes(connection, table, _SCOPE)
    }
    attempt = [sa.column(name, kind) for name, kind in _ATTEMPT.items()]
    for whose in sorted(scopes):
        own = sa.and_(*(column == value for column, value in zip(scope, whose, strict=True)))
        query = sa.select(*attempt).select_from(sa.table("benchmark_attempt")).where(own)
        rows = [list(row) for row in connection.execute(query.order_by("task", "attempt"))]
        design = connection.scalar(
            sa.select(sa.column("document")).select_from(sa.table("benchmark_design")).where(own)
        )
        entries = []
        for start in range(0, max(len(rows), 1), _ROWS_AN_ENTRY):
            first = start == 0
            entries.append({
                "at": now,
                "fields": list(_ATTEMPT),
                "rows": rows[start : start + _ROWS_AN_ENTRY],
                "runs": _runs(connection, own) if first else [],
                "versions": [],
                "design": design if first else None,
            })  # fmt: skip
        _append(connection, whose, entries)


def _scopes(connection: sa.Connection, table: str, names: tuple[str, ...]) -> list[tuple[str, ...]]:
    columns: Columns = [sa.column(name) for name in names]
    query = sa.select(*columns).select_from(sa.table(table)).distinct()
    return sorted(tuple(row) for row in connection.execute(query))


def _versions(connection: sa.Connection, whose: tuple[str, ...]) -> list[dict[str, Any]]:
    columns: Columns = [sa.column(name) for name in ("version", "created_at", "tasks", "content")]
    own = (sa.column("tenant") == whose[0]) & (sa.column("suite") == whose[1])
    query = sa.select(*columns).select_from(sa.table("suite_version")).where(own)
    return [
        {
            "version": row.version,
            "created_at": row.created_at,
            "tasks": f"sha256:{hashlib.sha256(row.tasks.encode()).hexdigest()}",
            "content": f"sha256:{hashlib.sha256(row.content.encode()).hexdigest()}",
        }
        for row in connection.execute(query.order_by("created_at", "version"))
    ]


def _runs(connection: sa.Connection, own: sa.ColumnElement[bool]) -> list[dict[str, Any]]:
    columns: Columns = [sa.column(name) for name in _RUN]
    query = sa.select(*columns).select_from(sa.table("benchmark_run")).where(own)
    return [
        dict(row._mapping)
        | {"conditions": _decoded(row.conditions, "{}"), "problems": _decoded(row.problems, "[]")}
        for row in connection.execute(query.order_by("started_at", "id"))
    ]


def _decoded(text: str | None, empty: str) -> Any:
    try:
        return json.loads(text or empty)
    except ValueError:
        return text


def _append(
    connection: sa.Connection, whose: tuple[str, ...], entries: list[dict[str, Any]]
) -> None:
    journal = sa.table("benchmark_journal", *map(sa.column, [*_SCOPE, *_ENTRY]))
    before = "0" * 64
    for number, document in enumerate(entries, 1):
        text = _json(document)
        parts = [before, *whose, str(number), "found", text]
        before = hashlib.sha256("\n".join(parts).encode()).hexdigest()
        values = zip([*_SCOPE, *_ENTRY], [*whose, number, "found", text, before], strict=True)
        connection.execute(sa.insert(journal).values(dict(values)))


_ENTRY = ("number", "kind", "document", "hash")


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
