"""`penstock backup` and `penstock restore`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.lake.lake import open_existing
from penstock.settings import load_settings
from penstock.terminal import options
from penstock.terminal.long_commands import ended_as_by_ctrl_c, progress_of_bytes
from penstock.terminal.output import say, show_json

if TYPE_CHECKING:
    from penstock.lake.backup import Backup


def backup(
    target: Annotated[
        Path,
        typer.Argument(
            parser=options.path, metavar="PATH", help="A new directory, or a new file NAME.tar."
        ),
    ],
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """Copy an embedded lake as it is now, while it is served.

    Example: penstock backup /backups/penstock-monday.tar
    """
    from penstock.lake.backup import back_up

    with open_existing(data) as lake, ended_as_by_ctrl_c(), progress_of_bytes("copied") as more:
        made = back_up(lake, target, more)
    _show(made, target, "holds", json=json)


def restore(
    source: Annotated[
        Path,
        typer.Argument(parser=options.path, metavar="PATH", help="What `penstock backup` made."),
    ],
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """Make a lake of a backup, in an empty data directory.

    Every file is compared and verified first.

    Example: penstock restore /backups/penstock-monday.tar --data penstock-data
    """
    from penstock.lake.backup import restore as restore_lake

    directory = load_settings(data).data
    with ended_as_by_ctrl_c(), progress_of_bytes("restored") as more:
        restored = restore_lake(source, directory, more)
    _show(restored, directory, "is a lake again, with", json=json)


def _show(backup: "Backup", place: Path, verb: str, *, json: bool) -> None:
    if json:
        sizes = {"files": len(backup.files), "bytes": backup.bytes}
        show_json({"path": str(place), "snap": backup.snap, **sizes})
        return
    size = f"{len(backup.files)} files, {backup.bytes:,} bytes"
    say(f"{place} {verb} {size}, up to snap {backup.snap}")
