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
            {
                setting.name: {"value": setting.shown, "origin": setting.origin}
                for setting in resolved
            },
        )
        return
    rows = [
        [setting.variable, setting.shown, setting.origin, setting.meaning] for setting in resolved
    ]
    show_table(["setting", "value", "origin", "meaning"], rows)
