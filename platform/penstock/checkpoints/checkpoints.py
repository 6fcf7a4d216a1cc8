"""Checkpoints: which model versions there are, where they lie, and what they came from."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.checkpoints import digests
from penstock.checkpoints.digests import Checked, Found, Progress
from penstock.checkpoints.errors import (
    CheckpointConflict,
    CheckpointUnknown,
    DigestMismatch,
    LineageBroken,
    StateRefused,
)
from penstock.checkpoints.names import check_digest, check_name, check_reason, check_text
from penstock.checkpoints.states import State, move, note_move
from penstock.checkpoints.tables import checkpoint, checkpoint_shard
from penstock.database.engine import Database, insert_of, now_us
from penstock.errors import InvalidInput
from penstock.settings import Settings
from penstock.shards.errors import ShardUnknown
from penstock.shards.tables import shard

Form = Literal["whole", "delta"]


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A model version as it is registered. `form` says whether its files are all of it, or what
    differs from its parent."""

    tenant: str
    name: str
    digest: str
    uri: str
    form: Form
    parent: str | None
    state: State
    #: Whether its files had the digest: nobody could reach them, or nobody looked.
    checked: Checked
    bytes: int | None
    note: str
    registered_by: str
    registered_at: int
    #: Those that it was trained on, beyond those of its parents.
    shards: tuple[str, ...] = ()


_COLUMNS = [checkpoint.c[one.name] for one in fields(Checkpoint) if one.name != "shards"]
#: What makes two registrations the same; the rest is who, when, and what they noted.
_FACTS = ("name", "digest", "uri", "form", "parent", "shards")


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
    progress: Progress = lambda _bytes: None,
) -> Checkpoint:
    """Register a checkpoint; the same facts again change nothing. Where its files can be reached,
    `look` compares them with the digest, which is taken from them where none is given. Raises
    InvalidInput, CheckpointConflict, DigestMismatch, CheckpointUnknown (the parent),
    LineageBroken, ShardUnknown."""
    check_name("The name of a checkpoint", name)
    found = None
    if digest is None:
        found = digests.look(digests.check_uri(uri), settings, progress)
        if found.digest is None:
            raise InvalidInput(what="No digest", why=f"the files cannot be asked: {found.why}")
    wanted = Checkpoint(
        tenant=tenant,
        name=name,
        digest=check_digest(digest or str(found and found.digest)),
        uri=digests.check_uri(uri),
        form=_check_form(form, parent),
        parent=parent,
        state="registered",
        checked="not_looked",
        bytes=None,
        note=check_text("The note", note),
        registered_by=check_name("Who registers it", actor),
        registered_at=0,
        shards=tuple(shards),
    )
    with database.read() as connection:
        wanted = _resolved(connection, wanted)
        if _of_name_or_digest(connection, wanted) is not None:
            return _same(connection, wanted)
        check_chain(connection, wanted)
    if found is None and look and digests.can_look(uri):
        found = digests.look(uri, settings, progress)
    return _register(database, wanted, found)


def find(database: Database, tenant: str, text: str) -> Checkpoint:
    """By its name, or its digest. Raises CheckpointUnknown."""
    with database.read() as connection:
        return find_in(connection, tenant, text)


def find_in(connection: Connection, tenant: str, text: str, *, lock: bool = False) -> Checkpoint:
    """The same within a transaction; with `lock` nobody else changes it until that ends. Raises
    CheckpointUnknown."""
    if not text.isprintable():  # nobody's name, and some databases do not even take it
        raise CheckpointUnknown(name=text)
    digest = text.lower() if text.lower().startswith("sha256:") else text
    query = sa.select(*_COLUMNS).where(
        checkpoint.c.tenant == tenant,
        sa.or_(checkpoint.c.name == text, checkpoint.c.digest == digest),
    )
    row = connection.execute(query.with_for_update() if lock else query).first()
    if row is None:
        raise CheckpointUnknown(name=text)
    return _checkpoint(row, shards_of(connection, tenant, [row.name]))


def list_checkpoints(
    database: Database, tenant: str, *, state: State | None = None
) -> list[Checkpoint]:
    """All of a tenant, or those in a state; the newest comes last."""
    query = sa.select(*_COLUMNS).where(checkpoint.c.tenant == tenant)
    if state is not None:
        query = query.where(checkpoint.c.state == state)
    query = query.order_by(checkpoint.c.registered_at, checkpoint.c.name)
    with database.read() as connection:
        rows = connection.execute(query).all()
        shards = shards_of(connection, tenant, None)
    return [_checkpoint(row, shards) for row in rows]


def withdraw(database: Database, *, tenant: str, name: str, reason: str, actor: str) -> Checkpoint:
    """Nobody is to use it again: it can be promoted no more, and nothing can be built on it. Raises
    StateRefused while a channel is at it, or a delta needs it; CheckpointUnknown, InvalidInput."""
    told = check_name("Who withdraws it", actor), check_reason(reason)
    with database.write() as connection:
        found = find_in(connection, tenant, name, lock=True)
        if found.state == "withdrawn":
            return found
        _refuse_when_needed(connection, found)
        move(connection, (tenant, found.name), (found.state, "withdrawn"), told)
        return find_in(connection, tenant, found.name)


# The chain of deltas


def ancestors(connection: Connection, found: Checkpoint) -> list[Checkpoint]:
    """Its parent, the parent of that, and so on. Raises LineageBroken where one is missing, or
    where they go round in a circle, which nobody can register."""
    chain: list[Checkpoint] = []
    seen = {found.name}
    child = found
    while child.parent is not None:
        if child.parent in seen:
            raise LineageBroken(name=found.name, why=f"{child.parent} is its own ancestor")
        try:
            child = find_in(connection, found.tenant, child.parent)
        except CheckpointUnknown as error:
            why = f"its ancestor {child.parent} is not there"
            raise LineageBroken(name=found.name, why=why) from error
        seen.add(child.name)
        chain.append(child)
    return chain


def check_chain(connection: Connection, found: Checkpoint) -> None:
    """Whether all is there that a delta needs: each parent down to a whole one, none withdrawn.
    Raises LineageBroken."""
    if found.form == "whole":
        return
    for one in ancestors(connection, found):
        if one.state == "withdrawn":
            raise LineageBroken(name=found.name, why=f"its ancestor {one.name} is withdrawn")
        if one.form == "whole":
            return
    raise LineageBroken(name=found.name, why="none of its ancestors is whole")


def shards_of(
    connection: Connection, tenant: str, names: Sequence[str] | None
) -> dict[str, tuple[str, ...]]:
    """The shards of these checkpoints, or of all."""
    columns = checkpoint_shard.c
    query = sa.select(columns.checkpoint, columns.shard).where(columns.tenant == tenant)
    if names is not None:
        query = query.where(columns.checkpoint.in_(names))
    found: dict[str, tuple[str, ...]] = {}
    for row in connection.execute(query.order_by(columns.checkpoint, columns.shard)):
        found[row.checkpoint] = (*found.get(row.checkpoint, ()), row.shard)
    return found


# Registering


def _check_form(form: str, parent: str | None) -> Form:
    if form == "delta" and parent is None:
        raise InvalidInput(what="A delta", why="it needs the parent that it is a delta on")
    if form == "whole":
        return "whole"
    if form == "delta":
        return "delta"
    raise InvalidInput(what=f"The form {form!r}", why="it is `whole` or `delta`")


def _resolved(connection: Connection, wanted: Checkpoint) -> Checkpoint:
    """With the name of its parent and the ids of its shards."""
    if wanted.parent is not None and wanted.parent in (wanted.name, wanted.digest):
        raise InvalidInput(what=f"The parent {wanted.parent}", why="nothing is its own parent")
    parent = find_in(connection, wanted.tenant, wanted.parent) if wanted.parent else None
    ids = {_shard_id(connection, wanted.tenant, text) for text in wanted.shards}
    return replace(wanted, parent=parent.name if parent else None, shards=tuple(sorted(ids)))


def _shard_id(connection: Connection, tenant: str, text: str) -> str:
    """By its id, the beginning of it, or a name: then the newest of it."""
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
    found = [row.id for row in rows if row.id == text]
    found = found or [row.id for row in rows if row.name == text][-1:]
    found = found or [row.id for row in rows]
    if len(found) != 1:
        raise ShardUnknown(shard=text, why="several begin so" if found else "there is none")
    return str(found[0])


def _register(database: Database, wanted: Checkpoint, found: Found | None) -> Checkpoint:
    if found is not None and found.digest not in (None, wanted.digest):
        raise DigestMismatch(uri=wanted.uri, found=found.digest, digest=wanted.digest)
    checked = _checked(found)
    with database.write() as connection:
        if wanted.parent is not None:
            # Nobody withdraws it before its new child is there.
            find_in(connection, wanted.tenant, wanted.parent, lock=True)
        check_chain(connection, wanted)
        row = {one.name: getattr(wanted, one.name) for one in fields(wanted)}
        del row["shards"]
        row |= {"checked": checked, "bytes": found.bytes if found else None}
        row |= {"registered_at": now_us()}
        made = insert_of(connection)(checkpoint).values(**row).on_conflict_do_nothing()
        if connection.execute(made.returning(checkpoint.c.name)).first() is not None:
            _keep_shards(connection, wanted)
            place, told = (wanted.tenant, wanted.name), (wanted.registered_by, wanted.note)
            note_move(connection, place, (None, "registered"), told)
        return _same(connection, wanted)


def _checked(found: Found | None) -> Checked:
    if found is None:
        return "not_looked"
    return "verified" if found.digest is not None else "unreachable"


def _keep_shards(connection: Connection, wanted: Checkpoint) -> None:
    rows = [
        {"tenant": wanted.tenant, "checkpoint": wanted.name, "shard": one} for one in wanted.shards
    ]
    if rows:
        connection.execute(sa.insert(checkpoint_shard), rows)


def _same(connection: Connection, wanted: Checkpoint) -> Checkpoint:
    """The one that is registered under this name and digest. Raises CheckpointConflict."""
    known = _of_name_or_digest(connection, wanted)
    assert known is not None
    for one in _FACTS:
        there, asked = getattr(known, one), getattr(wanted, one)
        if there != asked:
            who = "its digest" if known.name != wanted.name else "it"
            why = f"{who} is registered as {known.name} with the {one} {there}, not {asked}"
            raise CheckpointConflict(name=wanted.name, why=why)
    return known


def _of_name_or_digest(connection: Connection, wanted: Checkpoint) -> Checkpoint | None:
    for text in (wanted.name, wanted.digest):
        try:
            return find_in(connection, wanted.tenant, text)
        except CheckpointUnknown:
            continue
    return None


def _refuse_when_needed(connection: Connection, found: Checkpoint) -> None:
    columns = checkpoint.c
    child = connection.scalar(
        sa.select(columns.name)
        .where(columns.tenant == found.tenant, columns.parent == found.name)
        .where(columns.form == "delta", columns.state != "withdrawn")
        .order_by(columns.registered_at)
        .limit(1)
    )
    if child is not None:
        why = f"{child} is a delta on it; withdraw that first"
        raise StateRefused(name=found.name, state=found.state, wanted="withdrawn", why=why)


def _checkpoint(row: sa.Row[tuple[object, ...]], shards: dict[str, tuple[str, ...]]) -> Checkpoint:
    return Checkpoint(**row._mapping, shards=shards.get(row.name, ()))
