"""`penstock db`."""

import typer

from penstock.database import migrations
from penstock.lake.directory import make_data_directory, open_existing
from penstock.lake.lake import Lake
from penstock.settings import load_settings
from penstock.terminal import options
from penstock.terminal.output import say, show_json

app = typer.Typer(help="The metadata database.", no_args_is_help=True)


@app.command("upgrade")
def upgrade(data: options.Data = None, json: options.Json = False) -> None:
    """Bring the tables to the revision of this Penstock; a database is made if there is none.

    Example: penstock db upgrade
    """
    settings = load_settings(data)
    make_data_directory(settings.data)
    with Lake(settings) as lake:
        migrations.upgrade(lake.database)
        _tell(migrations.check(lake.database), json=json)


@app.command("check")
def check(data: options.Data = None, json: options.Json = False) -> None:
    """Whether the database is there and suits this Penstock; else exit 1.

    Example: penstock db check
    """
    with open_existing(data) as lake:
        _tell(migrations.check(lake.database), json=json)


def _tell(revision: str, *, json: bool) -> None:
    needed = migrations.newest_revision()
    if json:
        show_json({"revision": revision, "needed": needed})
        return
    newer = f", newer than this Penstock's {needed}, which may use it" if revision != needed else ""
    say(f"the database is at revision {revision}{newer}")
