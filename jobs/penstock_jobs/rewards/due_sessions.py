"""Progress of definitions over the lake, and what the next run has to compute."""

from collections.abc import Iterable, Mapping
from itertools import starmap
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa
from sqlalchemy import Connection, bindparam

from penstock.access.privacy.consents import DecidedSubject, decisions_after
from penstock.access.privacy.orders import ErasureScope
from penstock.access.privacy.reach import find_sessions
from penstock.backends.database.engine import Database, insert_of, now_us
from penstock.core.errors import InvalidInput
from penstock.events.event import TS_MAX_US
from penstock.lake.buckets import SessionId, read_changes
from penstock.lake.catalog import Pin
from penstock.lake.lake import Lake
from penstock.lake.segments import sessions_name
from penstock.lake.tables import consent_change
from penstock_jobs.rewards.bucket import ChainMember
from penstock_jobs.rewards.definition import Definition
from penstock_jobs.rewards.history.session_chains import (
    Link,
    chains_of,
    going_on_with,
    parents_of,
    remember_links,
    repeating,
)
from penstock_jobs.rewards.reward_files import RewardFile, read_rows, rewards_at
from penstock_jobs.rewards.rows import row_tuples
from penstock_jobs.rewards.tables import reward_definition, reward_due


class Progress(NamedTuple):
    """Progress of a definition: sessions that changed up to `through_snap` are done."""

    version: str
    name: str
    through_snap: int
    run_at: int
    text: str
    #: Whether sessions are shown by its outcomes where nobody names a definition.
    listed: bool
    #: The newest consent decision that was applied.
    through_decision: int


#: What does not change the version.
_WRITTEN = ("name", "text", "listed")
#: A session without `session_end` rests after this silence, in microseconds. Computing it with each
#: of its events would cost many times as much.
REST_US = 5 * 60 * 1_000_000
_PROGRESS = [reward_definition.c[name] for name in Progress._fields]


def begin_run(database: Database, definition: Definition, clock_us: int) -> Progress:
    """Store the definition and start a run. `run_at` is later than in any earlier run."""
    table = reward_definition
    with database.write() as connection:
        facts = {name: getattr(definition, name) for name in ("version", *_WRITTEN)}
        facts |= {"created_at": now_us(), "through_snap": 0, "run_at": 0, "through_decision": 0}
        connection.execute(insert_of(connection)(table).values(facts).on_conflict_do_nothing())
        run_at = sa.case((table.c.run_at >= clock_us, table.c.run_at + 1), else_=clock_us)
        own = table.c.version == definition.version
        written = {name: facts[name] for name in _WRITTEN}
        update = sa.update(table).where(own).values(run_at=run_at, **written)
        return Progress(*connection.execute(update.returning(*_PROGRESS)).one())


def finish_run(database: Database, version: str, snap: int, decision: int) -> None:
    own = reward_definition.c.version == version
    with database.write() as connection:
        for name, number in (("through_snap", snap), ("through_decision", decision)):
            behind = reward_definition.c[name] < number
            update = sa.update(reward_definition).where(own, behind)
            connection.execute(update.values({name: number}))


def known_definitions(database: Database) -> list[Progress]:
    """List definitions, those that are listed first, then the newest run first."""
    columns = reward_definition.c
    query = sa.select(*_PROGRESS).order_by(columns.listed.desc(), columns.run_at.desc())
    return [Progress(*row) for row in database.rows(query)]


def definition_known_as(database: Database, text: str) -> Progress:
    """Find a definition by name or prefix of its version; the newest run wins.

    Raises InvalidInput."""
    known = known_definitions(database)
    by_version = [run for run in known if run.version.startswith(text)] if text else []
    by_name = [run for run in known if run.name == text]
    if len(by_version) > 1 and not by_name:
        why = "several versions begin with it; give more digits"
        raise InvalidInput(what=f"The version {text!r}", why=why)
    if not (matching := by_name or by_version):
        names = ", ".join(f"{run.name} ({run.version})" for run in known) or "none"
        raise InvalidInput(what=f"The definition {text!r}", why=f"it has not run; known: {names}")
    return matching[0]


def put_due(
    connection: Connection,
    progress: Progress,
    sessions: Iterable[SessionId],
    due: Mapping[SessionId, int],
) -> None:
    """Store when sessions mature. Does not overwrite a later computation."""
    columns = reward_due.c
    if keys := [{"of_tenant": tenant, "session": session} for tenant, session in sessions]:
        delete = sa.delete(reward_due).where(
            columns.definition_version == progress.version,
            columns.tenant == bindparam("of_tenant"),
            columns.session_id == bindparam("session"),
            columns.computed_at <= progress.run_at,
        )
        connection.execute(delete, keys)
    if rows := [{**key._asdict(), "due_at": due_at} for key, due_at in due.items()]:
        insert = insert_of(connection)(reward_due).on_conflict_do_nothing()
        own = {"definition_version": progress.version, "computed_at": progress.run_at}
        connection.execute(insert.values(own), rows)


class SessionFilter(msgspec.Struct, frozen=True):
    #: Only sessions with an event at or after this time, in microseconds since 1970.
    since_us: int | None = None
    project: str | None = None


class RunPlan(NamedTuple):
    """The chains to compute, places of sessions in chains, and links to parents."""

    chains: list[tuple[SessionId, ...]]
    places: dict[SessionId, ChainMember]
    parents: dict[SessionId, Link]
    changed: int
    matured: int
    #: Changed sessions that are going on, and when each rests. They are due then.
    live: dict[SessionId, int]
    decision: int


class _Change(NamedTuple):
    snap: int
    last_us: int
    ended_us: int | None

    def rests_us(self, now_us: int) -> int | None:
        """Return when the session will rest; None if it does. A wrong clock keeps none waiting."""
        ended = self.ended_us is not None and self.ended_us >= self.last_us
        going_on = not ended and abs(now_us - self.last_us) < REST_US
        return self.last_us + REST_US if going_on else None


def plan_run(
    lake: Lake, pin: Pin, progress: Progress, only: SessionFilter, *, backfill: bool = False
) -> RunPlan:
    """Plan sessions that rest and changed after `progress.through_snap`, or are due.

    A session also changes with its parent and with consents. `backfill` plans sessions that were
    never computed, also those that are going on. Raises LakeDamaged."""
    decision, subjects = decisions_after(lake.database, progress.through_decision)
    if backfill:
        changed = set(_changed_sessions(lake, pin, -1, only))
        changed -= _sessions_in(lake, rewards_at(lake.database, pin.snap, progress.version))
        matured, live = set[SessionId](), dict[SessionId, int]()
    else:
        changed, live = _changes_since(lake, pin, progress, only)
        changed |= _decided_sessions(lake, progress.version, pin, subjects)
        matured = _due_sessions(lake.database, progress) - changed - live.keys()
    chains, places = chains_of(lake.database, changed | matured)
    sessions = {session for chain in chains for session in chain}
    parents = parents_of(lake.database, sessions)
    live = {session: at for session, at in live.items() if session not in sessions}
    return RunPlan(chains, places, parents, len(changed), len(matured), live, decision)


def _changes_since(
    lake: Lake, pin: Pin, progress: Progress, only: SessionFilter
) -> tuple[set[SessionId], dict[SessionId, int]]:
    """Find changed sessions that rest or that refuse training, and when each other one rests."""
    done: dict[SessionId, int] = {}
    for file in rewards_at(lake.database, pin.snap, progress.version):
        if file.lake_snap > progress.through_snap:
            for session in _sessions_in(lake, [file]):
                done[session] = max(done.get(session, -1), file.lake_snap)
    own = _changed_sessions(lake, pin, progress.through_snap, only)
    changes = {session: change.snap for session, change in own.items()}
    for session, parent in repeating(lake.database, changes).items():
        changes[session] = max(changes.get(session, -1), changes[parent])
    added = consent_change.c.added_snap
    consents = sa.select(consent_change.c.tenant, consent_change.c.session_id, added).where(
        added > progress.through_snap, added <= pin.snap
    )
    refused = {SessionId(tenant, id_): snap for tenant, id_, snap in lake.database.rows(consents)}
    newest_refusal = max(refused.values(), default=-1)
    refusing = going_on_with(lake.database, refused)
    for session in refusing:
        changes[session] = max(changes.get(session, -1), newest_refusal)
    changed = {session for session, snap in changes.items() if done.get(session, -1) < snap}
    live = {
        session: rests_us
        for session in (changed & own.keys()) - refusing
        if (rests_us := own[session].rests_us(progress.run_at)) is not None
    }
    return changed - live.keys(), live


def _due_sessions(database: Database, progress: Progress) -> set[SessionId]:
    due = sa.select(reward_due.c.tenant, reward_due.c.session_id).where(
        reward_due.c.definition_version == progress.version, reward_due.c.due_at <= progress.run_at
    )
    return {SessionId(*row) for row in database.rows(due)}


def _decided_sessions(
    lake: Lake, version: str, pin: Pin, subjects: Iterable[DecidedSubject]
) -> set[SessionId]:
    """Find computed sessions of these subjects, and sessions that continue them."""
    if not subjects:
        return set()
    scopes = [ErasureScope(*subject, TS_MAX_US) for subject in subjects]
    named = {each for scope in scopes for some in find_sessions(lake, scope) for each in some}
    computed = _sessions_in(lake, rewards_at(lake.database, pin.snap, version))
    return going_on_with(lake.database, named) & computed


def _changed_sessions(
    lake: Lake, pin: Pin, snap: int, only: SessionFilter
) -> dict[SessionId, _Change]:
    changes = read_changes(lake.store, pin, snap)
    remember_links(lake.database, changes)
    if only.since_us is not None:
        changes = changes.filter(pc.greater_equal(changes["last_ts"], only.since_us))
    if only.project is not None:
        changes = changes.filter(pc.equal(changes["project"], only.project))
    facts = row_tuples(changes, "changed_snap", "last_ts", "end_ts")
    return dict(zip(_ids(changes), starmap(_Change, facts), strict=True))


def _sessions_in(lake: Lake, files: Iterable[RewardFile]) -> set[SessionId]:
    columns = ["tenant", "session_id"]
    outcomes = (read_rows(lake.store, sessions_name(file.name), columns) for file in files)
    return {session for rows in outcomes for session in _ids(rows)}


def _ids(rows: pa.Table) -> list[SessionId]:
    return [SessionId(*key) for key in row_tuples(rows, "tenant", "session_id")]
