"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

Data = Annotated[
    Path | None,
    typer.Option("--data", help="Data directory; else PENSTOCK_DATA, else ./penstock-data."),
]
Json = Annotated[
    bool, typer.Option("--json", help="Answer with one JSON document on standard output.")
]
Tenant = Annotated[str, typer.Option("--tenant", help="Whose events; keys carry a tenant.")]
