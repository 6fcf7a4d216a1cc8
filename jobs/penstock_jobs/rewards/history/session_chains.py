"""Chains: sessions that one piece of work went through; and sessions that repeat others.

Links are stored in the metadata database, so that finding a chain never reads the lake.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.access.privacy.consents import NO_TRAIN, decided_consents, decided_in
from penstock.backends.database.engine import Database, insert_of, portions
from penstock.core.errors import PenstockError
from penstock.lake.buckets import Bucket as LakeBucket
from penstock.lake.buckets import (
    SessionId,
    ids_by_tenant,
    plan_sessions,
    read_bucket,
    with_consents,
)
from penstock.lake.catalog import pinned
from penstock.lake.lake import Lake
from penstock.lake.query.lake_query import OwnQuery
from penstock.lake.tables import session_link
from penstock_jobs.rewards import reward_bucket_bytes
from penstock_jobs.rewards.bucket import Bucket, ChainMember, Relations, as_bucket
from penstock_jobs.rewards.rows import sql_of


class SessionUnknown(PenstockError, exit_status=2, http_status=404):
    """No segment holds the session {session!r} of the tenant {tenant}. Events of the last seconds
    may still be in the event log only."""


LINKS = ("compaction", "subagent")
#: Links of sessions that begin with their parent's events.
REPEATS = ("fork", "resume")


class Link(NamedTuple):
    parent: SessionId
    kind: str


Links = dict[SessionId, Link]


def remember_links(database: Database, changes: pa.Table) -> None:
    linked = changes.filter(pc.is_in(changes["link"], pa.array(LINKS + REPEATS)))
    linked = linked.filter(pc.is_valid(linked["parent_session"]))
    names = ["tenant", "session_id", "parent_session", "link"]
    for rows in portions(linked.select(names).to_pylist()):
        with database.write() as connection:
            insert = insert_of(connection)(session_link)
            newest = {name: insert.excluded[name] for name in names[2:]}
            insert = insert.on_conflict_do_update(index_elements=names[:2], set_=newest)
            connection.execute(insert, rows)


def gather_chain(lake: Lake, session: SessionId, as_of_us: int) -> Bucket:
    """Read a session and its chain from the segments.

    Raises SessionUnknown, LakeDamaged, what the store raises."""
    chains, places = chains_of(lake.database, [session])
    parents = parents_of(lake.database, chains[0])
    with pinned(lake.database, None) as pin:
        size = reward_bucket_bytes(lake.settings)
        [bucket] = plan_sessions(lake, pin, chains, size, repeated(parents))
        rows = with_decisions(lake, session.tenant, read_bucket(lake, bucket))
    if not pc.any(pc.equal(rows["session_id"], session.session_id)).as_py():
        raise SessionUnknown(session=session.session_id, tenant=session.tenant)
    relations = relations_of(bucket, places, parents)
    return as_bucket(rows, session.tenant, as_of_us, relations=relations)


def with_decisions(lake: Lake, tenant: str, rows: pa.Table) -> pa.Table:
    """Set `no_train` on sessions that were denied, or that repeat a denied session."""
    denied = {SessionId(tenant, each) for each in decided_in(lake.database, tenant, rows).denied}
    own = {SessionId(tenant, each) for each in rows["session_id"].unique().to_pylist()}
    links, reached = _origins(lake.database, own)
    if any(link.kind in REPEATS for link in links.values()):
        refusing = rows.filter(pc.equal(rows["consent"], NO_TRAIN))["session_id"].unique()
        known = {SessionId(tenant, each) for each in refusing.to_pylist()}
        waiting = denied | known | _refusing(lake, tenant, reached - own)
        follow: defaultdict[SessionId, set[SessionId]] = defaultdict(set)
        for session, link in links.items():
            follow[link.parent].add(session)
            if link.kind in LINKS:
                follow[session].add(link.parent)
        while waiting:
            denied |= waiting
            waiting = {other for session in waiting for other in follow[session]} - denied
    return with_consents(rows, ((session, NO_TRAIN) for session in sorted(denied & own)))


def _refusing(lake: Lake, tenant: str, sessions: Iterable[SessionId]) -> set[SessionId]:
    """Find sessions outside the bucket that say `no_train` or are denied."""
    ids = sorted(session.session_id for session in sessions)
    if not ids:
        return set()
    query = OwnQuery(sql_of("refusing_sessions.sql"), frozenset({"events"}), {"sessions": ids})
    refusing = lake.query(query, tenant=tenant).arrow()["session_id"].to_pylist()
    denied = decided_consents(lake, tenant, ids).denied
    return {SessionId(tenant, each) for each in {*refusing, *denied}}


def _origins(database: Database, sessions: Iterable[SessionId]) -> tuple[Links, set[SessionId]]:
    """Return links of these sessions' chains and of all that they repeat; and all sessions
    there."""
    links, reached, waiting = Links(), set[SessionId](), set(sessions)
    while waiting:
        chains = _chain_links(database, waiting)
        members = waiting | chains.keys() | {link.parent for link in chains.values()}
        with database.read() as connection:
            repeats = _read_links(connection, session_link.c.session_id, members, REPEATS)
        links |= chains | repeats
        reached |= members
        waiting = {link.parent for link in repeats.values()} - reached
    return links, reached


def going_on_with(database: Database, sessions: Iterable[SessionId]) -> set[SessionId]:
    """Return these sessions, their chains, and all that fork or resume any of them."""
    reached: set[SessionId] = set()
    waiting = set(sessions)
    while waiting:
        chains, _ = chains_of(database, waiting)
        members = {session for chain in chains for session in chain}
        reached |= members
        waiting = repeating(database, members).keys() - reached
    return reached


def relations_of(
    bucket: LakeBucket, places: Mapping[SessionId, ChainMember], parents: Mapping[SessionId, Link]
) -> Relations:
    own = bucket.sessions or ()
    linked = [(session.session_id, parents[session]) for session in own if session in parents]
    return Relations(
        {session.session_id: places[session] for session in own if session in places},
        {session: (link.parent.session_id, link.kind in REPEATS) for session, link in linked},
        frozenset(session.session_id for session in bucket.beside),
    )


def chains_of(
    database: Database, sessions: Iterable[SessionId]
) -> tuple[list[tuple[SessionId, ...]], dict[SessionId, ChainMember]]:
    """Return the whole chains of these sessions, sorted, and places in longer chains."""
    sessions = set(sessions)
    places = places_of(_chain_links(database, sessions))
    chains: dict[SessionId, list[SessionId]] = {}
    for session in sessions | places.keys():
        chain = places[session].chain if session in places else session.session_id
        chains.setdefault(SessionId(session.tenant, chain), []).append(session)
    return sorted(tuple(sorted(members)) for members in chains.values()), places


def places_of(links: Mapping[SessionId, Link]) -> dict[SessionId, ChainMember]:
    """Return places of all linked sessions. A chain has the name of its first session.

    In a cycle, which nobody should send, it has the name of the least session."""
    places: dict[SessionId, ChainMember] = {}
    for session in links.keys() | {link.parent for link in links.values()}:
        path = [session]
        while (link := links.get(path[-1])) is not None and link.parent not in path:
            path.append(link.parent)
        first = path[-1] if link is None else min(path[path.index(link.parent) :])
        subagent = session in links and links[session].kind == "subagent"
        places[session] = ChainMember(first.session_id, subagent)
    return places


def parents_of(database: Database, sessions: Iterable[SessionId]) -> Links:
    """Return links to parents. In a cycle the least session has none."""
    sessions = set(sessions)
    links = _follow(database, sessions, LINKS + REPEATS)

    def is_least_of_ring(session: SessionId) -> bool:
        path, above = {session}, links[session].parent
        while above in links and above not in path:
            path.add(above)
            above = links[above].parent
        return above == session and session == min(path)

    own = sessions & links.keys()
    return {session: links[session] for session in own if not is_least_of_ring(session)}


def repeated(parents: Mapping[SessionId, Link]) -> dict[SessionId, SessionId]:
    """Return the parent of each fork or resume."""
    return {session: link.parent for session, link in parents.items() if link.kind in REPEATS}


def repeating(database: Database, sessions: Iterable[SessionId]) -> dict[SessionId, SessionId]:
    """Return all sessions that repeat one of these, with that one."""
    with database.read() as connection:
        return repeated(_read_links(connection, session_link.c.parent_session, sessions, REPEATS))


def _chain_links(database: Database, sessions: set[SessionId]) -> Links:
    above = _follow(database, sessions, LINKS)
    members = sessions | {link.parent for link in above.values()}
    return above | _follow(database, members, LINKS, down=True)


def _follow(
    database: Database, sessions: set[SessionId], kinds: Sequence[str], *, down: bool = False
) -> Links:
    """Follow links from these sessions up to ancestors, or down to descendants."""
    links, reached, waiting = Links(), set(sessions), sessions
    column = session_link.c.parent_session if down else session_link.c.session_id
    with database.read() as connection:
        while waiting:
            found = _read_links(connection, column, waiting, kinds)
            links |= found
            waiting = set(found if down else (link.parent for link in found.values())) - reached
            reached |= waiting
    return links


def _read_links(
    connection: Connection,
    column: sa.ColumnElement[str],
    sessions: Iterable[SessionId],
    kinds: Sequence[str],
) -> Links:
    links = Links()
    is_kind = session_link.c.link.in_(kinds)
    for tenant, ids in ids_by_tenant(sessions).items():
        for some in portions(ids):
            here = (session_link.c.tenant == tenant, column.in_(some), is_kind)
            for row in connection.execute(sa.select(session_link).where(*here)):
                parent = SessionId(tenant, row.parent_session)
                links[SessionId(tenant, row.session_id)] = Link(parent, row.link)
    return links
