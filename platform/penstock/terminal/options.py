"""Options that several commands share."""

import getpass
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from penstock.errors import InvalidInput

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def path(text: str) -> Path:
    """A path that somebody named: nothing at all is not the current directory."""
    if not text.strip():
        raise typer.BadParameter("it is empty")
    return Path(text)


Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        parser=path,
        metavar="DIR",
        help="Data directory; else PENSTOCK_DATA, else ./penstock-data.",
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="Answer with one JSON document on standard output.")
]
Tenant = Annotated[str, typer.Option("--tenant", help="Whose events; keys carry a tenant.")]
Reason = Annotated[str, typer.Option("--reason", help="Why; kept for ever.")]
By = Annotated[
    str | None, typer.Option("--by", metavar="NAME", help="Who does it; your login by default.")
]
CheckpointName = Annotated[
    str, typer.Argument(metavar="CHECKPOINT", help="By its name, or its digest.")
]


def actor(by: str | None) -> str:
    """The name that the evidence gets."""
    if by is not None:
        return by
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # the system has no name for the user
        return f"uid {os.getuid()}"


def since_us(text: str, what: str = "--since") -> int:
    """A time, or an age such as 24h or 7d, in microseconds since 1970. Raises InvalidInput."""
    try:
        if text[-1:] in _UNITS and text[:-1].isdecimal():
            moment = datetime.now(UTC) - timedelta(**{_UNITS[text[-1]]: int(text[:-1])})
        else:
            moment = datetime.fromisoformat(text)
        return round(moment.timestamp() * 1_000_000)
    except (ValueError, OverflowError):
        why = "it is neither a time nor an age such as 24h"
        raise InvalidInput(what=f"{what} {text}", why=why) from None
