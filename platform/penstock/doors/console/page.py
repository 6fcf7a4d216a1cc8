"""A page of the console, its visitor, and its rendering. Pages use the roles, tenants, quotas and
audit of the HTTP API.

Templates of all rooms are rendered escaped, with control characters made visible."""

import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib.resources import files
from typing import Any, Generic, Literal, TypeVar, get_type_hints

import jinja2
import msgspec
from litestar import Response, get
from litestar.exceptions import NotFoundException
from markupsafe import Markup

from penstock.access import Role
from penstock.access.endpoint_routes import caller_of
from penstock.access.keys import Grant, RoleMissing
from penstock.access.quotas import Quotas
from penstock.core.clock import Clock
from penstock.core.endpoint import A, Caller, Endpoint, R
from penstock.core.room import rooms
from penstock.core.visible_text import visible
from penstock.doors.console import figures
from penstock.doors.console.sign_in import FIELD, actor_name, form_proof
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
    #: Who signed in through an OpenID provider. None for the holder of a key.
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
        """Call an endpoint. Raises RoleMissing, QuotaUsedUp, and the errors of its work."""
        roles: Any = endpoint.roles
        self.grant.require(*roles)
        if endpoint.reads_rows:
            self._count_query()
        return perform(endpoint, self.lake, self.caller, request)

    def written_rows(
        self, sql: str, as_of: str | int | None, form: WireFormat
    ) -> tuple[bytes, WrittenAnswer]:
        """Run a person's SQL, whose process also writes the rows in this form.

        Raises RoleMissing, QuotaUsedUp, and the errors of queries."""
        self.grant.require("read")
        self._count_query()
        note_query(self.lake, self.caller, "console")
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
        """Run a page's own SQL as an OwnQuery. Raises the errors of `written_rows`."""
        query = OwnQuery(sql, views, below=below, variables=variables or {}, sessions=sessions)
        [rows] = self.own_answers(query)
        return rows

    def own_answers(self, query: OwnQuery) -> list[list[dict[str, Any]]]:
        self.grant.require("read")
        self._count_query()
        note_query(self.lake, self.caller, "console")
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
    notice: str = ""


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
    """A page of the console. `request` has the fields of path, query and form.

    `template` is `package:path`. It gets the content that `work` returns, the request as `asked`,
    and what the frame knows. Admin keys may see every page, whatever its `roles`."""

    path: str
    title: str
    request: type[R]
    work: Callable[[Visitor, R], Content | Redirect | Refusal | Download]
    template: str = ""
    method: Literal["GET", "POST"] = "GET"
    roles: tuple[Role, ...] = ("read",)
    #: Group and place in the navigation.
    group: Group = ""
    place: int = 0
    shortcut: str = ""
    #: Runs among the queries.
    reads_rows: bool = False
    #: Reads a whole lake, so its content is cached.
    remembered: bool = False
    #: Adds what is quickly read, and new at each visit, to what is cached.
    live: Callable[[Visitor, R, Content], Content] | None = None


Work = TypeVar("Work", bound=Callable[..., Content | Redirect | Refusal | Download])


class PageList(list[ConsolePage[Any]]):
    """The pages of a room, its folder of templates, and the `facts` that all of them share.

    The type of a page's request is the second parameter of its work."""

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


# Style sheet and scripts


_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_FOR_EVER = "public, max-age=31536000, immutable"
_DIGEST_CHARS = 16


class Assets(msgspec.Struct, frozen=True):
    digest: str
    contents: dict[str, bytes]

    def url(self, name: str) -> str:
        if name not in self.contents:
            raise KeyError(name)
        return f"/assets/{self.digest}/{name}"


@cache
def assets() -> Assets:
    folder = files("penstock.doors.console").joinpath("assets")
    named = {file.name: file.read_bytes() for file in folder.iterdir()}
    contents = {name: named[name] for name in sorted(named) if name.split(".")[-1] in _TYPES}
    digest = hashlib.sha256()
    for name, content in contents.items():
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return Assets(digest.hexdigest()[:_DIGEST_CHARS], contents)


@get("/assets/{digest:str}/{name:str}", include_in_schema=False, sync_to_thread=False)
def get_asset(digest: str, name: str) -> Response[Any]:
    held = assets()
    content = held.contents.get(name)
    if content is None or digest != held.digest:
        raise NotFoundException
    headers = {"Cache-Control": _FOR_EVER, "X-Content-Type-Options": "nosniff"}
    return Response(content, media_type=_TYPES[name.rsplit(".", maxsplit=1)[-1]], headers=headers)


# Rendering


_OWN = "penstock.doors.console:templates/"
_FRAME, _FRAGMENT = "frame.html.jinja", "fragment.html.jinja"


@dataclass(frozen=True)
class PageFrame:
    title: str
    path: str
    visitor: Visitor | None = None
    page: ConsolePage[Any] | None = None
    #: Forms carry a proof made of it.
    cookie: str = field(default="", repr=False)
    notice: str = ""
    #: Render the block `list` alone.
    fragment: bool = False
    made_us: int | None = None
    #: Newer figures are being added up.
    awaits: bool = False

    def render(self, template: str, content: Mapping[str, Any]) -> str:
        now_us = self.visitor.clock.now_us() if self.visitor else 0
        common: dict[str, Any] = {
            "layout": _FRAGMENT if self.fragment else _FRAME,
            "frame": self,
            "visitor": self.visitor,
            "navigation": navigation(self.visitor) if self.visitor else [],
            "proof": Markup('<input type="hidden" name="{}" value="{}">').format(
                FIELD, form_proof(self.cookie)
            ),
            "ago": partial(figures.ago, now_us=now_us),
        }
        return _environment().get_template(template).render(**(common | dict(content)))


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_source),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        cache_size=-1,
        finalize=_visible,
    )
    environment.filters |= figures.FILTERS
    shared: dict[str, Callable[..., object]] = {"asset": assets().url, "url": figures.url}
    environment.globals |= shared
    return environment


def _source(name: str) -> tuple[str, str, Callable[[], bool]] | None:
    """Load `package:path`, or a template of the console by its name."""
    package, _, path = (name if ":" in name else _OWN + name).partition(":")
    file = files(package).joinpath(path)
    if not file.is_file():
        return None
    return file.read_text(encoding="utf-8"), str(file), lambda: True


def _visible(value: object) -> object:
    if value is None:
        return ""
    if isinstance(value, Markup):  # a macro or chart escaped it already
        return Markup(visible(value))
    return visible(value) if isinstance(value, str) else value
