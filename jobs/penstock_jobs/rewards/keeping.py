"""What the metadata database keeps of rewards: definitions, how far each has come, what is due."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection, bindparam

from penstock.database.engine import Database, now_us
from penstock.database.inserting import insert_of
from penstock.errors import InvalidInput
from penstock.lake.buckets import SessionId
from penstock_jobs.rewards.definition import Definition
from penstock_jobs.rewards.tables import reward_definition, reward_due

_KEY = ("definition_version", "tenant", "session_id")


class Progress(NamedTuple):
    """Of a definition: sessions that changed up to `through_snap` are done."""

    version: str
    name: str
    through_snap: int
    run_at: int
    text: str


def begin_run(database: Database, definition: Definition, clock_us: int) -> Progress:
    """The definition is known from now on. `run_at` is this run's alone, and later than that of
    any before: what it computes supersedes what they did."""
    with database.write() as connection:
        insert = insert_of(connection)(reward_definition).values(
            version=definition.version,
            name=definition.name,
            text=definition.text,
            created_at=now_us(),
            through_snap=0,
            run_at=0,
        )
        connection.execute(insert.on_conflict_do_nothing())
        last = reward_definition.c.run_at
        moved = (
            sa.update(reward_definition)
            .where(reward_definition.c.version == definition.version)
            .values(run_at=sa.case((last >= clock_us, last + 1), else_=clock_us))
            .returning(*_PROGRESS)
        )
        return Progress(*connection.execute(moved).one())


def finish_run(database: Database, version: str, snap: int) -> None:
    """All that changed up to this snap is done."""
    behind = reward_definition.c.through_snap < snap
    with database.write() as connection:
        connection.execute(
            sa.update(reward_definition)
            .where(reward_definition.c.version == version, behind)
            .values(through_snap=snap)
        )


def known_definitions(database: Database) -> list[Progress]:
    """The one that ran last comes first."""
    with database.read() as connection:
        rows = connection.execute(sa.select(*_PROGRESS).order_by(reward_definition.c.run_at.desc()))
        return [Progress(*row) for row in rows]


def definition_known_as(database: Database, text: str) -> Progress:
    """By its version, the beginning of it, or a name: then the one that ran last. Raises
    InvalidInput."""
    known = known_definitions(database)
    versions = [one for one in known if one.version.startswith(text)] if text else []
    named = [one for one in known if one.name == text]
    if len(versions) > 1 and not named:
        raise InvalidInput(what=f"The version {text!r}", why="several begin so: say more of it")
    if not (found := named or versions):
        there = ", ".join(f"{one.name} ({one.version})" for one in known) or "none"
        raise InvalidInput(what=f"The definition {text!r}", why=f"it has not run; known: {there}")
    return found[0]


def put_due(
    connection: Connection,
    version: str,
    computed_at: int,
    sessions: Iterable[SessionId],
    due: Mapping[SessionId, int],
) -> None:
    """When these sessions mature, as of a moment; what is known as of a later one stays."""
    keys = [{"v": version, "t": one.tenant, "s": one.session_id} for one in sessions]
    if keys:
        mine = [reward_due.c[name] == bindparam(key) for name, key in zip(_KEY, "vts", strict=True)]
        older = reward_due.c.computed_at <= computed_at
        connection.execute(sa.delete(reward_due).where(*mine, older), keys)
    rows = [
        dict(zip(_KEY, (version, *one), strict=True)) | {"due_at": at, "computed_at": computed_at}
        for one, at in due.items()
    ]
    if rows:
        connection.execute(insert_of(connection)(reward_due).on_conflict_do_nothing(), rows)


_PROGRESS = [
    reward_definition.c[name] for name in ("version", "name", "through_snap", "run_at", "text")
]
