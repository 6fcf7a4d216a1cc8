"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer


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
