"""What the metadata database keeps of rewards: definitions, how far each has come, what is due."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa
from sqlalchemy import Connection, bindparam

from penstock.database.engine import Database, now_us
from penstock.database.inserting import insert_of
from penstock.errors import InvalidInput
from penstock.lake.buckets import Bucket, SessionId
from penstock.lake.catalog import Pin
from penstock.lake.changes import read_changes
from penstock.lake.lake import Lake
from penstock.lake.tables import consent_change
from penstock_jobs.rewards.chains import chains_of, remember_links
from penstock_jobs.rewards.credit import Place
from penstock_jobs.rewards.definition import Definition
from penstock_jobs.rewards.reward_files import RewardFile, read_outcomes, rewards_at
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


@dataclass(frozen=True)
class Wanted:
    """Sessions outside of it are left out of this run."""

    #: Heard of at this time or later, in microseconds since 1970.
    since_us: int | None = None
    project: str | None = None


@dataclass(frozen=True)
class Plan:
    """Chains of sessions to compute, sorted, and the places of those that are in a longer one."""

    chains: list[tuple[SessionId, ...]]
    places: dict[SessionId, Place]
    changed: int
    matured: int

    @property
    def sessions(self) -> int:
        return sum(map(len, self.chains))

    def places_of(self, bucket: Bucket) -> dict[SessionId, Place]:
        return {one: self.places[one] for one in bucket.sessions or () if one in self.places}


def plan_run(lake: Lake, pin: Pin, progress: Progress, wanted: Wanted) -> Plan:
    """What changed after `progress.through_snap`, or is due. What a run that was cut off has done
    already is left out. Raises LakeDamaged."""
    changes = read_changes(lake.store, pin, progress.through_snap)
    remember_links(lake.database, changes)
    done = _done_since(lake, pin, progress)
    changed = {
        session
        for session, snap in _snaps(_chosen(changes, wanted)).items()
        if done.get(session, -1) < snap
    }
    changed |= {
        session
        for session, snap in _consents_since(lake, pin, progress.through_snap).items()
        if done.get(session, -1) < snap
    }
    matured = _matured(lake, progress.version, progress.run_at) - changed
    return _whole_chains(lake, changed, matured)


def plan_backfill(lake: Lake, pin: Pin, version: str, wanted: Wanted) -> Plan:
    """All sessions that this definition has never computed. Raises LakeDamaged."""
    changes = read_changes(lake.store, pin, -1)
    remember_links(lake.database, changes)
    there = _sessions_in(lake, rewards_at(lake.database, pin.snap, version))
    return _whole_chains(lake, _snaps(_chosen(changes, wanted)).keys() - there, set())


def plan_all(lake: Lake, pin: Pin, wanted: Wanted) -> Plan:
    """All sessions: where what is asked for beside the lake may have changed. Raises
    LakeDamaged."""
    changes = read_changes(lake.store, pin, -1)
    remember_links(lake.database, changes)
    return _whole_chains(lake, set(_snaps(_chosen(changes, wanted))), set())


def _whole_chains(
    lake: Lake, changed: Collection[SessionId], matured: Collection[SessionId]
) -> Plan:
    chains, places = chains_of(lake.database, {*changed, *matured})
    return Plan(chains, places, len(changed), len(matured))


def _chosen(changes: pa.Table, wanted: Wanted) -> pa.Table:
    if wanted.since_us is not None:
        changes = changes.filter(pc.greater_equal(changes["last_ts"], wanted.since_us))
    if wanted.project is not None:
        changes = changes.filter(pc.equal(changes["project"], wanted.project))
    return changes


def _snaps(changes: pa.Table) -> dict[SessionId, int]:
    columns = (changes[name].to_pylist() for name in ("tenant", "session_id", "changed_snap"))
    return {SessionId(tenant, id_): snap for tenant, id_, snap in zip(*columns, strict=True)}


def _consents_since(lake: Lake, pin: Pin, snap: int) -> dict[SessionId, int]:
    told = consent_change.c.added_snap
    query = sa.select(consent_change.c.tenant, consent_change.c.session_id, told)
    with lake.database.read() as connection:
        rows = connection.execute(query.where(told > snap, told <= pin.snap).order_by(told))
        return {SessionId(row.tenant, row.session_id): row.added_snap for row in rows}


def _matured(lake: Lake, version: str, as_of_us: int) -> set[SessionId]:
    query = sa.select(reward_due.c.tenant, reward_due.c.session_id).where(
        reward_due.c.definition_version == version, reward_due.c.due_at <= as_of_us
    )
    with lake.database.read() as connection:
        return {SessionId(*row) for row in connection.execute(query)}


def _done_since(lake: Lake, pin: Pin, progress: Progress) -> dict[SessionId, int]:
    """What a run that did not come to its end has computed, and from which snap."""
    done: dict[SessionId, int] = {}
    for file in rewards_at(lake.database, pin.snap, progress.version):
        if file.lake_snap > progress.through_snap:
            for session in _sessions_in(lake, [file]):
                done[session] = max(done.get(session, -1), file.lake_snap)
    return done


def _sessions_in(lake: Lake, files: Iterable[RewardFile]) -> set[SessionId]:
    found: set[SessionId] = set()
    for file in files:
        rows = read_outcomes(lake.store, file.name, ["tenant", "session_id"])
        columns = (rows[name].to_pylist() for name in ("tenant", "session_id"))
        found.update(SessionId(*one) for one in zip(*columns, strict=True))
    return found
