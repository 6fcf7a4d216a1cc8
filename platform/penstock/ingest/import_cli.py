"""`penstock import`."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.progress import Progress

from penstock.events.tenants import TENANT_DEFAULT
from penstock.ingest.importing import Importer, find_files
from penstock.lake.lake import open_or_make
from penstock.settings import load_settings
from penstock.terminal import options
from penstock.terminal.output import say, show_json


def import_(
    paths: Annotated[
        list[Path], typer.Argument(parser=options.path, help="Files, or folders of files.")
    ],
    data: options.Data = None,
    form: Annotated[
        Literal["auto", "events"],
        typer.Option("--format", help="events: one event a line, or an array; .gz and .zst too."),
    ] = "auto",
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """Take events from files. A second run of the same files adds nothing.

    Example: penstock import sessions.jsonl.gz
    """
    files = find_files(paths)
    console = Console(stderr=True)
    with open_or_make(load_settings(data)) as lake:
        importer = Importer(lake, tenant)
        with Progress(console=console, disable=not console.is_terminal) as progress:
            for path in files:
                task = progress.add_task(path.name, total=path.stat().st_size)
                for read in importer.take(path):
                    progress.update(task, completed=read)
        done = importer.finish()
    if json:
        show_json(done)
        return
    say(f"{done.files} files: {done.accepted} events accepted, {done.rejected} lines rejected")
    if done.waiting:
        say("The running server has yet to store them; queries see them now, rewards do then.")
    elif done.by_server:
        say("The running server has stored them.")
    else:
        say(f"{done.stored} were new, {done.duplicate} the lake had already")
    if done.rejected:
        say("`penstock rejected list` shows why")
