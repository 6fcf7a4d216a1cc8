"""Writes the pages of docs/reference: a part of `make docs`."""

from pathlib import Path

from bench.reference.commands import commands_page
from bench.reference.http import http_page
from bench.reference.metrics import metrics_page
from bench.reference.python import python_page
from bench.reference.settings import settings_page
from bench.reference.sql import sql_page

FOLDER = Path(__file__).parents[2] / "docs" / "reference"
PAGES = {
    "commands.md": commands_page,
    "http.md": http_page,
    "metrics.md": metrics_page,
    "python.md": python_page,
    "settings.md": settings_page,
    "sql.md": sql_page,
}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), encoding="utf-8")
