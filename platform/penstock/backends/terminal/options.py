"""Options that several commands share."""

import getpass
import os
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from penstock.core.errors import InvalidInput, StoreNeeded

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_AGE_CHARS_MAX = 8


def path(text: str | Path) -> Path:
    """Parse a path. An empty one is refused: it is not the current directory."""
    if not str(text).strip():
        raise typer.BadParameter("it is empty")
    return Path(text)


def _own_lake(context: typer.Context, data: Path | None) -> Path | None:
    named = os.environ.get("PENSTOCK_URL", "").strip()
    if data is None and named and not os.environ.get("PENSTOCK_DATA"):
        raise StoreNeeded(command=context.command_path)
    return data


_DATA = partial(
    typer.Option,
    "--data",
    parser=path,
    metavar="DIR",
    help="Data directory; else PENSTOCK_DATA, else ./penstock-data.",
)
#: For commands that work on the files of a lake, and so on its machine alone.
Data = Annotated[Path | None, _DATA(callback=_own_lake)]
#: For commands that work from anywhere, beside Url.
AnyData = Annotated[Path | None, _DATA()]
Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="Ask this service; else PENSTOCK_URL, else the one of `penstock login`. "
        "PENSTOCK_KEY is the key.",
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="Answer with one JSON document on standard output.")
]
Limit = Annotated[
    int | None, typer.Option("--limit", min=1, max=1000, help="How many at most; all by default.")
]
Cursor = Annotated[
    str | None,
    typer.Option("--cursor", help="Where to go on: the cursor that the page before named."),
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
    """Name the person, for the audit."""
    if by is not None:
        return by
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # the system has no name for the user
        return f"uid {os.getuid()}"


def since_us(text: str, what: str = "--since") -> int:
    """Parse a time, or an age such as 24h or 7d, to microseconds since 1970. Raises
    InvalidInput."""
    return _moment_us(f"{what} {text}", text, back=True)


def expires_us(text: str, what: str = "--expires") -> int:
    """Parse a time, or how long from now, such as 90d, to microseconds since 1970. Raises
    InvalidInput."""
    return _moment_us(f"{what} {text}", text, back=False)


def age_seconds(what: str, text: str) -> int:
    """Parse an age such as 90d. Raises InvalidInput."""
    if text[-1:] not in _UNITS or not text[:-1].isdecimal() or len(text) > _AGE_CHARS_MAX:
        raise InvalidInput(what=f"{what} {text}", why="it is not an age such as 90d or 24h")
    return round(timedelta(**{_UNITS[text[-1]]: int(text[:-1])}).total_seconds())


def _moment_us(what: str, text: str, *, back: bool) -> int:
    try:
        if text[-1:] in _UNITS and text[:-1].isdecimal():
            length = timedelta(**{_UNITS[text[-1]]: int(text[:-1])})
            moment = datetime.now(UTC) + (-length if back else length)
        else:
            moment = datetime.fromisoformat(text)
        return round(moment.timestamp() * 1_000_000)
    except OverflowError:
        raise InvalidInput(what=what, why="no calendar reaches so far") from None
    except ValueError:
        why = "it is neither a time nor an age such as 24h"
        raise InvalidInput(what=what, why=why) from None
