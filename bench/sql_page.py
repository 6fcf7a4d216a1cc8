"""Writes the columns in docs/sql.md from the views: `make docs`.

A view's `.sql` file says below `-- Columns:` what its columns mean; the database says of which type
they are.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from penstock.core.settings import load_settings
from penstock.lake.lake import Lake, open_or_make
from penstock.lake.query.view_sources import column_meanings, view_names

PAGE = Path(__file__).parents[1] / "docs" / "sql.md"
#: The meaning of columns that a list at the head of the page explains.
_SHARED = "[shared](#shared-columns)"
_LIST = re.compile(r"^(?:- `.*\n)+", re.MULTILINE)


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


def written(page: str, lake: Lake) -> str:
    """The page with the columns of each view as the view is."""
    for view in sorted(view_names()):
        start = page.index(f"\n## {view}\n")
        old = _LIST.search(page, start)
        if old is None:
            raise ValueError(f"docs/sql.md has no list of {view}")
        new = columns(types(lake, view), column_meanings(view))
        page = page[: old.start()] + new + page[old.end() :]
    return page


def main() -> None:
    with TemporaryDirectory() as folder, open_or_make(load_settings(Path(folder), {})) as lake:
        PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), lake), encoding="utf-8")


if __name__ == "__main__":
    main()
