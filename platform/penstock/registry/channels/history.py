"""The history of a channel in the database: read its changes, and verify that none was altered."""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.backends.audit.chain import entries_of
from penstock.backends.audit.entry import BEGINNING, Flaw, Head
from penstock.backends.audit.hash_chain import Chain, chains_in
from penstock.backends.database.engine import Database
from penstock.backends.terminal.output import time_text
from penstock.lake.lake import Lake
from penstock.lake.query.view_sources import ViewSources
from penstock.lake.upkeep.verification import VerificationFinding
from penstock.registry.channels.change import Action, Change, ChangeAnswer, ChannelUnknown
from penstock.registry.channels.tables import channel, channel_change
from penstock.registry.checkpoints.digests import text_digest
from penstock.registry.checkpoints.integrity import CheckedRows, read_checked
from penstock.registry.checkpoints.journal import AttemptScope
from penstock.registry.checkpoints.suites import suite_scope
from penstock.registry.checkpoints.tables import (
    benchmark_journal,
    benchmark_run,
    checkpoint,
    checkpoint_shard,
)
from penstock.registry.gate.tables import gate_policy, verdict
from penstock.registry.gate.verdict import Outcome


def channel_changes(
    database: Database,
    tenant: str,
    name: str,
    *,
    after: int = 0,
    limit: int | None = None,
    latest: bool = False,
    before: int | None = None,
) -> list[Change]:
    """Changes of a channel, the oldest first. `latest` keeps the last `limit` instead of the first.
    Raises ChannelUnknown."""
    query = select_changes(tenant, name, after, latest=latest).limit(limit)
    if before is not None:
        query = query.where(channel_change.c.version < before)
    with database.read() as connection:
        if newest_change(connection, tenant, name) is None:
            raise ChannelUnknown(name=name)
        changes = [change_of(row) for row in connection.execute(query)]
    return changes[::-1] if latest else changes


def changes_of_checkpoint(database: Database, tenant: str, checkpoint: str) -> list[Change]:
    """Changes to or from a checkpoint, by channel, the oldest first."""
    columns = channel_change.c
    named = sa.literal(checkpoint).in_([columns.checkpoint, columns.canary, columns.previous])
    query = sa.select(channel_change).where(columns.tenant == tenant, named)
    with database.read() as connection:
        rows = connection.execute(query.order_by(columns.channel, columns.version))
        return [change_of(row) for row in rows]


def chain_of(tenant: str, name: str) -> Chain:
    """Raises ChannelUnknown."""
    if not name.isprintable():  # no channel has such a name, and some databases refuse it
        raise ChannelUnknown(name=name)
    return Chain(channel_change, {"tenant": tenant, "channel": name}, numbered="version")


def verify_history(database: Database, tenant: str, name: str) -> Flaw | None:
    """Find the first altered version of a channel, or None. Checks the changes, also against the
    audit, their verdicts and policies, and what the verdicts read. Raises ChannelUnknown."""
    chain, noted = chain_of(tenant, name), _noted_in_audit(database, tenant, name)
    with database.read() as connection:
        flaw = chain.flaw(connection, noted)
        if (flaw or noted or newest_change(connection, tenant, name)) is None:
            raise ChannelUnknown(name=name)
        evidence = _evidence_flaws(connection, tenant, name) if flaw is None else ()
        return min(evidence, key=lambda flaw: flaw.number, default=flaw)


def find_alterations(lake: Lake) -> Iterator[VerificationFinding]:
    """Find altered journals, and channels whose history or evidence was altered."""
    with lake.database.read() as connection:
        channels = chains_in(connection, channel_change, "tenant", "channel")
        whose = (field.name for field in fields(AttemptScope))
        for chain in chains_in(connection, benchmark_journal, *whose):
            if flaw := chain.flaw(connection):
                scope = AttemptScope(**chain.whose)
                where = f"the journal of {scope.checkpoint or 'versions'} on {scope.suite}"
                yield VerificationFinding(f"{where}, entry {flaw.number}", flaw.why)
    for tenant, name in (each.whose.values() for each in channels):
        if flaw := verify_history(lake.database, tenant, name):
            where = f"the channel {name} of {tenant}, version {flaw.number}"
            yield VerificationFinding(where, flaw.why)


def _noted_in_audit(database: Database, tenant: str, name: str) -> Head | None:
    """The newest change that the audit knows: so an older history that is put back is found. An
    entry that was altered fits none."""
    entries = entries_of(database, tenant, subject=f"channel {name}", limit=1)
    try:
        noted = [msgspec.json.decode(entry.facts, type=_NotedChange) for entry in entries]
    except msgspec.MsgspecError:
        return Head(hash="")
    return Head(noted[0].version, noted[0].hash) if noted else None


class _NotedChange(msgspec.Struct):
    version: int
    hash: str


def verdicts_of(
    database: Database, tenant: str, name: str
) -> tuple[dict[str, Outcome], dict[str, dict[str, list[str]]]]:
    """The outcomes of a verified channel's verdicts, and the tasks that policies left out, by
    verdict id."""
    columns = verdict.c
    query = sa.select(columns.id, columns.document)
    query = query.where(columns.tenant == tenant, columns.channel == name)
    outcomes, left_out = {}, {}
    with database.read() as connection:
        for row in connection.execute(query.execution_options(yield_per=50)):
            document = msgspec.json.decode(row.document)
            outcomes[row.id] = document["outcome"]
            if without := {
                suite: [entry["task"] for entry in facts["left_out"]]
                for suite, facts in document.get("suites", {}).items()
                if "left_out" in facts
            }:
                left_out[row.id] = without
    return outcomes, left_out


def newest_change(
    connection: Connection, tenant: str, name: str, *, action: Action | None = None
) -> Change | None:
    query = select_changes(tenant, name, latest=True)
    if action is not None:
        query = query.where(channel_change.c.action == action)
    row = connection.execute(query.limit(1)).first()
    return change_of(row) if row is not None else None


def newest_changes(connection: Connection, tenant: str) -> list[Change]:
    """The newest change of each channel, by name."""
    columns, places = channel_change.c, (channel.c.tenant, channel.c.name, channel.c.version)
    newest = sa.tuple_(columns.tenant, columns.channel, columns.version) == sa.tuple_(*places)
    query = sa.select(channel_change).join(channel, newest).where(channel.c.tenant == tenant)
    return [change_of(row) for row in connection.execute(query.order_by(channel.c.name))]


def change_of(row: sa.Row[tuple[object, ...]]) -> Change:
    return Change(**row._mapping)


#: Notices in one answer.
NOTICES_AT_ONCE = 100


def notice_of(connection: Connection, change: Change) -> ChangeAnswer:
    facts = vars(change) | {"at": time_text(change.at)}
    return ChangeAnswer(**facts, **checkpoint_places(connection, change))


def checkpoint_places(connection: Connection, change: Change) -> dict[str, Any]:
    names = [change.checkpoint or "", change.canary or ""]
    query = sa.select(checkpoint.c.name, checkpoint.c.digest, checkpoint.c.uri).where(
        checkpoint.c.tenant == change.tenant, checkpoint.c.name.in_(names)
    )
    places = {name: (digest, uri) for name, digest, uri in connection.execute(query)}
    (_, uri), (canary_digest, canary_uri) = (places.get(name, (None, None)) for name in names)
    return {"uri": uri, "canary_digest": canary_digest, "canary_uri": canary_uri}


def notices_after(
    connection: Connection, tenant: str, channel: str, version: int
) -> list[ChangeAnswer]:
    """The next notices in order, at most NOTICES_AT_ONCE."""
    query = select_changes(tenant, channel, version).limit(NOTICES_AT_ONCE)
    changes = [change_of(row) for row in connection.execute(query)]
    return [notice_of(connection, change) for change in changes]


def select_changes(
    tenant: str, channel: str, after: int = 0, *, latest: bool = False
) -> sa.Select[Any]:
    """Raises ChannelUnknown."""
    version = channel_change.c.version
    query = sa.select(channel_change).where(chain_of(tenant, channel).is_mine(), version > after)
    return query.order_by(version.desc() if latest else version)


class _VerdictSide(msgspec.Struct):
    checkpoint: str
    journal: Head = BEGINNING
    version: str | None = None


class _VerdictSuite(msgspec.Struct):
    version: str | None = None
    candidate: _VerdictSide | None = None
    incumbent: _VerdictSide | None = None
    journal: Head = BEGINNING


class _VerdictDocument(msgspec.Struct):
    suites: dict[str, _VerdictSuite] = {}


#: The version of a change, and the journal up to an entry that its verdict read.
_JournalUse = tuple[int, AttemptScope, Head]


def _evidence_flaws(connection: Connection, tenant: str, name: str) -> Iterator[Flaw]:
    """Check the stored verdicts and policies by their digests, and what the verdicts read."""
    uses: list[_JournalUse] = []
    changes = channel_change.c
    for kind, digest, text in (
        ("verdict", verdict.c.id, verdict.c.document),
        ("policy", gate_policy.c.digest, gate_policy.c.text),
    ):
        version, used = sa.func.min(changes.version), changes[kind]
        own = sa.and_(text.table.c.tenant == tenant, digest == used)
        query = sa.select(version, used, text).outerjoin(text.table, own)
        query = query.where(changes.tenant == tenant, changes.channel == name, used.is_not(None))
        query = query.group_by(used, text).order_by(version)
        with connection.execute(query.execution_options(yield_per=50)) as rows:
            for first, named, kept in rows:
                if kept is None or text_digest(kept) != named:
                    yield Flaw(first, f"its {kind} {named} is missing or changed")
                    break
                if kind == "verdict":
                    uses += _journal_uses(tenant, first, kept)
    yield from _journal_flaws(connection, uses)


def _journal_uses(tenant: str, version: int, text: str) -> Iterator[_JournalUse]:
    for suite, facts in msgspec.json.decode(text, type=_VerdictDocument).suites.items():
        yield version, suite_scope(tenant, suite), facts.journal
        for side in (facts.candidate, facts.incumbent):
            if side is not None and facts.version is not None:
                at = side.version or facts.version
                scope = AttemptScope(tenant, suite, at, side.checkpoint)
                yield version, scope, side.journal


def _journal_flaws(connection: Connection, uses: Sequence[_JournalUse]) -> Iterator[Flaw]:
    """Find altered evidence of verdicts. Each journal is read once."""
    known: dict[AttemptScope, CheckedRows] = {}
    for version, scope, head in uses:
        checked = known[scope] = known.get(scope) or read_checked(connection, scope)
        if checked.alterations:
            why = f"the evidence of its verdict was changed: {checked.alterations[0]}"
            yield Flaw(version, why)
        elif checked.journal.head_at(head.number) != head:
            whose = f"{scope.checkpoint} on {scope.suite}" if scope.checkpoint else scope.suite
            yield Flaw(version, f"the journal of {whose} was changed since its verdict read it")


def first_version_since(connection: Connection, change: Change, *names: str) -> int:
    """The version since which a channel has the values of this change in these columns."""
    columns = channel_change.c
    others = (columns[name].is_distinct_from(getattr(change, name)) for name in names)
    last = sa.select(sa.func.max(columns.version)).where(sa.or_(*others))
    last = last.filter_by(tenant=change.tenant, channel=change.channel)
    return (connection.scalar(last) or 0) + 1


def last_rollback_at(connection: Connection, tenant: str, name: str) -> int:
    query = sa.select(sa.func.max(channel_change.c.at))
    rollbacks = query.filter_by(tenant=tenant, channel=name, action="rollback")
    return connection.scalar(rollbacks) or 0


def shard_uses(connection: Connection, tenant: str, shard: str) -> Iterator[str]:
    """Reasons to keep a shard: channels and runs that use checkpoints trained on it."""
    columns = checkpoint_shard.c
    trained = sa.select(columns.checkpoint).where(columns.tenant == tenant, columns.shard == shard)
    names = set(connection.scalars(trained))
    if not names:
        return
    for change in newest_changes(connection, tenant):
        for name in {change.checkpoint, change.canary} & names:
            yield f"the channel {change.channel} points at {name}, which was trained on it"
    runs = benchmark_run.c
    unfinished = sa.select(runs.suite, runs.checkpoint).where(
        runs.tenant == tenant, runs.finished_at.is_(None), runs.checkpoint.in_(sorted(names))
    )
    for suite, name in connection.execute(
        unfinished.distinct().order_by(runs.suite, runs.checkpoint)
    ):
        yield f"a run of {suite} with {name}, which was trained on it, has not ended"


def bind_views(sources: ViewSources, _views: frozenset[str]) -> None:
    changes = channel_change.c
    sources.bind_query(
        "promotion_list",
        sa.select(channel_change)
        .where(changes.tenant == sources.tenant, sources.known(changes.at))
        .order_by(changes.channel, changes.version),
    )
