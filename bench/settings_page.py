"""The table of docs/settings.md, from what the rooms declare."""

import re
from collections.abc import Iterator
from pathlib import Path

from penstock.settings import ENVIRONMENT_PREFIX, declarations

_PAGE = Path(__file__).parents[1] / "docs" / "settings.md"
_HEAD = "| setting | default | meaning | when to turn it |\n|---|---|---|---|\n"
_UNITS = {1024**3: "GiB", 1024**2: "MiB", 1024: "KiB"}


def settings_table() -> str:
    return _HEAD + "".join(f"| {' | '.join(row)} |\n" for row in _rows())


def _rows() -> Iterator[tuple[str, ...]]:
    data = "which directory all of the embedded default lies in"
    yield f"`{ENVIRONMENT_PREFIX}DATA`", "`./penstock-data`", data, "Set it for each lake."
    for one in declarations():
        variable = f"`{ENVIRONMENT_PREFIX}{one.name.upper()}`"
        yield variable, _shown(one.default), one.metadata["meaning"], one.metadata["turn"]


def _shown(default: object) -> str:
    if default == "":
        return "—"
    if isinstance(default, int):
        for size, unit in _UNITS.items():
            if default and default % size == 0:
                return f"{default} ({default // size} {unit})"
    return str(default)


if __name__ == "__main__":
    text = _PAGE.read_text(encoding="utf-8")
    table = settings_table()
    _PAGE.write_text(re.sub(r"(?m)^\| setting \|(?:.*\n\|)*.*\n", lambda _: table, text, count=1))
