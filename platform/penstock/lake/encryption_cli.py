"""`penstock encryption`."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from penstock.lake.lake import open_existing
from penstock.terminal import options
from penstock.terminal.output import say, show_json, show_table

app = typer.Typer(help="Keys of an encrypted lake.", no_args_is_help=True)


@app.command("keys")
def keys(data: options.Data = None, json: options.Json = False) -> None:
    """List the data keys: whose they are, and since when. None of them is shown.

    Example: penstock encryption keys
    """
    from penstock.lake.key_rotation import list_data_keys

    with open_existing(data) as lake:
        states = list_data_keys(lake)
    if json:
        show_json(states)
        return
    rows: list[list[object]] = [
        [state.id, state.owner, _time(state.made_at), _time(state.retired_at)] for state in states
    ]
    show_table(["id", "of", "made (UTC)", "retired (UTC)"], rows)


@app.command("rotate")
def rotate(
    tenant: Annotated[str, typer.Argument(metavar="TENANT", help="Whose files.")],
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """Seal new files of a tenant with a new data key, and delete keys that no file needs any more.

    Files that are there keep theirs until they are merged.

    Example: penstock encryption rotate acme
    """
    from penstock.lake.key_rotation import rotate_data_key

    with open_existing(data) as lake:
        rotation = rotate_data_key(lake, tenant)
    if json:
        show_json(rotation)
        return
    say(f"new files of {tenant} are sealed with the data key {rotation.key}")
    say(f"earlier keys: {rotation.deleted} deleted, {rotation.kept} still needed by files")


@app.command("rewrap")
def rewrap(data: options.Data = None, json: options.Json = False) -> None:
    """Wrap all data keys with the present master key: afterwards the earlier one may go.

    With a file of master keys the new one stands on its first line, and the earlier one below it
    until this is done. No file is written anew.

    Example: penstock encryption rewrap
    """
    from penstock.lake.key_rotation import rewrap_data_keys

    with open_existing(data) as lake:
        count = rewrap_data_keys(lake)
    show_json({"rewrapped": count}) if json else say(f"{count} data keys are wrapped anew")


def _time(at_us: int | None) -> datetime | None:
    return None if at_us is None else datetime.fromtimestamp(at_us / 1e6, UTC)
