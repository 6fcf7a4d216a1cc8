"""Facts of the lake about sessions as of one snap: links, profiles, rewards and events."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.resources import files
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
import sqlalchemy as sa

from penstock.access.privacy.consents import (
    NO_TRAIN,
    TRAIN,
    DecidedConsents,
    DecisionKind,
    SessionDecisions,
)
from penstock.access.privacy.tombstones import SESSION
from penstock.backends.execution.executor import Executor
from penstock.core.settings import MIB, Settings
from penstock.events.event import CONSENT_UNKNOWN
from penstock.lake import QueryLimitReached
from penstock.lake.buckets import Bucket, SessionId, plan_sessions, read_bucket
from penstock.lake.catalog import Pin, content_snap
from penstock.lake.commits import snap_since
from penstock.lake.lake import Lake
from penstock.lake.query.lake_query import OwnQuery
from penstock.lake.query.statements import MEMORY_SETTING
from penstock.lake.tables import lake_commit
from penstock.registry.channels.tables import channel_change
from penstock_jobs.rewards import reward_bucket_bytes
from penstock_jobs.rewards.history.session_chains import LINKS, REPEATS, Link, places_of
from penstock_jobs.shards.selection.dictionary_codes import single_array

_SQL = files("penstock_jobs.shards").joinpath("sql")
#: The view of each query.
_VIEWS = {
    "facts": "sessions", "links": "sessions", "outcomes": "outcomes", "rewards": "rewards",
    "credits": "rewards", "histories": "events", "same_keys": "events", "sampled": "events",
    "served": "promotions", "vendors": "events",
}  # fmt: skip
_FACTS_AT_ONCE = 50_000
#: Memory of each planning query: ten million sessions are planned in 2 GB.
_QUERY_MEMORY_BYTES_MAX = 512 * MIB
ValueT = TypeVar("ValueT")
ResultT = TypeVar("ResultT")


class SessionProfile(msgspec.Struct, frozen=True):
    """Facts of a session for exclusions."""

    session_id: str
    #: The first session of the chain.
    chain: str = ""
    user: str | None = None
    repo: str | None = None
    commit: str | None = None
    task_id: str | None = None
    consent: str = "unknown"
    checkpoints: Sequence[str] = ()
    events: int = 0
    first_us: int = 0


class SessionLinks:
    """Links of sessions: chains, and sessions that repeat another."""

    def __init__(self, tenant: str, rows: Iterable[Mapping[str, str]]) -> None:
        links: dict[SessionId, Link] = {}
        #: The parent of each session that resumes or forks another.
        self.repeats: dict[str, str] = {}
        self.forks: dict[str, str] = {}
        for row in rows:
            session, parent, link = row["session_id"], row["parent_session"], row["link"]
            if link in LINKS:
                links[SessionId(tenant, session)] = Link(SessionId(tenant, parent), link)
            elif link in REPEATS:
                self.repeats[session] = parent
                if link == "fork":
                    self.forks[session] = parent
        places = places_of(links)
        #: Chains of sessions that are linked.
        self._chains = {session.session_id: place.chain for session, place in places.items()}
        self._members: dict[str, set[str]] = {}
        for session, chain in self._chains.items():
            self._members.setdefault(chain, set()).add(session)

    def chain(self, session: str) -> str:
        return self._chains.get(session, session)

    def origin(self, session: str) -> str:
        """Find the first ancestor through chains, resumes and forks; stable within a cycle."""
        path: list[str] = []
        chain = self.chain(session)
        while chain not in path:
            path.append(chain)
            members = self.whole_chains([chain])
            parents = [self.repeats[member] for member in members if member in self.repeats]
            chain = self.chain(min(parents)) if parents else chain
        return min(path[path.index(chain) :])

    def whole_chains(self, sessions: Iterable[str]) -> set[str]:
        """Return all sessions of their chains, including those without events."""
        chains = {self.chain(session) for session in sessions}
        return {member for chain in chains for member in self._members.get(chain, {chain})}

    def with_origins(self, sessions: Iterable[str]) -> set[str]:
        """Return these sessions, their chains, and all that any of them resumes or forks."""
        reached: set[str] = set()
        waiting = set(sessions)
        while waiting:
            chains = self.whole_chains(waiting)
            reached |= chains
            waiting = {self.repeats[name] for name in chains if name in self.repeats} - reached
        return reached

    @cached_property
    def linked(self) -> pa.Array:
        """Return all linked sessions; every other is a chain by itself."""
        names = {*self._chains, *self.repeats, *self.repeats.values()}
        return pa.array(sorted(names), pa.string())


class SessionFacts:
    """Profiles of sessions in the lake, and their consents by their own events and decisions."""

    def __init__(
        self, rows: pa.Table, links: SessionLinks, decided: DecidedConsents | None = None
    ) -> None:
        self.links = links
        self.profiles = {
            row["session_id"]: SessionProfile(chain=links.chain(row["session_id"]), **row)
            for row in rows.to_pylist()
        }
        self.chains = {session: profile.chain for session, profile in self.profiles.items()}
        decided = decided or DecidedConsents()
        self.consents = {session: profile.consent for session, profile in self.profiles.items()}
        for session in decided.allowed:
            if self.consents.get(session) == CONSENT_UNKNOWN:
                self.consents[session] = TRAIN
        refusing = [name for name, consent in self.consents.items() if consent == NO_TRAIN]
        #: Who denies each session; its own refusal comes first.
        self.denied: dict[str, DecisionKind] = {
            **decided.denied,
            **dict.fromkeys(refusing, SESSION),
        }
        self.consents |= dict.fromkeys(self.denied, NO_TRAIN)


def latest_snap(lake: Lake, tenant: str, channel: str | None) -> int:
    """Return the snap `latest` for a shard. It grows with events, rewards and its channel."""
    if channel is None:
        return content_snap(lake.database)
    changes = channel_change.c
    newest = sa.select(sa.func.max(changes.at)).where(changes.tenant == tenant)
    changed_us = lake.database.scalar(newest.where(changes.channel == channel))
    if changed_us is None:
        return content_snap(lake.database)
    return snap_since(lake.database, changed_us)


class SnapshotQueries:
    """Queries of one tenant's lake as of one snap; None for now."""

    def __init__(self, lake: Lake, snap: int | None, tenant: str) -> None:
        self.lake = lake
        self.tenant = tenant
        self._snap = snap

    def query(self, sql: str) -> pa.Table:
        """Run the recipe's query. Raises QueryRefused, QueryFailed, QueryLimitReached."""
        query = self.lake.query(sql, as_of=self._snap, tenant=self.tenant)
        try:
            return query.arrow()
        except QueryLimitReached as error:
            if error.facts["setting"] != MEMORY_SETTING:
                raise
        return replace(query, in_pieces=True).arrow()

    def read(self, name: str, wanted: pa.Table | None = None, **parameters: object) -> pa.Table:
        """Run a query of the folder `sql`. `wanted` has the sessions that it is about, in the
        column
        session_id."""
        sql = _SQL.joinpath(f"{name}.sql").read_text(encoding="utf-8")
        tables = {} if wanted is None else {"wanted": wanted.select(["session_id"])}
        query = OwnQuery(
            sql, frozenset({_VIEWS[name]}), parameters,
            tables=tables, memory_bytes_max=_QUERY_MEMORY_BYTES_MAX,
        )  # fmt: skip
        return self.lake.query(query, as_of=self._snap, tenant=self.tenant).arrow()

    def facts(self, wanted: pa.Table) -> Iterator[pa.Table]:
        """Run `facts` in portions that fit into a query's memory.

        Yields at least one table, in the order of `wanted`."""
        ids = single_array(wanted["session_id"])
        for start in range(0, max(len(ids), 1), _FACTS_AT_ONCE):
            some = ids.slice(start, _FACTS_AT_ONCE)
            ends = (some[0], some[-1]) if len(some) else (pa.scalar(""), pa.scalar(""))
            first, last = (end.as_py() for end in ends)
            yield self.read("facts", pa.table({"session_id": some}), first=first, last=last)

    def decisions(self, wanted: pa.Table) -> SessionDecisions:
        return SessionDecisions(self.lake, self.tenant, wanted, self._snap)

    def links(self) -> SessionLinks:
        """Read all links of the tenant: there are few, and chains must be whole."""
        return SessionLinks(self.tenant, self.read("links").to_pylist())


class PinnedSessions(SnapshotQueries):
    """The sessions of a tenant in the pinned lake, which workers read too."""

    def __init__(self, lake: Lake, executor: Executor, pin: Pin, tenant: str) -> None:
        super().__init__(lake, pin.snap, tenant)
        self.pin = pin
        self.executor = executor

    def snapshot_us(self) -> int:
        """Return the time of the snapshot, 0 for an empty lake."""
        latest = sa.select(sa.func.max(lake_commit.c.committed_at))
        return self.lake.database.scalar(latest.where(lake_commit.c.snap <= self.pin.snap)) or 0

    def on_workers(
        self,
        function: Callable[[pa.Table, Mapping[str, ValueT]], dict[str, ResultT]],
        values: Mapping[str, ValueT],
        columns: Sequence[str],
    ) -> dict[str, ResultT]:
        """Run a function on workers, over these columns of the sessions' events.

        It gets the `values` of the sessions whose events it gets."""
        settings = self.lake.settings
        groups = [(SessionId(self.tenant, session),) for session in sorted(values)]
        buckets = plan_sessions(self.lake, self.pin, groups, reward_bucket_bytes(settings))
        tasks = (
            _BucketTask(
                settings,
                bucket,
                columns,
                function,
                {each.session_id: values[each.session_id] for each in bucket.sessions or ()},
            )
            for bucket in buckets
        )
        merged: dict[str, ResultT] = {}
        for done in self.executor.run(_run_on_bucket, tasks):
            merged |= done.result
        return merged


@dataclass(frozen=True)
class _BucketTask:
    settings: Settings = field(repr=False)  # addresses may hold passwords
    bucket: Bucket
    columns: Sequence[str]
    function: Callable[[pa.Table, Mapping[str, Any]], dict[str, Any]] = field(repr=False)
    values: Mapping[str, Any] = field(repr=False)


def _run_on_bucket(task: _BucketTask) -> dict[str, Any]:
    """Run the function on a bucket."""
    with Lake(task.settings) as lake:
        rows = read_bucket(lake, task.bucket, task.columns)
    return task.function(rows, task.values)
