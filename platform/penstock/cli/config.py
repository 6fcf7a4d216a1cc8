"""`penstock config`."""

from penstock.settings import resolve
from penstock.terminal import options
from penstock.terminal.output import show_json, show_table


def config(data: options.Data = None, json: options.Json = False) -> None:
    """Every setting, its value and where it came from.

    Example: penstock config
    """
    resolved = resolve(data)
    if json:
        show_json(
            {one.name: {"value": one.shown, "origin": one.origin} for one in resolved},
        )
        return
    rows = [[one.variable, one.shown, one.origin, one.meaning] for one in resolved]
    show_table(["setting", "value", "origin", "meaning"], rows)
