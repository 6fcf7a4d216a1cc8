"""All importers: those of `formats/`, and those of other distributions by entry points."""

import pkgutil
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

from penstock.errors import InvalidInput
from penstock_jobs.importers import formats
from penstock_jobs.importers.importer import Importer, expanded_home
from penstock_jobs.importers.sources import Candidate

#: Entry points of this group name an Importer each.
_GROUP = "penstock.importers"


@cache
def all_importers() -> Sequence[Importer]:
    """In the order of their names."""
    modules = (
        import_module(f"{formats.__name__}.{module.name}")
        for module in pkgutil.iter_modules(formats.__path__)
    )
    known: list[Importer] = [module.IMPORTER for module in modules if hasattr(module, "IMPORTER")]
    known += [entry.load() for entry in entry_points(group=_GROUP)]
    return sorted(known, key=lambda importer: importer.name)


def importer_named(name: str) -> Importer:
    """Raises InvalidInput."""
    for importer in all_importers():
        if importer.name == name:
            return importer
    known = ", ".join(["auto", "events", *(importer.name for importer in all_importers())])
    raise InvalidInput(what=f"--format {name}", why=f"there is no such format; known: {known}")


def recognise(candidate: Candidate) -> Importer | None:
    return next((each for each in all_importers() if each.recognises(candidate)), None)


def homes() -> Iterator[tuple[Importer, Path]]:
    """The default folders of each format that exist."""
    for importer in all_importers():
        for home in importer.homes:
            path = expanded_home(home)
            if path is not None and path.exists():
                yield importer, path
