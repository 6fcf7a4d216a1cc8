"""The examples of the package: sessions, recipes, policies, suites, agents, hooks, trainers."""

import shutil
from pathlib import Path
from typing import Annotated

import typer

from penstock.backends.terminal import options
from penstock.backends.terminal.output import say, show_json
from penstock.core.errors import InvalidInput

#: Leftovers of use.
LEFT_BEHIND = ("__pycache__", "*.pyc", ".DS_Store")


def examples_folder() -> Path:
    """The folder of the examples: beside this module if installed, else at the checkout's top."""
    shipped = Path(__file__).with_name("_files")
    return shipped if shipped.exists() else Path(__file__).parents[4] / "examples"


Folder = Annotated[
    Path, typer.Argument(parser=options.path, metavar="[DIR]", help="New folder for the examples.")
]


def examples(folder: Folder = Path("examples"), json: options.Json = False) -> None:
    """Copy the examples: sessions, recipes, policies, suites, agents, hooks.

    Change them as you like. The tutorial and the documentation use them.

    Example: penstock examples
    """
    if folder.exists():
        why = "it exists; name a new one"
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
