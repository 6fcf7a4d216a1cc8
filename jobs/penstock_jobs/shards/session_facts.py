"""What the lake knows about sessions as of one snap: links, profiles, rewards, copies."""

from collections.abc import Iterable, Mapping
from importlib.resources import files

import pyarrow as pa

from penstock.lake.buckets import SessionId
from penstock.lake.lake import Lake
from penstock.lake.query import OwnQuery
from penstock_jobs.rewards.chains import LINKS, SUBAGENT, Link, places_of
from penstock_jobs.rewards.credit import ChainMember
from penstock_jobs.shards.exclusion.consent import with_repeats
from penstock_jobs.shards.exclusion.reasons import SessionProfile

_SQL = files("penstock_jobs.shards").joinpath("sql")


class SnapshotQueries:
    """Queries of one tenant's lake as of one snap; None is now."""

    def __init__(self, lake: Lake, snap: int | None, tenant: str) -> None:
        self._lake = lake
        self._snap = snap
        self.tenant = tenant

    def query(self, sql: str) -> pa.Table:
        """The recipe's query. Raises QueryRefused, QueryFailed, QueryLimitReached."""
        return self._lake.query(sql, as_of=self._snap, tenant=self.tenant).arrow()

    def links(self) -> "SessionLinks":
        """Of all sessions of the tenant: there are few, and chains have to be whole."""
        return SessionLinks(self.tenant, self._ask("links", "sessions").to_pylist())

    def facts(self, sessions: Iterable[str], links: "SessionLinks") -> "SessionFacts":
        rows = self._ask("facts", "sessions", sessions=sorted(sessions))
        return SessionFacts(rows, links)

    def outcomes(self, sessions: Iterable[str], version: str) -> pa.Table:
        return self._ask("outcomes", "outcomes", sessions=sorted(sessions), version=version)

    def rewards(self, sessions: Iterable[str], version: str) -> pa.Table:
        return self._ask("rewards", "rewards", sessions=sorted(sessions), version=version)

    def possible_copies(self, sessions: Iterable[str], repeating: Iterable[str]) -> pa.Table:
        """Events that may be copies: several sessions have their source's key, or their session
        is `repeating`, which means that it resumes or forks another or is itself repeated."""
        parameters = {"sessions": sorted(sessions), "repeating": sorted(repeating)}
        names = ["same_keys", "histories"] if parameters["repeating"] else ["same_keys"]
        tables = [self._ask(name, "events", **parameters) for name in names]
        return pa.concat_tables(tables).group_by(tables[0].column_names).aggregate([])

    def channel_changes(self, channel: str) -> pa.Table:
        return self._ask("served", "promotions", channel=channel)

    def _ask(self, name: str, view: str, **parameters: object) -> pa.Table:
        sql = _SQL.joinpath(f"{name}.sql").read_text(encoding="utf-8")
        query = OwnQuery(sql, frozenset({view}), parameters)
        return self._lake.query(query, as_of=self._snap, tenant=self.tenant).arrow()


class SessionLinks:
    """Which sessions go on with another one's work (chains), and which repeat another."""

    def __init__(self, tenant: str, rows: Iterable[Mapping[str, str]]) -> None:
        rows = list(rows)
        self._tenant = tenant
        links = {
            SessionId(tenant, row["session_id"]): Link(
                SessionId(tenant, row["parent_session"]), row["link"] == SUBAGENT
            )
            for row in rows
            if row["link"] in LINKS
        }
        self._places: dict[SessionId, ChainMember] = places_of(links)
        #: The parent of each session that resumes or forks another.
        self.repeats = {
            row["session_id"]: row["parent_session"]
            for row in rows
            if row["link"] in ("resume", "fork")
        }
        self._members: dict[str, set[str]] = {}
        for session, place in self._places.items():
            self._members.setdefault(place.chain, set()).add(session.session_id)

    def chain(self, session: str) -> str:
        place = self._places.get(SessionId(self._tenant, session))
        return place.chain if place else session

    def members(self, chain: str) -> set[str]:
        """All sessions of a chain, even those without a known event."""
        return self._members.get(chain, {chain})

    def origin(self, session: str) -> str:
        """The session that all of it began with: through its chain, and through the sessions that
        this resumes or forks. In a ring of links, which nobody should send, it is always the
        same one."""
        seen: list[str] = []
        at = self.chain(session)
        while at not in seen:
            seen.append(at)
            parents = sorted(self.repeats[one] for one in self.members(at) if one in self.repeats)
            at = self.chain(parents[0]) if parents else at
        return min(seen[seen.index(at) :])

    def whole_chains(self, sessions: Iterable[str]) -> set[str]:
        return {member for session in sessions for member in self.members(self.chain(session))}

    def with_origins(self, sessions: Iterable[str]) -> set[str]:
        """These sessions, the rest of their chains, and all that any of them resumes or forks."""
        reached: set[str] = set()
        waiting = set(sessions)
        while waiting:
            chains = self.whole_chains(waiting)
            reached |= chains
            waiting = {self.repeats[one] for one in chains if one in self.repeats} - reached
        return reached


class SessionFacts:
    """The profiles of the sessions that the query named and of the rest of their chains. Sessions
    that are not in the lake have none."""

    def __init__(self, rows: pa.Table, links: SessionLinks) -> None:
        self.links = links
        self.profiles = {
            row["session_id"]: SessionProfile(chain=links.chain(row["session_id"]), **row)
            for row in rows.to_pylist()
        }
        self.chains = {session: one.chain for session, one in self.profiles.items()}

    def consent(self, session: str) -> str:
        return self.profiles[session].consent if session in self.profiles else "unknown"

    def consents_with_repeats(self) -> dict[str, str]:
        consents = {session: one.consent for session, one in self.profiles.items()}
        parents = {one: self.links.repeats[one] for one in consents if one in self.links.repeats}
        return with_repeats(consents, self.chains, parents)

    def chain_table(self) -> pa.Table:
        """Columns session_id and chain."""
        columns = [pa.array(names, pa.string()) for names in (self.chains, self.chains.values())]
        return pa.table(columns, names=["session_id", "chain"])
