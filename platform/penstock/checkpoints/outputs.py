"""What failed attempts wrote. The journal of evidence holds its digest alone, so that the text can
go when it is old, and the journal stays as it was."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.checkpoints.tables import attempt_output
from penstock.database.engine import clock_us, insert_of, portions
from penstock.lake.lake import Lake
from penstock.privacy.retention import RetentionCount, RetentionPart, RetentionScope

_FIELD = "output"
_DIGEST = "sha256:"
_DIGEST_CHARS = len(_DIGEST) + 64


def set_output_apart(
    connection: Connection, tenant: str, problem: Mapping[str, Any]
) -> dict[str, Any]:
    """The problem with the digest of its output, and the text kept beside it."""
    text = problem.get(_FIELD)
    if not isinstance(text, str) or not text:
        return dict(problem)
    digest = _DIGEST + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    storable = text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")
    at = clock_us(connection)
    row = {"tenant": tenant, "digest": digest, "text": storable, "recorded_at": at}
    insert = insert_of(connection)(attempt_output).values(**row)
    keys = attempt_output.primary_key.columns
    # The same output again is as young as the last attempt that wrote it.
    connection.execute(insert.on_conflict_do_update(index_elements=keys, set_={"recorded_at": at}))
    return {**problem, _FIELD: digest}


def with_outputs(connection: Connection, tenant: str, problems: Iterable[Any]) -> list[Any]:
    """Problems with their outputs in place of the digests, as far as those are still kept."""
    problems = list(problems)
    digests = {each[_FIELD] for each in problems if _has_digest(each)}
    columns = attempt_output.c
    texts: dict[str, str] = {}
    for some in portions(sorted(digests)):
        mine = (columns.tenant == tenant, columns.digest.in_(some))
        query = sa.select(columns.digest, columns.text).where(*mine)
        texts.update((row.digest, row.text) for row in connection.execute(query))
    return [
        {**each, _FIELD: texts.get(each[_FIELD], each[_FIELD])} if _has_digest(each) else each
        for each in problems
    ]


def _has_digest(problem: Any) -> bool:
    output = problem.get(_FIELD) if isinstance(problem, dict) else None
    return isinstance(output, str) and output.startswith(_DIGEST) and len(output) == _DIGEST_CHARS


# Retention


def _aged(scope: RetentionScope) -> sa.ColumnElement[bool]:
    columns = attempt_output.c
    return (columns.tenant == scope.tenant) & (columns.recorded_at <= scope.until_us)


def _count(lake: Lake, scope: RetentionScope) -> RetentionCount:
    size = sa.func.coalesce(sa.func.sum(sa.func.length(attempt_output.c.text)), 0)
    query = sa.select(sa.func.count(), size).select_from(attempt_output).where(_aged(scope))
    with lake.database.read() as connection:
        rows, characters = connection.execute(query).one()
    return RetentionCount(rows=rows, bytes=characters)


def _remove(lake: Lake, scope: RetentionScope) -> RetentionCount:
    counted = _count(lake, scope)
    with lake.database.write() as connection:
        rows = connection.execute(sa.delete(attempt_output).where(_aged(scope))).rowcount
    return RetentionCount(rows=rows, bytes=counted.bytes)


ATTEMPTS = RetentionPart(_count, _remove)
