"""What a recipe's sessions are, asked of the lake as of one snap: by SQL of our own."""

from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import Any

import pyarrow as pa

from penstock.lake.buckets import SessionId
from penstock.lake.lake import Lake
from penstock.lake.query import OwnQuery
from penstock_jobs.rewards.chains import LINKS, SUBAGENT, Link, places_of
from penstock_jobs.rewards.credit import Place
from penstock_jobs.shards.exclusion.consent import with_repeats

_HERE = files("penstock_jobs.shards").joinpath("sql")


class Asking:
    """One tenant's lake as of one snap; None is now."""

    def __init__(self, lake: Lake, snap: int | None, tenant: str) -> None:
        self._lake = lake
        self._snap = snap
        self.tenant = tenant

    def query(self, sql: str) -> pa.Table:
        """The recipe's query. Raises QueryRefused, QueryFailed, QueryLimitReached."""
        return self._lake.query(sql, as_of=self._snap, tenant=self.tenant).arrow()

    def links(self) -> "Links":
        """Of all sessions of the tenant: who goes on with whom is short, and chains are closed
        under it."""
        rows = self._ask("links", "sessions", {})
        return Links(self.tenant, rows.to_pylist())

    def facts(self, sessions: Iterable[str]) -> pa.Table:
        return self._ask("facts", "sessions", {"sessions": sorted(sessions)})

    def outcomes(self, sessions: Iterable[str], version: str) -> pa.Table:
        parameters = {"sessions": sorted(sessions), "version": version}
        return self._ask("outcomes", "outcomes", parameters)

    def rewards(self, sessions: Iterable[str], version: str) -> pa.Table:
        parameters = {"sessions": sorted(sessions), "version": version}
        return self._ask("rewards", "rewards", parameters)

    def repeated(self, sessions: Iterable[str], repeating: Iterable[str]) -> pa.Table:
        """Events that may be copies: their source's key is in several sessions, or their session
        is `repeating`: it resumes or forks another, or is the one that is repeated."""
        parameters = {"sessions": sorted(sessions), "repeating": sorted(repeating)}
        names = ["same_keys", "histories"] if parameters["repeating"] else ["same_keys"]
        tables = [self._ask(name, "events", parameters) for name in names]
        return pa.concat_tables(tables).group_by(tables[0].column_names).aggregate([])

    def served(self, channel: str) -> pa.Table:
        return self._ask("served", "promotions", {"channel": channel})

    def _ask(self, name: str, view: str, parameters: Mapping[str, object]) -> pa.Table:
        sql = _HERE.joinpath(f"{name}.sql").read_text(encoding="utf-8")
        query = OwnQuery(sql, frozenset({view}), parameters)
        return self._lake.query(query, as_of=self._snap, tenant=self.tenant).arrow()


class Links:
    """Who goes on with whose work, and who repeats it."""

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
        self._places: dict[SessionId, Place] = places_of(links)
        #: Of those that repeat another session, which.
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

    def origin(self, session: str) -> str:
        """The session that all of it began with: through its chain, and through the sessions that
        these resume or fork. Of a ring, which nobody should send, any but always the same."""
        seen: list[str] = []
        at = self.chain(session)
        while at not in seen:
            seen.append(at)
            parents = sorted(self.repeats[one] for one in self.members(at) if one in self.repeats)
            at = self.chain(parents[0]) if parents else at
        return min(seen[seen.index(at) :])

    def members(self, chain: str) -> set[str]:
        """All sessions of a chain, those too that no event is known of."""
        return self._members.get(chain, {chain})

    def with_origins(self, sessions: Iterable[str]) -> set[str]:
        """These, the rest of their chains, and whatever any of them resumes or forks."""
        found: set[str] = set()
        waiting = set(sessions)
        while waiting:
            found |= (wide := self.closed(waiting))
            waiting = {self.repeats[one] for one in wide if one in self.repeats} - found
        return found

    def closed(self, sessions: Iterable[str]) -> set[str]:
        """These, and all others of their chains."""
        return {one for session in sessions for one in self.members(self.chain(session))}


class Facts:
    """What exclusions ask about the sessions that the query named, and the rest of their
    chains."""

    def __init__(self, rows: pa.Table, links: Links) -> None:
        self.links = links
        self._rows = {row["session_id"]: row for row in rows.to_pylist()}

    def of(self, session: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._rows[session]
        return found

    @property
    def chains(self) -> dict[str, str]:
        return {session: self.links.chain(session) for session in self._rows}

    @property
    def consents(self) -> dict[str, str]:
        return {session: row["consent"] for session, row in self._rows.items()}

    @property
    def consents_with_repeats(self) -> dict[str, str]:
        repeats = {one: parent for one, parent in self.links.repeats.items() if one in self._rows}
        return with_repeats(self.consents, self.chains, repeats)

    def table(self) -> pa.Table:
        """session_id and chain."""
        chains = self.chains
        columns = [pa.array(chains.keys(), pa.string()), pa.array(chains.values(), pa.string())]
        return pa.table(columns, names=["session_id", "chain"])
