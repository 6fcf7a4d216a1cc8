"""Writes the tables of docs/sql.md from the views: `make docs`.

A view's `.sql` file says below `-- Columns:` what each column means; the database says of which
type it is.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from penstock.lake.lake import Lake, open_or_make
from penstock.lake.view_sources import view_names, view_sql
from penstock.settings import load_settings

PAGE = Path(__file__).parents[1] / "docs" / "sql.md"
_COLUMN = re.compile(r"^--   (\S+) +(\S.*)$", re.MULTILINE)
_TABLE = re.compile(r"^\| column \| type \| meaning \|\n(?:\|.*\n)+", re.MULTILINE)


def meanings(view: str) -> dict[str, str]:
    """What each column of a view means, as its SQL file says."""
    header = view_sql(view).partition("-- Columns:\n")[2]
    return dict(_COLUMN.findall(header))


def types(lake: Lake, view: str) -> dict[str, str]:
    """The type of each column of a view."""
    rows = lake.query(f"describe {view}").arrow().to_pylist()
    short = {"TIMESTAMP WITH TIME ZONE": "TIMESTAMPTZ"}
    return {row["column_name"]: short.get(kind := row["column_type"], kind) for row in rows}


def table(column_types: Mapping[str, str], column_meanings: Mapping[str, str]) -> str:
    rows = (
        f"| `{column}` | {kind} | {column_meanings[column]} |\n"
        for column, kind in column_types.items()
    )
    return "| column | type | meaning |\n|---|---|---|\n" + "".join(rows)


def written(page: str, lake: Lake) -> str:
    """The page with the table of each view as the view is."""
    for view in sorted(view_names()):
        start = page.index(f"\n## {view}\n")
        old = _TABLE.search(page, start)
        if old is None:
            raise ValueError(f"docs/sql.md has no table of {view}")
        new = table(types(lake, view), meanings(view))
        page = page[: old.start()] + new + page[old.end() :]
    return page


def main() -> None:
    with TemporaryDirectory() as folder, open_or_make(load_settings(Path(folder), {})) as lake:
        PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), lake), encoding="utf-8")


if __name__ == "__main__":
    main()
