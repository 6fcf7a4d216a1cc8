"""Who acts in a command of the registry, and whether they may go past the gate."""

import getpass
import os
from typing import Annotated

import typer

from penstock.database.engine import Database

CHANNEL_DEFAULT = "production"

Channel = Annotated[str, typer.Option("--channel", help="What the serving fleet watches.")]
Reason = Annotated[str, typer.Option("--reason", help="Why; kept for ever.")]
By = Annotated[
    str | None, typer.Option("--by", metavar="NAME", help="Who does it; your login by default.")
]
Key = Annotated[
    str | None,
    typer.Option("--key", envvar="PENSTOCK_KEY", show_envvar=True, help="An admin key."),
]
CheckpointName = Annotated[
    str, typer.Argument(metavar="CHECKPOINT", help="By its name, or its digest.")
]


def actor(by: str | None) -> str:
    """Whom the evidence names."""
    if by is not None:
        return by
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # the system has no name for the user
        return f"uid {os.getuid()}"


def check_override(database: Database, tenant: str, key: str | None) -> None:
    """Where keys are in use it takes one of an admin of the tenant; before, whoever has the
    database is the admin. Raises OverrideRefused."""
    from penstock.access.errors import KeyRefused
    from penstock.access.keys import KeyRing, list_keys
    from penstock.channels.errors import OverrideRefused
    from penstock.clock import SystemClock

    if not list_keys(database):
        return
    if not key:
        raise OverrideRefused(why="name one with --key or PENSTOCK_KEY")
    ring = KeyRing(database, SystemClock())
    ring.refresh()
    try:
        grant = ring.grant(f"Bearer {key}")
    except KeyRefused as error:
        raise OverrideRefused(why="the key is not known here, or was revoked") from error
    if grant.role != "admin" or grant.tenant != tenant:
        raise OverrideRefused(why=f"the key is {grant.role} of the tenant {grant.tenant}")
