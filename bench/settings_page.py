"""The list of docs/settings.md, from what the rooms declare."""

import re
from collections.abc import Iterator
from pathlib import Path

from penstock.core.settings import ENVIRONMENT_PREFIX, declarations

_PAGE = Path(__file__).parents[1] / "docs" / "settings.md"
_UNITS = {1024**3: "GiB", 1024**2: "MiB", 1024: "KiB"}


def settings_list() -> str:
    return "".join(_lines())


def _lines() -> Iterator[str]:
    yield f"- `{ENVIRONMENT_PREFIX}DATA` (`./penstock-data`): the data directory\n"
    for setting in declarations():
        variable, facts = f"{ENVIRONMENT_PREFIX}{setting.name.upper()}", setting.metadata
        yield f"- `{variable}`{_shown(setting.default)}: {facts['meaning']}. {facts['turn']}\n"


def _shown(default: object) -> str:
    if default == "":
        return ""
    if isinstance(default, int):
        for size, unit in _UNITS.items():
            if default and default % size == 0:
                return f" ({default // size} {unit})"
    return f" ({default:g})" if isinstance(default, float) else f" ({default})"


if __name__ == "__main__":
    text = _PAGE.read_text(encoding="utf-8")
    new = settings_list()
    _PAGE.write_text(re.sub(r"(?m)^- `PENSTOCK_(?:.*\n-)*.*\n", lambda _: new, text, count=1))
