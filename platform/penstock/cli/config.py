"""`penstock config`."""

from penstock.settings import resolve
from penstock.terminal import options
from penstock.terminal.output import show_json, show_table


def config(data: options.Data = None, json: options.Json = False) -> None:
    """Every setting, its value and where it came from.

    Example: penstock config
    """
    settings = resolve(data)
    if json:
        show_json({each.name: {"value": each.shown, "origin": each.origin} for each in settings})
        return
    columns = ("variable", "shown", "origin", "meaning")
    rows = [[getattr(setting, name) for name in columns] for setting in settings]
    show_table(["setting", "value", "origin", "meaning"], rows)
