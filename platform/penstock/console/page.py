"""A page of the console: where it is, who may see it, and the work that gives its content. A room
lists its pages as the `PAGES` of its `pages.py`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from importlib.resources import files
from typing import Any, Generic, Literal, TypeVar

from penstock.access import Role
from penstock.console.visitor import Visitor
from penstock.lake.desk import Question

Group = Literal["", "Production", "Training", "Release", "Service"]
#: In the order in which the navigation shows them.
GROUPS: tuple[Group, ...] = ("Production", "Training", "Release", "Service")
Content = Mapping[str, Any]
Q = TypeVar("Q", bound=Question)


@dataclass(frozen=True)
class Redirect:
    """To another page of the console, which says `told` above its content."""

    path: str
    told: str = ""


@dataclass(frozen=True)
class Refusal:
    """The page's own content, which says why a form was refused."""

    content: Content
    status: int


@dataclass(frozen=True)
class Download:
    name: str
    media_type: str
    content: bytes


@dataclass(frozen=True, kw_only=True)
class ConsolePage(Generic[Q]):
    """`question` has the fields of the path and of the query or form; those that are empty are left
    out. `template` is `package:path`; it extends `layout` and is rendered with what `work` gives,
    `asked` (the question) and what the frame knows. A page that is in a group is in the
    navigation. Beside `roles` an admin's key may always ask; its calls ask for their own roles."""

    path: str
    title: str
    question: type[Q]
    work: Callable[[Visitor, Q], Content | Redirect | Refusal | Download]
    template: str = ""
    method: Literal["GET", "POST"] = "GET"
    roles: tuple[Role, ...] = ("read",)
    group: Group = ""
    #: Among those of its group, the lowest first.
    place: int = 0
    #: After `g` it opens the page.
    shortcut: str = ""
    #: Reads events or their files, and runs where queries do.
    reads_rows: bool = False
    #: Adds up a whole lake: shown again for a while (page_memory.py).
    remembered: bool = False


@cache
def page_sql(package: str, name: str) -> str:
    """A page's own SQL, from the folder `sql` of its room."""
    return files(package).joinpath("sql", name).read_text(encoding="utf-8")


@cache
def all_pages() -> list[ConsolePage[Any]]:
    """The pages of all rooms."""
    entries = sorted(entry_points(group="penstock.pages"), key=lambda entry: entry.name)
    return [page for entry in entries for page in entry.load()]


def navigation(visitor: Visitor) -> list[tuple[Group, list[ConsolePage[Any]]]]:
    """What the visitor may see, by group."""
    seen = [page for page in all_pages() if page.group and visitor.may(*page.roles)]
    ordered = sorted(seen, key=lambda page: page.place)
    groups = [(group, [page for page in ordered if page.group == group]) for group in GROUPS]
    return [(group, pages) for group, pages in groups if pages]


def first_page(visitor: Visitor) -> str:
    """Where a visitor begins who may not see the overview."""
    pages = [page.path for _, of_group in navigation(visitor) for page in of_group]
    return pages[0] if pages else "/docs"
