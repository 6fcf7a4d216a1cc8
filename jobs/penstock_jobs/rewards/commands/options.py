"""Options that several of these commands share."""

from typing import Annotated

import typer

Definition = Annotated[
    str | None,
    typer.Option(
        "--definition",
        metavar="FILE|NAME",
        help="A definition in TOML, or one that comes with Penstock: default, comparing.",
    ),
]
Version = Annotated[
    str,
    typer.Argument(help="A definition that has run: its name, or the beginning of its version."),
]
Since = Annotated[
    str | None,
    typer.Option("--since", help="Only sessions heard of since: a time, or an age such as 24h."),
]
Project = Annotated[str | None, typer.Option("--project", help="Only sessions of this project.")]
