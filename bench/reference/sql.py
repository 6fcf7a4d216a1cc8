"""The page of SQL views: `sql.template`, with the columns of each view.

A view's `.sql` file says below `-- Columns:` what its columns mean; the database says of which type
they are.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.reference import template
from penstock.core.settings import load_settings
from penstock.lake.lake import Lake, open_or_make
from penstock.lake.query.view_sources import column_meanings, view_names

#: The meaning of columns that a list at the head of the page explains.
_SHARED = "[shared](#shared-columns)"


def types(lake: Lake, view: str) -> dict[str, str]:
    """The type of each column of a view."""
    rows = lake.query(f"describe {view}").arrow().to_pylist()
    short = {"TIMESTAMP WITH TIME ZONE": "TIMESTAMPTZ"}
    return {row["column_name"]: short.get(kind := row["column_type"], kind) for row in rows}


def columns(kinds: Mapping[str, str], explained: Sequence[tuple[list[str], str]]) -> str:
    """Raises ValueError unless each column is explained once."""
    names = [name for group, _ in explained for name in group]
    if sorted(names) != sorted(kinds):
        raise ValueError(f"explained are {names}, the columns are {list(kinds)}")
    lines = ""
    for group, meaning in explained:
        kind = list(dict.fromkeys(kinds[name] for name in group))
        if len(kind) > 1:
            kind = [kinds[name] for name in group]
        shown = "" if meaning == _SHARED or kind == ["VARCHAR"] else f" {', '.join(kind)}"
        lines += f"- {', '.join(f'`{name}`' for name in group)}{shown}: {meaning}\n"
    return lines


def sql_page() -> str:
    """Raises ValueError where the template misses a view."""
    page = template("sql")
    with TemporaryDirectory() as folder, open_or_make(load_settings(Path(folder), {})) as lake:
        for view in view_names():
            place = f"{{columns of {view}}}\n"
            if place not in page:
                raise ValueError(f"sql.template has no columns of {view}")
            page = page.replace(place, columns(types(lake, view), column_meanings(view)))
    return page
