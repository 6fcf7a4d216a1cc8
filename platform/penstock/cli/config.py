"""`penstock config`."""

from penstock.cli import options
from penstock.cli.output import show_json, show_table
from penstock.settings import resolve, without_secrets


def config(data: options.Data = None, json: options.Json = False) -> None:
    """Every setting, its value and where it came from.

    Example: penstock config
    """
    resolved = resolve(data)
    shown = [(one, _shown(one.value)) for one in resolved]
    if json:
        show_json(
            {one.name: {"value": value, "origin": one.origin} for one, value in shown},
        )
        return
    rows = [[one.variable, value, one.origin, one.meaning] for one, value in shown]
    show_table(["setting", "value", "origin", "meaning"], rows)


def _shown(value: object) -> object:
    return without_secrets(value) if isinstance(value, str) else value
