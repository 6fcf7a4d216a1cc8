"""`penstock config`."""

from urllib.parse import urlsplit

from penstock.cli import options
from penstock.cli.output import show_json, show_table
from penstock.settings import resolve


def config(data: options.Data = None, json: options.Json = False) -> None:
    """Every setting, its value and where it came from.

    Example: penstock config
    """
    resolved = resolve(data)
    shown = [(one, _without_password(one.value)) for one in resolved]
    if json:
        show_json(
            {one.name: {"value": value, "origin": one.origin} for one, value in shown},
        )
        return
    rows = [[one.variable, value, one.origin, one.meaning] for one, value in shown]
    show_table(["setting", "value", "origin", "meaning"], rows)


def _without_password(value: object) -> object:
    if isinstance(value, str) and (password := urlsplit(value).password):
        return value.replace(f":{password}@", ":***@", 1)
    return value
