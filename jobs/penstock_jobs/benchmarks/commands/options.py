"""Options that several of these commands share."""

from pathlib import Path
from typing import Annotated

import typer

from penstock.terminal import options

SuiteFolder = Annotated[
    Path, typer.Argument(parser=options.path, metavar="SUITE_DIR", help="The suite's folder.")
]
NoIsolation = Annotated[
    bool,
    typer.Option(
        "--no-isolation",
        help="Run without keeping programs from this machine; the run's record says so.",
    ),
]
