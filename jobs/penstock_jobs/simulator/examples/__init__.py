"""The examples of the package: sessions, recipes, policies, suites, agents, hooks, trainers."""

import shutil
from pathlib import Path
from typing import Annotated

import typer

from penstock.backends.terminal import options
from penstock.backends.terminal.output import say, show_json
from penstock.core.errors import InvalidInput

#: Of trees that somebody ran or opened.
LEFT_BEHIND = ("__pycache__", "*.pyc", ".DS_Store")


def examples_folder() -> Path:
    """In an installed package they lie beside this module, in a checkout at its top."""
    shipped = Path(__file__).with_name("_files")
    return shipped if shipped.exists() else Path(__file__).parents[4] / "examples"


Folder = Annotated[
    Path,
    typer.Argument(
        parser=options.path, metavar="[DIR]", help="Where to copy them; it must not exist yet."
    ),
]


def examples(folder: Folder = Path("examples"), json: options.Json = False) -> None:
    """Copy the examples: sessions, recipes, policies, suites, agents, hooks.

    They are yours to change. The tutorial and the documentation use them.

    Example: penstock examples
    """
    if folder.exists():
        why = "it exists; name one that does not"
        raise InvalidInput(what=f"The directory {folder}", why=why)
    try:
        shutil.copytree(examples_folder(), folder, ignore=shutil.ignore_patterns(*LEFT_BEHIND))
    except OSError as error:
        why = error.strerror or str(error)
        raise InvalidInput(what=f"The directory {folder}", why=why) from error
    parts = sorted(part.name for part in folder.iterdir())
    if json:
        show_json({"folder": str(folder), "examples": parts})
    else:
        say(f"{folder} holds {', '.join(parts[:-1])} and {parts[-1]}.")
        say(f"Try: penstock import {folder / 'sessions'}")
