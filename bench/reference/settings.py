"""The page of settings, from what the rooms declare."""

from collections.abc import Iterator
from dataclasses import Field
from typing import Any

from bench.reference import template
from penstock.core.settings import ENVIRONMENT_PREFIX, declarations

_UNITS = {1024**3: "GiB", 1024**2: "MiB", 1024: "KiB"}


def settings_page() -> str:
    return template("settings") + "".join(_lines())


def _lines() -> Iterator[str]:
    yield f"- `{ENVIRONMENT_PREFIX}DATA` (`./penstock-data`): the data directory\n"
    for setting in declarations():
        variable, facts = f"{ENVIRONMENT_PREFIX}{setting.name.upper()}", setting.metadata
        yield f"- `{variable}`{_shown(setting)}: {facts['meaning']}. {facts['turn']}\n"


def _shown(setting: Field[Any]) -> str:
    default = setting.default
    if default == "":
        return ""
    if isinstance(default, int) and "bytes" in setting.name:
        for size, unit in _UNITS.items():
            if default and default % size == 0:
                return f" ({default // size} {unit})"
    return f" ({default:g})" if isinstance(default, float) else f" ({default})"
