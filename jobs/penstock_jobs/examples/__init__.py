"""The examples of the package: sessions, recipes, policies, suites, agents, hooks, trainers."""

from pathlib import Path

#: Of trees that somebody ran or opened.
LEFT_BEHIND = ("__pycache__", "*.pyc", ".DS_Store")


def examples_folder() -> Path:
    """In an installed package they lie beside this module, in a checkout at its top."""
    shipped = Path(__file__).with_name("_files")
    return shipped if shipped.exists() else Path(__file__).parents[3] / "examples"
