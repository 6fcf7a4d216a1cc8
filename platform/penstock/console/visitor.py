"""Whoever looks at a page: the grant of the key that the browser signed in with, and what may be
asked with it. Pages ask as HTTP does: the same roles, tenants, quotas and audit."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pyarrow as pa

from penstock.access import Role
from penstock.access.call_routes import caller_of
from penstock.access.errors import RoleMissing
from penstock.access.keys import Grant
from penstock.access.quotas import Quotas
from penstock.clock import Clock
from penstock.console.browser_sessions import actor_name
from penstock.lake.desk import Call, Caller, Question, note_query, perform
from penstock.lake.lake import Lake
from penstock.lake.query import OwnQuery, WrittenAnswer

Q = TypeVar("Q", bound=Question)
A = TypeVar("A")


@dataclass(frozen=True)
class Visitor:
    grant: Grant
    lake: Lake
    quotas: Quotas
    clock: Clock
    #: Who signed in by an OpenID provider; None is whoever has the key.
    person: str | None = None

    @property
    def caller(self) -> Caller:
        return replace(caller_of(self.grant), actor=actor_name(self.grant.key, self.person))

    def may(self, *roles: Role) -> bool:
        try:
            self.grant.require(*roles)
        except RoleMissing:
            return False
        return True

    def may_ask(self, call: Call[Any, Any]) -> bool:
        roles: Any = call.roles
        return self.may(*roles)

    def ask(self, call: Call[Q, A], question: Q) -> A:
        """What the call's route answers. Raises RoleMissing, QuotaUsedUp, and
        what its work raises."""
        roles: Any = call.roles
        self.grant.require(*roles)
        if call.reads_rows:
            self._count_query()
        return perform(call, self.lake, self.caller, question)

    def rows(self, sql: str, as_of: str | int | None = None) -> tuple[pa.Table, WrittenAnswer]:
        """The rows of SQL that a person wrote, guarded and bounded as those of /v1/query, and which
        snap they are of. Raises RoleMissing, QuotaUsedUp, and what queries raise."""
        self.grant.require("read")
        self._count_query()
        said = None if as_of is None else str(as_of)
        note_query(self.lake, self.caller, sql, said, "console")
        return self.lake.query(sql, as_of=as_of, tenant=self.grant.tenant).table_at()

    def own_rows(
        self,
        sql: str,
        views: frozenset[str],
        variables: Mapping[str, str] | None = None,
        sessions: Collection[str] | None = None,
        *,
        below: frozenset[str] = frozenset(),
    ) -> list[dict[str, Any]]:
        """The rows of a page's own SQL, from a file of its room, over these views of what the
        visitor may see, and what lies `below` others; `variables` are for `getvariable`, and it
        reads `sessions` alone where they are named. Raises what `rows` does."""
        query = OwnQuery(sql, views, below=below, variables=variables or {}, sessions=sessions)
        [rows] = self.own_answers(query)
        return rows

    def own_answers(self, query: OwnQuery) -> list[list[dict[str, Any]]]:
        """The rows of each statement of a page's own query. Raises what `rows` does."""
        self.grant.require("read")
        self._count_query()
        note_query(self.lake, self.caller, query.sql, None, "console")
        tables = self.lake.query(query, tenant=self.grant.tenant).tables()
        return [table.to_pylist() for table in tables]

    def _count_query(self) -> None:
        self.quotas.require(self.grant.tenant, "queries_per_hour")
        self.quotas.count(self.grant.tenant, "queries_per_hour")
