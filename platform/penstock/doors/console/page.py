"""A page of the console, and whoever looks at it. Pages ask as HTTP does: with the same roles,
tenants, quotas and audit."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any, Generic, Literal, TypeVar, get_type_hints

from penstock.access import Role
from penstock.access.endpoint_routes import caller_of
from penstock.access.errors import RoleMissing
from penstock.access.keys import Grant
from penstock.access.quotas import Quotas
from penstock.core.clock import Clock
from penstock.core.endpoint import A, Caller, Endpoint, R
from penstock.core.room import rooms
from penstock.doors.console.sign_in import actor_name
from penstock.lake.client import note_query, perform
from penstock.lake.lake import Lake
from penstock.lake.query.lake_query import OwnQuery, WrittenAnswer
from penstock.lake.query.row_formats import WireFormat


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

    def may_call(self, endpoint: Endpoint[Any, Any]) -> bool:
        roles: Any = endpoint.roles
        return self.may(*roles)

    def call(self, endpoint: Endpoint[R, A], request: R) -> A:
        """What the call's route answers. Raises RoleMissing, QuotaUsedUp, what its work raises."""
        roles: Any = endpoint.roles
        self.grant.require(*roles)
        if endpoint.reads_rows:
            self._count_query()
        return perform(endpoint, self.lake, self.caller, request)

    def written_rows(
        self, sql: str, as_of: str | int | None, form: WireFormat
    ) -> tuple[bytes, WrittenAnswer]:
        """The rows of SQL that a person wrote, made by the statement's own process. Raises
        RoleMissing, QuotaUsedUp, what queries raise."""
        self.grant.require("read")
        self._count_query()
        said = None if as_of is None else str(as_of)
        note_query(self.lake, self.caller, sql, said, "console")
        return self.lake.query(sql, as_of=as_of, tenant=self.grant.tenant).written(form)

    def own_rows(
        self,
        sql: str,
        views: frozenset[str],
        variables: Mapping[str, str] | None = None,
        sessions: Collection[str] | None = None,
        *,
        below: frozenset[str] = frozenset(),
    ) -> list[dict[str, Any]]:
        """The rows of a page's own SQL, as of an OwnQuery. Raises what `written_rows` does."""
        query = OwnQuery(sql, views, below=below, variables=variables or {}, sessions=sessions)
        [rows] = self.own_answers(query)
        return rows

    def own_answers(self, query: OwnQuery) -> list[list[dict[str, Any]]]:
        self.grant.require("read")
        self._count_query()
        note_query(self.lake, self.caller, query.sql, None, "console")
        tables = self.lake.query(query, tenant=self.grant.tenant).tables()
        return [table.to_pylist() for table in tables]

    def _count_query(self) -> None:
        self.quotas.require(self.grant.tenant, "queries_per_hour")
        self.quotas.count(self.grant.tenant, "queries_per_hour")


Group = Literal["", "Production", "Training", "Release", "Service"]
GROUPS: tuple[Group, ...] = ("Production", "Training", "Release", "Service")
Content = Mapping[str, Any]


@dataclass(frozen=True)
class Redirect:
    path: str
    told: str = ""


@dataclass(frozen=True)
class Refusal:
    content: Content
    status: int


@dataclass(frozen=True)
class Download:
    name: str
    media_type: str
    content: bytes
    status: int = 200


@dataclass(frozen=True, kw_only=True)
class ConsolePage(Generic[R]):
    """`request` has the fields of path, query and form; empty ones are left out. `template` is
    `package:path`, rendered with what `work` gives, `asked` and what the frame knows. Beside
    `roles` an admin's key may always ask."""

    path: str
    title: str
    request: type[R]
    work: Callable[[Visitor, R], Content | Redirect | Refusal | Download]
    template: str = ""
    method: Literal["GET", "POST"] = "GET"
    roles: tuple[Role, ...] = ("read",)
    #: In the navigation.
    group: Group = ""
    place: int = 0
    shortcut: str = ""
    #: Runs where queries do.
    reads_rows: bool = False
    #: Adds up a whole lake, and is shown again for a while.
    remembered: bool = False


Work = TypeVar("Work", bound=Callable[..., Content | Redirect | Refusal | Download])


class PageList(list[ConsolePage[Any]]):
    """The pages of a room, with its folder of templates, and `facts` of all. The work of each says
    by its second parameter what it is asked."""

    def __init__(self, templates: str, **facts: Any) -> None:
        super().__init__()
        self._templates, self._facts = templates, facts

    def page(
        self, path: str, title: str, template: str = "", **facts: Any
    ) -> Callable[[Work], Work]:
        def add(work: Work) -> Work:
            _, request, _ = get_type_hints(work).values()
            named = {"template": self._templates + template if template else ""}
            own = {"request": request, "work": work, **named, **self._facts, **facts}
            self.append(ConsolePage(path=path, title=title, **own))
            return work

        return add

    def form(
        self, path: str, title: str, template: str = "", **facts: Any
    ) -> Callable[[Work], Work]:
        facts = {"method": "POST", "roles": (), **facts}
        return self.page(path, title, template, **facts)


@cache
def page_sql(package: str, name: str) -> str:
    return files(package).joinpath("sql", name).read_text(encoding="utf-8")


@cache
def all_pages() -> list[ConsolePage[Any]]:
    return [page for room in rooms() for page in room.pages()]


def navigation(visitor: Visitor) -> list[tuple[Group, list[ConsolePage[Any]]]]:
    seen = [page for page in all_pages() if page.group and visitor.may(*page.roles)]
    ordered = sorted(seen, key=lambda page: page.place)
    groups = [(group, [page for page in ordered if page.group == group]) for group in GROUPS]
    return [(group, pages) for group, pages in groups if pages]


def first_page(visitor: Visitor) -> str:
    pages = [page.path for _, of_group in navigation(visitor) for page in of_group]
    return pages[0] if pages else "/docs"
