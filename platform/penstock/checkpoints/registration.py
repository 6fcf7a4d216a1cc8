"""The registry of checkpoints: register, find, list and withdraw them, and check their deltas."""

from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from typing import get_args

import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.checkpoints import digests, errors
from penstock.checkpoints.checkpoint import (
    Checkpoint,
    Form,
    State,
    check_digest,
    check_edge,
    check_name,
    check_reason,
    check_text,
)
from penstock.checkpoints.digests import FilesCheck, ReadProgress
from penstock.checkpoints.tables import checkpoint, checkpoint_move, checkpoint_shard
from penstock.database.engine import Database, insert_new, now_us
from penstock.errors import InvalidInput
from penstock.settings import Settings
from penstock.shards.errors import ShardUnknown
from penstock.shards.tables import shard

_COLUMNS = [checkpoint.c[field.name] for field in fields(Checkpoint) if field.name != "shards"]
#: Two registrations with the same values are the same; the rest is who, when, and a note.
_IDENTITY = ("name", "digest", "uri", "form", "parent", "shards")


def register(
    database: Database,
    settings: Settings,
    *,
    tenant: str,
    name: str,
    uri: str,
    digest: str | None,
    actor: str,
    parent: str | None = None,
    form: str = "whole",
    shards: Sequence[str] = (),
    note: str = "",
    look: bool = True,
    progress: ReadProgress = lambda _bytes: None,
) -> Checkpoint:
    """Register a checkpoint; the same registration again changes nothing. Where its files can be
    read, `look` compares them with the digest. Without a digest it is taken from the files. Raises
    InvalidInput, CheckpointConflict, DigestMismatch, CheckpointUnknown (the parent),
    LineageBroken, ShardUnknown."""
    check_name("The name of a checkpoint", name)
    files = None
    if digest is None:
        files = digests.digest_files(digests.check_uri(uri), settings, progress)
        if files.digest is None:
            raise InvalidInput(what="No digest", why=f"the files cannot be read: {files.why}")
        digest = files.digest
    digest, uri = check_digest(digest), digests.check_uri(uri)
    if form == "delta" and parent is None:
        raise InvalidInput(what="A delta", why="it needs the parent that it is a delta on")
    if form not in get_args(Form):
        raise InvalidInput(what=f"The form {form!r}", why="it is `whole` or `delta`")
    candidate = Checkpoint(
        tenant=tenant,
        name=name,
        digest=digest,
        uri=uri,
        form="delta" if form == "delta" else "whole",
        parent=parent,
        state="registered",
        checked="not_looked",
        bytes=None,
        note=check_text("The note", note),
        registered_by=check_name("Who registers it", actor),
        registered_at=0,
    )
    if parent is not None and parent in (name, digest):
        raise InvalidInput(what=f"The parent {parent}", why="nothing is its own parent")
    with database.read() as connection:
        if parent:
            parent = find_in(connection, tenant, parent).name
        ids = {_shard_id(connection, tenant, text) for text in shards}
        candidate = replace(candidate, parent=parent or None, shards=tuple(sorted(ids)))
        if (registered := _registered(connection, candidate)) is not None:
            return registered
        check_chain(connection, candidate)
    if files is None and look and digests.can_read_files(uri):
        files = digests.digest_files(uri, settings, progress)
    if files is not None:
        if files.digest not in (None, digest):
            raise errors.DigestMismatch(uri=uri, found=files.digest, digest=digest)
        checked: FilesCheck = "verified" if files.digest else "unreachable"
        candidate = replace(candidate, checked=checked, bytes=files.bytes)
    return _insert(database, candidate)


def _shard_id(connection: Connection, tenant: str, text: str) -> str:
    """Of a shard by its id, the beginning of it, or a name: then the newest of it."""
    if not text or not text.isprintable():
        raise ShardUnknown(shard=text, why="there is none")
    begins = "sha256:" + text.removeprefix("sha256:")
    query = (
        sa.select(shard.c.id, shard.c.name)
        .where(
            shard.c.tenant == tenant,
            sa.or_(shard.c.name == text, shard.c.id.startswith(begins, autoescape=True)),
        )
        .order_by(shard.c.created_at, shard.c.id)
    )
    rows = connection.execute(query).all()
    ids = [row.id for row in rows if row.id == text]
    ids = ids or [row.id for row in rows if row.name == text][-1:]
    ids = ids or [row.id for row in rows]
    if len(ids) != 1:
        raise ShardUnknown(shard=text, why="several begin so" if ids else "there is none")
    return str(ids[0])


def _insert(database: Database, candidate: Checkpoint) -> Checkpoint:
    row = asdict(candidate) | {"registered_at": now_us()}
    del row["shards"]
    with database.write() as connection:
        if candidate.parent is not None:
            # Nobody withdraws it before its new child is there.
            find_in(connection, candidate.tenant, candidate.parent, lock=True)
        check_chain(connection, candidate)
        if insert_new(connection, checkpoint, row):
            place = {"tenant": candidate.tenant, "checkpoint": candidate.name}
            if candidate.shards:
                shards = [place | {"shard": shard_id} for shard_id in candidate.shards]
                connection.execute(sa.insert(checkpoint_shard), shards)
            states = (None, candidate.state)
            _record_move(connection, candidate, states, candidate.registered_by, candidate.note)
        registered = _registered(connection, candidate)
    assert registered is not None
    return registered


def _registered(connection: Connection, candidate: Checkpoint) -> Checkpoint | None:
    """The one with this name and digest, if there is one. Raises CheckpointConflict where it
    differs, or has one of the two alone."""
    try:
        registered = find_in(connection, candidate.tenant, candidate.name)
    except errors.CheckpointUnknown:
        try:
            registered = find_in(connection, candidate.tenant, candidate.digest)
        except errors.CheckpointUnknown:
            return None
    for name in _IDENTITY:
        there, new = getattr(registered, name), getattr(candidate, name)
        if there != new:
            who = "its digest" if registered.name != candidate.name else "it"
            why = f"{who} is registered as {registered.name} with the {name} {there}, not {new}"
            raise errors.CheckpointConflict(name=candidate.name, why=why)
    return registered


def find(database: Database, tenant: str, text: str) -> Checkpoint:
    """By its name, or its digest. Raises CheckpointUnknown."""
    with database.read() as connection:
        return find_in(connection, tenant, text)


def find_in(connection: Connection, tenant: str, text: str, *, lock: bool = False) -> Checkpoint:
    """The same within a transaction; `lock` keeps others out. Raises CheckpointUnknown."""
    if not text.isprintable():  # no checkpoint's name, and some databases do not even take it
        raise errors.CheckpointUnknown(name=text)
    digest = text.lower() if text.lower().startswith("sha256:") else text
    query = sa.select(*_COLUMNS).where(
        checkpoint.c.tenant == tenant,
        sa.or_(checkpoint.c.name == text, checkpoint.c.digest == digest),
    )
    row = connection.execute(query.with_for_update() if lock else query).first()
    if row is None:
        raise errors.CheckpointUnknown(name=text)
    return _with_shards(connection, tenant, [row], row.name)[0]


def list_checkpoints(
    database: Database, tenant: str, *, state: State | None = None
) -> list[Checkpoint]:
    """All of a tenant, or those in a state; the newest comes last."""
    query = sa.select(*_COLUMNS).where(checkpoint.c.tenant == tenant)
    if state is not None:
        query = query.where(checkpoint.c.state == state)
    query = query.order_by(checkpoint.c.registered_at, checkpoint.c.name)
    with database.read() as connection:
        return _with_shards(connection, tenant, connection.execute(query).all())


def _with_shards(
    connection: Connection,
    tenant: str,
    rows: Sequence[sa.Row[tuple[object, ...]]],
    name: str | None = None,
) -> list[Checkpoint]:
    """Checkpoints of these rows; `name` where there is one row alone."""
    columns = checkpoint_shard.c
    query = sa.select(columns.checkpoint, columns.shard).where(columns.tenant == tenant)
    if name is not None:
        query = query.where(columns.checkpoint == name)
    shards: dict[str, tuple[str, ...]] = {}
    for row in connection.execute(query.order_by(columns.checkpoint, columns.shard)):
        shards[row.checkpoint] = (*shards.get(row.checkpoint, ()), row.shard)
    return [Checkpoint(**row._mapping, shards=shards.get(row.name, ())) for row in rows]


def withdraw(database: Database, *, tenant: str, name: str, reason: str, actor: str) -> Checkpoint:
    """Take a checkpoint out of use for ever: it cannot be promoted, and nothing can be built on it.
    Raises StateRefused while a channel points at it or a delta needs it; CheckpointUnknown,
    InvalidInput."""
    actor, reason = check_name("Who withdraws it", actor), check_reason(reason)
    with database.write() as connection:
        known = find_in(connection, tenant, name, lock=True)
        if known.state == "withdrawn":
            return known
        columns = checkpoint.c
        child = connection.scalar(
            sa.select(columns.name)
            .where(columns.tenant == known.tenant, columns.parent == known.name)
            .where(columns.form == "delta", columns.state != "withdrawn")
            .order_by(columns.registered_at)
            .limit(1)
        )
        if child is not None:
            why = f"{child} is a delta on it; withdraw that first"
            raise errors.StateRefused(
                name=known.name, state=known.state, wanted="withdrawn", why=why
            )
        move_state(connection, known, "withdrawn", actor=actor, reason=reason)
        return find_in(connection, tenant, known.name)


def move_state(
    connection: Connection, known: Checkpoint, state: State, *, actor: str, reason: str
) -> None:
    """Move a checkpoint, whose row the caller has locked, to another state. Raises StateRefused."""
    check_edge(known.name, known.state, state)
    connection.execute(
        sa.update(checkpoint)
        .where(checkpoint.c.tenant == known.tenant, checkpoint.c.name == known.name)
        .values(state=state)
    )
    _record_move(connection, known, (known.state, state), actor, reason)


def _record_move(
    connection: Connection,
    known: Checkpoint,
    states: tuple[State | None, State],
    actor: str,
    reason: str,
) -> None:
    connection.execute(
        sa.insert(checkpoint_move).values(
            tenant=known.tenant, checkpoint=known.name, from_state=states[0], to_state=states[1],
            actor=actor, reason=reason, at=now_us(),
        )
    )  # fmt: skip


def ancestors(connection: Connection, known: Checkpoint) -> list[Checkpoint]:
    """From its parent on. Raises LineageBroken where one is missing, or in a circle."""
    chain: list[Checkpoint] = []
    names, child = {known.name}, known
    while child.parent is not None:
        if child.parent in names:
            raise errors.LineageBroken(name=known.name, why=f"{child.parent} is its own ancestor")
        try:
            child = find_in(connection, known.tenant, child.parent)
        except errors.CheckpointUnknown as error:
            why = f"its ancestor {child.parent} is not there"
            raise errors.LineageBroken(name=known.name, why=why) from error
        names.add(child.name)
        chain.append(child)
    return chain


def check_chain(connection: Connection, known: Checkpoint) -> None:
    """A delta needs each parent down to a whole one, none withdrawn. Raises LineageBroken."""
    if known.form == "whole":
        return
    for parent in ancestors(connection, known):
        if parent.state == "withdrawn":
            raise errors.LineageBroken(
                name=known.name, why=f"its ancestor {parent.name} is withdrawn"
            )
        if parent.form == "whole":
            return
    raise errors.LineageBroken(name=known.name, why="none of its ancestors is whole")
