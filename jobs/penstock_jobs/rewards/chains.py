"""Chains: sessions that one piece of work went through, by compactions and subagents; and which
sessions repeat which, as forks and resumes.

A session names the session that it continues when it starts. The metadata database keeps these
links as sessions are seen, so that finding a chain never reads the lake.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib.resources import files
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.database.engine import Database, insert_of
from penstock.errors import PenstockError
from penstock.lake.buckets import Bucket as LakeBucket
from penstock.lake.buckets import SessionId, plan_sessions, read_bucket, with_consents
from penstock.lake.catalog import pinned
from penstock.lake.lake import Lake
from penstock.lake.query import OwnQuery
from penstock.lake.tables import session_link
from penstock.privacy.consents import NO_TRAIN, decided_consents, decided_in
from penstock_jobs.rewards.bucket import Bucket, as_bucket
from penstock_jobs.rewards.lives import ChainMember, Parent, Relations
from penstock_jobs.rewards.settings import reward_bucket_bytes


class SessionUnknown(PenstockError, exit_status=2, http_status=404):
    """No segment holds a session {session!r} of the tenant {tenant}. What was sent in the last
    seconds may be in the log alone."""


LINKS = ("compaction", "subagent")
SUBAGENT = "subagent"
#: Links of sessions that begin with what their parent holds.
REPEATS = ("fork", "resume")
_ROWS_PER_STATEMENT = 500


class Link(NamedTuple):
    """A session names the session that it continues."""

    parent: SessionId
    kind: str


def remember_links(database: Database, changes: pa.Table) -> None:
    linked = changes.filter(pc.is_in(changes["link"], pa.array(LINKS + REPEATS)))
    linked = linked.filter(pc.is_valid(linked["parent_session"]))
    names = ["tenant", "session_id", "parent_session", "link"]
    rows = linked.select(names).to_pylist()
    for start in range(0, len(rows), _ROWS_PER_STATEMENT):
        with database.write() as connection:
            insert = insert_of(connection)(session_link)
            newest = {name: insert.excluded[name] for name in names[2:]}
            connection.execute(
                insert.on_conflict_do_update(index_elements=names[:2], set_=newest),
                rows[start : start + _ROWS_PER_STATEMENT],
            )


def gather_chain(
    lake: Lake, session: SessionId, as_of_us: int
) -> tuple[Bucket, dict[str, ChainMember]]:
    """A session with the others of its chain as the segments have them, as one life, and their
    places. Raises SessionUnknown, LakeDamaged, what the store raises."""
    chains, places = chains_of(lake.database, [session])
    parents = parents_of(lake.database, chains[0])
    with pinned(lake.database, None) as pin:
        size = reward_bucket_bytes(lake.settings)
        [bucket] = plan_sessions(lake, pin, chains, size, repeated(parents))
        rows = with_decisions(lake, session.tenant, read_bucket(lake, bucket))
    if not pc.any(pc.equal(rows["session_id"], session.session_id)).as_py():
        raise SessionUnknown(session=session.session_id, tenant=session.tenant)
    relations = relations_of(bucket, places, parents)
    of_tenant = {member.session_id: place for member, place in places.items()}
    return as_bucket(rows, session.tenant, as_of_us, relations=relations), of_tenant


def with_decisions(lake: Lake, tenant: str, rows: pa.Table) -> pa.Table:
    """The rows, with `no_train` wherever anybody decided so, also of sessions that they repeat."""
    denied = {SessionId(tenant, each) for each in decided_in(lake.database, tenant, rows).denied}
    own = {SessionId(tenant, each) for each in rows["session_id"].unique().to_pylist()}
    origins = Origins.of(lake.database, own)
    if origins.above:
        refusing = rows.filter(pc.equal(rows["consent"], NO_TRAIN))["session_id"].unique()
        known = denied | {SessionId(tenant, each) for each in refusing.to_pylist()}
        known |= _refusing(lake, tenant, origins.chains.keys() - own)
        denied |= {session for session in own if origins.has_any_of(session, known)}
    return with_consents(rows, ((session, NO_TRAIN) for session in sorted(denied)))


def _refusing(lake: Lake, tenant: str, sessions: Iterable[SessionId]) -> set[SessionId]:
    """Of sessions whose events are not at hand, those that say `no_train`, or are denied."""
    ids = sorted(session.session_id for session in sessions)
    if not ids:
        return set()
    sql = files("penstock_jobs.rewards").joinpath("refusing_sessions.sql").read_text("utf-8")
    query = OwnQuery(sql, frozenset({"events"}), {"sessions": ids})
    refusing = lake.query(query, tenant=tenant).arrow()["session_id"].to_pylist()
    denied = decided_consents(lake, tenant, ids).denied
    return {SessionId(tenant, each) for each in {*refusing, *denied}}


class Origins(NamedTuple):
    """Of some sessions, the chains that they are in, and which chains these fork or resume."""

    #: By session; a chain has the name of its first session.
    chains: Mapping[SessionId, SessionId]
    above: Mapping[SessionId, frozenset[SessionId]]

    @classmethod
    def of(cls, database: Database, sessions: Iterable[SessionId]) -> "Origins":
        chains: dict[SessionId, SessionId] = {}
        above: dict[SessionId, set[SessionId]] = {}
        waiting = set(sessions)
        parents: dict[SessionId, SessionId] = {}
        while waiting:
            found, _ = chains_of(database, waiting)
            members = {session: chain[0] for chain in found for session in chain}
            chains |= members
            with database.read() as connection:
                links = _read_links(connection, session_link.c.session_id, members, REPEATS)
            parents |= {session: link.parent for session, link in links.items()}
            waiting = {link.parent for link in links.values()} - chains.keys()
        for session, parent in parents.items():
            above.setdefault(chains[session], set()).add(chains[parent])
        return cls(chains, {chain: frozenset(names) for chain, names in above.items()})

    def has_any_of(self, session: SessionId, denied: Collection[SessionId]) -> bool:
        """Whether its chain, or one that it goes on from, holds one of these sessions."""
        of_chains = {self.chains[each] for each in denied if each in self.chains}
        reached, waiting = set[SessionId](), {self.chains[session]}
        while waiting:
            reached |= waiting
            waiting = {name for chain in waiting for name in self.above.get(chain, ())} - reached
        return not reached.isdisjoint(of_chains)


def going_on_with(database: Database, sessions: Iterable[SessionId]) -> set[SessionId]:
    """These sessions, the rest of their chains, and all that fork or resume any of them."""
    reached: set[SessionId] = set()
    waiting = set(sessions)
    while waiting:
        chains, _ = chains_of(database, waiting)
        members = {session for chain in chains for session in chain}
        reached |= members
        waiting = repeating(database, members).keys() - reached
    return reached


def relations_of(
    bucket: LakeBucket,
    places: Mapping[SessionId, ChainMember],
    parents: Mapping[SessionId, Link],
) -> Relations:
    own = bucket.sessions or ()
    return Relations(
        {session.session_id: places[session] for session in own if session in places},
        {
            session.session_id: Parent(link.parent.session_id, link.kind in REPEATS)
            for session in own
            if (link := parents.get(session)) is not None
        },
        frozenset(session.session_id for session in bucket.beside),
    )


def chains_of(
    database: Database, sessions: Iterable[SessionId]
) -> tuple[list[tuple[SessionId, ...]], dict[SessionId, ChainMember]]:
    """The whole chains of these sessions, sorted; and the places in chains of several."""
    sessions = set(sessions)
    with database.read() as connection:
        places = places_of(_chain_links(connection, sessions))
    chains: dict[SessionId, list[SessionId]] = {}
    for session in sessions | places.keys():
        chain = places[session].chain if session in places else session.session_id
        chains.setdefault(SessionId(session.tenant, chain), []).append(session)
    return sorted(tuple(sorted(members)) for members in chains.values()), places


def places_of(links: Mapping[SessionId, Link]) -> dict[SessionId, ChainMember]:
    """The places of all sessions that a link names. A chain is named by the session that it began
    with; a ring, which nobody should send, by the least of its sessions."""
    places: dict[SessionId, ChainMember] = {}
    for session in links.keys() | {link.parent for link in links.values()}:
        path = [session]
        while (link := links.get(path[-1])) is not None and link.parent not in path:
            path.append(link.parent)
        first = path[-1] if link is None else min(path[path.index(link.parent) :])
        subagent = session in links and links[session].kind == SUBAGENT
        places[session] = ChainMember(first.session_id, subagent)
    return places


def parents_of(database: Database, sessions: Iterable[SessionId]) -> dict[SessionId, Link]:
    """The links of these sessions to their parents. In a ring the least session has none."""
    sessions = set(sessions)
    with database.read() as connection:
        links = _links_upwards(connection, sessions, LINKS + REPEATS)

    def is_least_of_ring(session: SessionId) -> bool:
        path, above = {session}, links[session].parent
        while above in links and above not in path:
            path.add(above)
            above = links[above].parent
        return above == session and session == min(path)

    return {
        session: links[session]
        for session in sessions
        if session in links and not is_least_of_ring(session)
    }


def repeated(parents: Mapping[SessionId, Link]) -> dict[SessionId, SessionId]:
    """Of each session that is a fork or a resume, of which."""
    return {session: link.parent for session, link in parents.items() if link.kind in REPEATS}


def repeating(database: Database, sessions: Iterable[SessionId]) -> dict[SessionId, SessionId]:
    """All sessions that repeat one of these, and which."""
    with database.read() as connection:
        below = _read_links(connection, session_link.c.parent_session, sessions, REPEATS)
    return {session: link.parent for session, link in below.items()}


def _chain_links(connection: Connection, sessions: set[SessionId]) -> dict[SessionId, Link]:
    links = _links_upwards(connection, sessions, LINKS)
    members = sessions | {link.parent for link in links.values()}
    downwards = set(members)
    while downwards:
        below = _read_links(connection, session_link.c.parent_session, downwards, LINKS)
        links |= below
        downwards = below.keys() - members
        members |= downwards
    return links


def _links_upwards(
    connection: Connection, sessions: set[SessionId], kinds: Sequence[str]
) -> dict[SessionId, Link]:
    links: dict[SessionId, Link] = {}
    members, upwards = set(sessions), set(sessions)
    while upwards:
        above = _read_links(connection, session_link.c.session_id, upwards, kinds)
        links |= above
        upwards = {link.parent for link in above.values()} - members
        members |= upwards
    return links


def _read_links(
    connection: Connection,
    column: sa.ColumnElement[str],
    sessions: Iterable[SessionId],
    kinds: Sequence[str],
) -> dict[SessionId, Link]:
    links: dict[SessionId, Link] = {}
    is_kind = session_link.c.link.in_(kinds)
    for tenant, own in groupby(sorted(sessions), key=attrgetter("tenant")):
        ids = [session.session_id for session in own]
        for start in range(0, len(ids), _ROWS_PER_STATEMENT):
            some = column.in_(ids[start : start + _ROWS_PER_STATEMENT])
            query = sa.select(session_link).where(session_link.c.tenant == tenant, some, is_kind)
            for row in connection.execute(query):
                parent = SessionId(tenant, row.parent_session)
                links[SessionId(tenant, row.session_id)] = Link(parent, row.link)
    return links
