"""The history of a channel in the database: its changes are read here, and proved to be as they
were written."""

from dataclasses import fields
from typing import Literal

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.channels.change import Action, Change, Misfit, first_misfit
from penstock.channels.errors import ChannelUnknown
from penstock.channels.tables import channel, channel_change
from penstock.checkpoints.digests import text_digest
from penstock.database.engine import Database
from penstock.gate.tables import gate_policy, verdict
from penstock.gate.verdict import Outcome

CHANGE_COLUMNS = [channel_change.c[field.name] for field in fields(Change)]


def channel_changes(
    database: Database,
    tenant: str,
    name: str,
    *,
    after: int = 0,
    limit: int | None = None,
    latest: bool = False,
) -> list[Change]:
    """The changes of a channel after a version, the oldest first; of more than `limit` the first
    ones, or the `latest`. Raises ChannelUnknown."""
    columns = channel_change.c
    query = sa.select(*CHANGE_COLUMNS).where(columns.tenant == tenant, columns.channel == name)
    query = query.where(columns.version > after).limit(limit)
    query = query.order_by(columns.version.desc() if latest else columns.version)
    with database.read() as connection:
        if newest_change(connection, tenant, name) is None:
            raise ChannelUnknown(name=name)
        changes = [change_of(row) for row in connection.execute(query)]
    return changes[::-1] if latest else changes


def verify_history(database: Database, tenant: str, name: str) -> Misfit | None:
    """The first version of a channel that is not as it was written, be it the change itself or the
    verdict or the policy that it rests on. Raises ChannelUnknown."""
    query = sa.select(channel.c.version, channel.c.hash).where(
        channel.c.tenant == tenant, channel.c.name == name
    )
    of_channel = channel_change.c.tenant == tenant, channel_change.c.channel == name
    all_changes = sa.select(*CHANGE_COLUMNS).where(*of_channel).order_by(channel_change.c.version)
    with database.read() as connection:
        row = connection.execute(query).first() if name.isprintable() else None
        if row is None and newest_change(connection, tenant, name) is None:
            raise ChannelUnknown(name=name)
        rows = connection.execute(all_changes.execution_options(yield_per=1_000))
        head = (row.version, row.hash) if row is not None else (0, "")
        misfits = [
            first_misfit((change_of(row) for row in rows), head),
            _evidence_misfit(connection, tenant, name, "verdict"),
            _evidence_misfit(connection, tenant, name, "policy"),
        ]
    present = [misfit for misfit in misfits if misfit is not None]
    return min(present, key=lambda misfit: misfit.version, default=None)


def verdict_outcomes(database: Database, tenant: str, name: str) -> dict[str, Outcome]:
    """The outcomes of the verdicts behind a channel's changes, by their ids."""
    query = sa.select(verdict.c.id, verdict.c.outcome).where(
        verdict.c.tenant == tenant, verdict.c.channel == name
    )
    with database.read() as connection:
        return {row.id: row.outcome for row in connection.execute(query)}


def left_out_tasks(database: Database, tenant: str, name: str) -> dict[str, dict[str, list[str]]]:
    """By verdict behind a channel's changes: the tasks that its policy left out of each suite."""
    columns = verdict.c
    query = sa.select(columns.id, columns.document).where(
        columns.tenant == tenant, columns.channel == name, columns.document.contains('"left_out"')
    )
    with database.read() as connection:
        documents = {row.id: msgspec.json.decode(row.document) for row in connection.execute(query)}
    return {
        name: {
            suite: [entry["task"] for entry in facts["left_out"]]
            for suite, facts in document.get("suites", {}).items()
            if "left_out" in facts
        }
        for name, document in documents.items()
    }


def newest_change(
    connection: Connection, tenant: str, name: str, *, action: Action | None = None
) -> Change | None:
    """The newest change of a channel, or the newest of a kind."""
    if not name.isprintable():  # nobody's name, and some databases do not even take it
        return None
    columns = channel_change.c
    query = sa.select(*CHANGE_COLUMNS).where(columns.tenant == tenant, columns.channel == name)
    if action is not None:
        query = query.where(columns.action == action)
    row = connection.execute(query.order_by(columns.version.desc()).limit(1)).first()
    return change_of(row) if row is not None else None


def change_of(row: sa.Row[tuple[object, ...]]) -> Change:
    return Change(**row._mapping)


def _evidence_misfit(
    connection: Connection, tenant: str, name: str, kind: Literal["verdict", "policy"]
) -> Misfit | None:
    """Verdicts and policies are named by their digests. Each is looked at once, where it was
    used first."""
    digest, text = {
        "verdict": (verdict.c.id, verdict.c.document),
        "policy": (gate_policy.c.digest, gate_policy.c.text),
    }[kind]
    columns = channel_change.c
    first = (
        sa.select(columns[kind].label("digest"), sa.func.min(columns.version).label("version"))
        .where(columns.tenant == tenant, columns.channel == name, columns[kind].is_not(None))
        .group_by(columns[kind])
        .subquery()
    )
    query = (
        sa.select(first.c.version, first.c.digest, text.label("text"))
        .outerjoin(text.table, sa.and_(text.table.c.tenant == tenant, digest == first.c.digest))
        .order_by(first.c.version)
    )
    for row in connection.execute(query.execution_options(yield_per=50)):
        if row.text is None or text_digest(row.text) != row.digest:
            return Misfit(row.version, f"its {kind} {row.digest} is not there as it was written")
    return None


def first_version_since(connection: Connection, change: Change, *names: str) -> int:
    """The first of the latest changes that have the same values as this one in these columns."""
    columns = channel_change.c
    other = (
        sa.select(columns.version)
        .where(columns.tenant == change.tenant, columns.channel == change.channel)
        .where(sa.or_(*(columns[name].is_distinct_from(getattr(change, name)) for name in names)))
        .order_by(columns.version.desc())
        .limit(1)
    )
    return (connection.scalar(other) or 0) + 1
