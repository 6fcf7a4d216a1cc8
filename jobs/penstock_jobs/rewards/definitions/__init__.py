"""Definitions that come with Penstock: to use by name, and to copy."""

from importlib.resources import files
from pathlib import Path

from penstock_jobs.rewards.definition import Definition, load_definition, parse_definition

DEFAULT = "default"
_HERE = files("penstock_jobs.rewards.definitions")


def shipped() -> list[str]:
    """Their names."""
    found = (entry.name for entry in _HERE.iterdir())
    return sorted(name.removesuffix(".toml") for name in found if name.endswith(".toml"))


def find_definition(text: str = DEFAULT) -> Definition:
    """A file, or by name one that comes with Penstock. Raises InvalidInput."""
    if text in shipped():
        return parse_definition(_HERE.joinpath(f"{text}.toml").read_text(encoding="utf-8"), text)
    return load_definition(Path(text))
