"""Chains: sessions that one piece of work went through, by compactions and subagents.

A session says with whose work it goes on when it starts. That is kept in the metadata database,
as sessions are seen, so that finding a chain never reads the lake.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.database.engine import Database, insert_of
from penstock.lake.buckets import SessionId
from penstock.lake.tables import session_link
from penstock_jobs.rewards.credit import Place

LINKS = ("compaction", "subagent")
SUBAGENT = "subagent"
#: Rows of one statement.
_ASKED_AT_ONCE = 500


class Link(NamedTuple):
    """With whose work a session goes on."""

    parent: SessionId
    subagent: bool


def remember_links(database: Database, changes: pa.Table) -> None:
    """With whose work these sessions go on, from rows of `lake.changes`."""
    told = changes.filter(pc.is_in(changes["link"], pa.array(LINKS)))
    told = told.filter(pc.is_valid(told["parent_session"]))
    names = ["tenant", "session_id", "parent_session", "link"]
    rows = told.select(names).to_pylist()
    for start in range(0, len(rows), _ASKED_AT_ONCE):
        with database.write() as connection:
            insert = insert_of(connection)(session_link)
            newest = {name: insert.excluded[name] for name in names[2:]}
            connection.execute(
                insert.on_conflict_do_update(index_elements=names[:2], set_=newest),
                rows[start : start + _ASKED_AT_ONCE],
            )


def chains_of(
    database: Database, sessions: Iterable[SessionId]
) -> tuple[list[tuple[SessionId, ...]], dict[SessionId, Place]]:
    """The chains that these sessions are in, whole, in the order of their first sessions; and the
    places of those that are in one with others."""
    asked = set(sessions)
    with database.read() as connection:
        links = _links_around(connection, asked)
    places = places_of(links)
    chains: dict[SessionId, list[SessionId]] = {}
    for session in asked | places.keys():
        chain = places[session].chain if session in places else session.session_id
        chains.setdefault(SessionId(session.tenant, chain), []).append(session)
    return sorted(tuple(sorted(members)) for members in chains.values()), places


def places_of(links: Mapping[SessionId, Link]) -> dict[SessionId, Place]:
    """Of all sessions that a link names."""
    places: dict[SessionId, Place] = {}
    for session in links.keys() | {link.parent for link in links.values()}:
        root = _root(session, links)
        subagent = session in links and links[session].subagent
        places[session] = Place(root.session_id, subagent)
    return places


def _root(session: SessionId, links: Mapping[SessionId, Link]) -> SessionId:
    """The session that the chain began with; of a ring, which nobody should send, the least."""
    seen = [session]
    while (link := links.get(seen[-1])) is not None:
        if link.parent in seen:
            return min(seen[seen.index(link.parent) :])
        seen.append(link.parent)
    return seen[-1]


def _links_around(connection: Connection, asked: set[SessionId]) -> dict[SessionId, Link]:
    """All links of the chains of these sessions."""
    links: dict[SessionId, Link] = {}
    seen, upwards = set(asked), set(asked)
    while upwards:
        found = dict(_read(connection, session_link.c.session_id, upwards))
        links |= found
        upwards = {link.parent for link in found.values()} - seen
        seen |= upwards
    downwards = set(seen)
    while downwards:
        found = dict(_read(connection, session_link.c.parent_session, downwards))
        downwards = found.keys() - seen
        links |= found
        seen |= downwards
    return links


def _read(
    connection: Connection, column: sa.ColumnElement[str], sessions: Iterable[SessionId]
) -> Iterator[tuple[SessionId, Link]]:
    by_tenant: dict[str, list[str]] = {}
    for one in sorted(sessions):
        by_tenant.setdefault(one.tenant, []).append(one.session_id)
    for tenant, ids in by_tenant.items():
        for start in range(0, len(ids), _ASKED_AT_ONCE):
            some = column.in_(ids[start : start + _ASKED_AT_ONCE])
            query = sa.select(session_link).where(session_link.c.tenant == tenant, some)
            for row in connection.execute(query):
                parent = SessionId(tenant, row.parent_session)
                yield SessionId(tenant, row.session_id), Link(parent, row.link == SUBAGENT)
