"""Renders the templates of all rooms, escaped and with control characters made visible; serves the
style sheet and scripts."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.resources import files
from typing import Any

import jinja2
import msgspec
from litestar import Response, get
from litestar.exceptions import NotFoundException
from markupsafe import Markup

from penstock.core.visible_text import visible
from penstock.doors.console import figures
from penstock.doors.console.page import ConsolePage, Visitor, navigation
from penstock.doors.console.sign_in import FIELD, form_proof

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
