"""The registry of checkpoints: register, find, list and withdraw them, and check deltas."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from typing import Any, get_args

import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.backends.audit.chain import append
from penstock.backends.audit.entry import Deed
from penstock.backends.database.engine import Database, insert_new, now_us
from penstock.backends.terminal.output import time_text
from penstock.core.errors import InvalidInput
from penstock.core.files import DIGEST_PREFIX, sha256_digest
from penstock.core.settings import Settings
from penstock.registry.checkpoints import digests
from penstock.registry.checkpoints.artifact_roots import ArtifactRoots
from penstock.registry.checkpoints.checkpoint import (
    Checkpoint,
    CheckpointConflict,
    CheckpointUnknown,
    DigestMismatch,
    FilesCheck,
    Form,
    LineageBroken,
    State,
    StateRefused,
    check_edge,
    check_name,
    check_reason,
    check_text,
)
from penstock.registry.checkpoints.digests import ReadProgress
from penstock.registry.checkpoints.tables import checkpoint, checkpoint_move, checkpoint_shard
from penstock.shards.registered_shards import find_shard

_COLUMNS = [checkpoint.c[field.name] for field in fields(Checkpoint) if field.name != "shards"]
#: Fields that make two registrations the same; the rest is who, when, and a note.
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
    form: Form = "whole",
    shards: Sequence[str] = (),
    note: str = "",
    look: bool = True,
    roots: ArtifactRoots | None = None,
    progress: ReadProgress = lambda _bytes: None,
) -> Checkpoint:
    """Register a checkpoint; a repetition changes nothing. `look` compares files with the
    digest."""
    check_name("The name of a checkpoint", name)
    uri, files = digests.check_uri(uri), None
    if digest is None:
        files = digests.digest_files(uri, settings, progress, roots)
        if files.digest is None:
            raise InvalidInput(what="No digest", why=f"the files cannot be read: {files.why}")
        digest = files.digest
    if form not in get_args(Form):
        raise InvalidInput(what=f"The form {form!r}", why="it must be `whole` or `delta`")
    if form == "delta" and parent is None:
        raise InvalidInput(what="A delta", why="it needs a parent")
    candidate = Checkpoint(
        tenant=tenant,
        name=name,
        digest=sha256_digest(digest.lower()),
        uri=uri,
        form=form,
        parent=parent,
        note=check_text("The note", note),
        registered_by=check_name("Who registers it", actor),
    )
    if parent is not None and parent in (name, candidate.digest):
        raise InvalidInput(what=f"The parent {parent}", why="a checkpoint cannot be its own parent")
    with database.read() as connection:
        parent = find_in(connection, tenant, parent).name if parent else None
        ids = {find_shard(database, tenant, text).id for text in shards}
        candidate = replace(candidate, parent=parent, shards=tuple(sorted(ids)))
        if (registered := _registered(connection, candidate)) is not None:
            return registered
        check_chain(connection, candidate)
    look = look and digests.can_read_files(uri) and (roots is None or roots.hold(uri))
    if files is None and look:
        files = digests.digest_files(uri, settings, progress, roots)
    if files is not None:
        if files.digest not in (None, candidate.digest):
            raise DigestMismatch(uri=uri, found=files.digest, digest=candidate.digest)
        checked: FilesCheck = "verified" if files.digest else "unreachable"
        candidate = replace(candidate, checked=checked, bytes=files.bytes)
    return _insert(database, candidate)


def _insert(database: Database, candidate: Checkpoint) -> Checkpoint:
    row = asdict(candidate) | {"registered_at": now_us()}
    del row["shards"]
    with database.write() as connection:
        if candidate.parent is not None:
            # Locked, so that nobody withdraws it before its new child exists.
            find_in(connection, candidate.tenant, candidate.parent, lock=True)
        check_chain(connection, candidate)
        if insert_new(connection, checkpoint, row):
            place = {"tenant": candidate.tenant, "checkpoint": candidate.name}
            shards = [place | {"shard": shard_id} for shard_id in candidate.shards]
            if shards:
                connection.execute(sa.insert(checkpoint_shard), shards)
            _record_move(connection, candidate, None, candidate.registered_by, candidate.note)
            facts = {"digest": candidate.digest, "parent": candidate.parent}
            tenant, by = candidate.tenant, candidate.registered_by
            subject = f"checkpoint {candidate.name}"
            append(connection, Deed(tenant, by, "checkpoint", subject, facts))
        registered = _registered(connection, candidate)
    assert registered is not None
    return registered


def _registered(connection: Connection, candidate: Checkpoint) -> Checkpoint | None:
    """The checkpoint, if it is already registered. Raises CheckpointConflict if its name or digest
    is taken."""
    own = (checkpoint.c.name == candidate.name) | (checkpoint.c.digest == candidate.digest)
    known = _read(connection, candidate.tenant, own)
    if not known:
        return None
    registered = min(known, key=lambda each: each.name != candidate.name)
    for name in _IDENTITY:
        there, new = getattr(registered, name), getattr(candidate, name)
        if there != new:
            who = "its digest" if registered.name != candidate.name else "it"
            why = f"{who} is registered as {registered.name} with the {name} {there}, not {new}"
            raise CheckpointConflict(name=candidate.name, why=why)
    return registered


def find(database: Database, tenant: str, text: str) -> Checkpoint:
    """Find a checkpoint by name or digest. Raises CheckpointUnknown."""
    with database.read() as connection:
        return find_in(connection, tenant, text)


def find_in(connection: Connection, tenant: str, text: str, *, lock: bool = False) -> Checkpoint:
    """Find a checkpoint by name or digest; `lock` locks its row. Raises CheckpointUnknown."""
    digest = text.lower() if text.lower().startswith(DIGEST_PREFIX) else text
    own = (checkpoint.c.name == text) | (checkpoint.c.digest == digest)
    # No checkpoint has an unprintable name, and some databases refuse such a text.
    known = _read(connection, tenant, own, lock=lock) if text.isprintable() else []
    if not known:
        raise CheckpointUnknown(name=text)
    return known[0]


def list_checkpoints(
    database: Database, tenant: str, *, state: State | None = None
) -> list[Checkpoint]:
    condition = sa.true() if state is None else checkpoint.c.state == state
    with database.read() as connection:
        return _read(connection, tenant, condition)


def _read(
    connection: Connection, tenant: str, condition: sa.ColumnElement[bool], *, lock: bool = False
) -> list[Checkpoint]:
    query = (
        sa.select(*_COLUMNS)
        .where(checkpoint.c.tenant == tenant, condition)
        .order_by(checkpoint.c.registered_at, checkpoint.c.name)
    )
    rows = connection.execute(query.with_for_update() if lock else query).all()
    trained = checkpoint_shard.c
    learned = sa.select(trained.checkpoint, trained.shard).where(trained.tenant == tenant)
    if len(rows) < 2:
        learned = learned.where(trained.checkpoint.in_([row.name for row in rows]))
    shards: defaultdict[str, list[str]] = defaultdict(list)
    for row in connection.execute(learned.order_by(trained.checkpoint, trained.shard)):
        shards[row.checkpoint].append(row.shard)
    known = []
    for row in rows:
        facts = {"registered_at": time_text(row.registered_at), "shards": tuple(shards[row.name])}
        known.append(Checkpoint(**{**row._mapping, **facts}))
    return known


def withdraw(database: Database, *, tenant: str, name: str, reason: str, actor: str) -> Checkpoint:
    """Withdraw a checkpoint for ever: it cannot be promoted or built on."""
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
            why = f"{child} is a delta on it; withdraw it first"
            facts = {"name": known.name, "state": known.state, "wanted": "withdrawn"}
            raise StateRefused(**facts, why=why)
        move_state(connection, known, "withdrawn", actor=actor, reason=reason)
        return find_in(connection, tenant, known.name)


def move_state(
    connection: Connection, known: Checkpoint, state: State, *, actor: str, reason: str
) -> None:
    """Change the state of a checkpoint whose row is locked. Raises StateRefused."""
    check_edge(known.name, known.state, state)
    connection.execute(
        sa.update(checkpoint)
        .where(checkpoint.c.tenant == known.tenant, checkpoint.c.name == known.name)
        .values(state=state)
    )
    _record_move(connection, replace(known, state=state), known.state, actor, reason)


def _record_move(
    connection: Connection, moved: Checkpoint, before: State | None, actor: str, reason: str
) -> None:
    row: dict[str, Any] = {"tenant": moved.tenant, "checkpoint": moved.name, "actor": actor}
    row |= {"from_state": before, "to_state": moved.state, "reason": reason, "at": now_us()}
    connection.execute(sa.insert(checkpoint_move).values(row))


def ancestors(connection: Connection, known: Checkpoint) -> list[Checkpoint]:
    """The ancestors, the parent first. Raises LineageBroken for a gap or a circle."""
    chain: list[Checkpoint] = []
    names, child = {known.name}, known
    while child.parent is not None:
        if child.parent in names:
            raise LineageBroken(name=known.name, why=f"{child.parent} is its own ancestor")
        try:
            child = find_in(connection, known.tenant, child.parent)
        except CheckpointUnknown as error:
            why = f"its ancestor {child.parent} does not exist"
            raise LineageBroken(name=known.name, why=why) from error
        names.add(child.name)
        chain.append(child)
    return chain


def check_chain(connection: Connection, known: Checkpoint) -> None:
    """Check that a delta's parents exist down to a whole one, none withdrawn. Raises
    LineageBroken."""
    if known.form == "whole":
        return
    for parent in ancestors(connection, known):
        if parent.state == "withdrawn":
            why = f"its ancestor {parent.name} is withdrawn"
            raise LineageBroken(name=known.name, why=why)
        if parent.form == "whole":
            return
    raise LineageBroken(name=known.name, why="none of its ancestors is whole")
