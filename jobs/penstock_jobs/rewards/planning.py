"""What a run has to do: sessions that changed, or matured, since the last; whole chains of them."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa

from penstock.lake.buckets import Bucket, SessionId
from penstock.lake.catalog import Pin
from penstock.lake.changes import read_changes
from penstock.lake.lake import Lake
from penstock.lake.tables import consent_change
from penstock_jobs.rewards.chains import chains_of, remember_links
from penstock_jobs.rewards.credit import Place
from penstock_jobs.rewards.keeping import Progress
from penstock_jobs.rewards.reward_files import RewardFile, read_outcomes, rewards_at
from penstock_jobs.rewards.tables import reward_due


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
