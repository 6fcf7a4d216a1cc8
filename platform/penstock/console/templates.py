"""Templates of all rooms, rendered with everything escaped: what others wrote is shown as text, and
control characters and those that turn the direction of writing as their numbers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup

from penstock.console import figures
from penstock.console.assets import assets
from penstock.console.form_proof import FIELD, form_proof
from penstock.console.page import ConsolePage, navigation
from penstock.console.visitor import Visitor
from penstock.visible_text import visible

_OWN = "penstock.console:templates/"
_FRAME, _FRAGMENT = "frame.html.jinja", "fragment.html.jinja"


@dataclass(frozen=True)
class PageFrame:
    """What stands around the content of a page."""

    title: str
    #: Of the request, with its query.
    path: str
    visitor: Visitor | None = None
    page: ConsolePage[Any] | None = None
    #: What the browser's cookie holds, of which the proof in forms is made.
    cookie: str = field(default="", repr=False)
    told: str = ""
    #: Only the block `list`: for modules that fetch more of it.
    fragment: bool = False
    #: When its content was made, if it is shown again.
    made_us: int | None = None

    def render(self, template: str, content: Mapping[str, Any]) -> str:
        now_us = self.visitor.clock.now_us() if self.visitor else 0

        def ago(value: Any) -> Markup | str:
            return figures.ago(value, now_us)

        common: dict[str, Any] = {
            "layout": _FRAGMENT if self.fragment else _FRAME,
            "frame": self,
            "visitor": self.visitor,
            "navigation": navigation(self.visitor) if self.visitor else [],
            "proof": Markup('<input type="hidden" name="{}" value="{}">').format(
                FIELD, form_proof(self.cookie)
            ),
            "ago": ago,
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
    """`package:path`, or the name of one of the console's own."""
    package, _, path = (name if ":" in name else _OWN + name).partition(":")
    file = files(package).joinpath(path)
    if not file.is_file():
        return None
    return file.read_text(encoding="utf-8"), str(file), lambda: True


def _visible(value: object) -> object:
    if value is None:
        return ""
    if isinstance(value, Markup):  # what was escaped already, by a macro or a chart
        return Markup(visible(value))
    return visible(value) if isinstance(value, str) else value
