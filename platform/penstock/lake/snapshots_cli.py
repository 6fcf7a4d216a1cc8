"""`penstock snapshots`."""

from typing import Annotated

import typer

from penstock.lake.catalog import create_snapshot, drop_snapshot, list_snapshots
from penstock.lake.directory import open_existing
from penstock.lake.errors import SnapshotUnknown
from penstock.terminal import options
from penstock.terminal.output import facts, say, show_json, show_table, time_of

app = typer.Typer(
    help="Names for the lake as it was: `query --as-of NAME` reads the same rows for ever.",
    no_args_is_help=True,
)
Name = Annotated[str, typer.Argument(help="The snapshot's name.")]


@app.command("list")
def list_(data: options.Data = None, json: options.Json = False) -> None:
    """All snapshots, the oldest first.

    Example: penstock snapshots list
    """
    with open_existing(data) as lake:
        found = list_snapshots(lake.database)
    if json:
        show_json([facts(one) for one in found])
        return
    columns = ["name", "snap", "created (UTC)", "note"]
    show_table(columns, [[s.name, s.snap, time_of(s.created_at), s.note] for s in found])


@app.command("create")
def create(
    name: Name,
    data: options.Data = None,
    note: Annotated[str, typer.Option(help="What it is for.")] = "",
    json: options.Json = False,
) -> None:
    """Name the lake as it is now; events that are only in the log are not part of it.

    Example: penstock snapshots create before-the-release
    """
    with open_existing(data) as lake:
        made = create_snapshot(lake.database, name, note)
    show_json(facts(made)) if json else say(f"{made.name} is snap {made.snap}")


@app.command("show")
def show(name: Name, data: options.Data = None, json: options.Json = False) -> None:
    """One snapshot.

    Example: penstock snapshots show before-the-release
    """
    with open_existing(data) as lake:
        found = [one for one in list_snapshots(lake.database) if one.name == name]
    if not found:
        raise SnapshotUnknown(name=name)
    if json:
        show_json(facts(found[0]))
    else:
        show_table(["what", "value"], list(facts(found[0]).items()))


@app.command("drop")
def drop(name: Name, data: options.Data = None, json: options.Json = False) -> None:
    """Forget a snapshot: files that only it needs will be collected.

    Example: penstock snapshots drop before-the-release
    """
    with open_existing(data) as lake:
        drop_snapshot(lake.database, name)
    show_json({"dropped": name}) if json else say(f"{name} is dropped")
