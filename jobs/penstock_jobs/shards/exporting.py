"""Exports: a shard written in the form that a trainer reads.

An exporter is a module of `penstock_jobs.shards.exporters` that says `EXPORTER = Exporter(…)`, or
an entry point of the group `penstock.exporters` that names one. Its docstring is its page: which
column becomes what, how things are aligned, what is lost, and which version of the target it was
written for. What a target cannot hold is left out with a reason, never bent.
"""

import importlib
import json
import pkgutil
import shutil
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from functools import cache
from importlib.metadata import entry_points
from inspect import cleandoc, getmodule
from pathlib import Path
from typing import Any

from penstock.directories import make_directory, sync_directory
from penstock.errors import InvalidInput
from penstock.shards.manifest import Manifest
from penstock.storage import ObjectStore
from penstock_jobs.shards.exporters.outputs import Output
from penstock_jobs.shards.exporters.reading import Source

EXPORT_NAME = "export.json"
_MODULES = "penstock_jobs.shards.exporters"
_GROUP = "penstock.exporters"


@dataclass(frozen=True)
class Exporter:
    """`write` gives the same bytes for the same shard. `version` goes up when it would give other
    bytes; `target` is the software and the version of it whose form this is."""

    name: str
    version: int
    target: str
    write: Callable[[Source, Output], None]

    def page(self) -> str:
        module = getmodule(self.write)
        return cleandoc((module and module.__doc__) or "")


@dataclass(frozen=True)
class Exported:
    """`rows` and `left_out` count rows of the shard and are all of them together. `counted` is
    whatever else the exporter counts."""

    shard: str
    target: str
    version: int
    written_for: str
    rows: int
    left_out: dict[str, int]
    counted: dict[str, int] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)


@cache
def all_exporters() -> dict[str, Exporter]:
    """By name. Raises InvalidInput where two have one name."""
    found: dict[str, Exporter] = {}
    for exporter in [*_shipped(), *(entry.load() for entry in entry_points(group=_GROUP))]:
        if exporter.name in found:
            raise InvalidInput(what=f"The exporter {exporter.name}", why="two modules define it")
        found[exporter.name] = exporter
    return dict(sorted(found.items()))


def find_exporter(target: str) -> Exporter:
    """Raises InvalidInput."""
    known = all_exporters()
    if target in known:
        return known[target]
    near = get_close_matches(target, known, 1)
    why = f"the nearest is {near[0]}" if near else f"there are {', '.join(known)}"
    raise InvalidInput(what=f"The target {target!r}", why=f"nothing is exported to it; {why}")


def export(store: ObjectStore, manifest: Manifest, target: str, out: Path) -> Exported:
    """Write the shard into a directory, which appears when it is complete. Raises InvalidInput
    for an unknown target and for a directory that is not empty; ShardDamaged, what the store
    raises."""
    exporter = find_exporter(target)
    out = out.absolute()
    _refuse_used(out)
    make_directory(out.parent)
    unfinished = out.with_name(f".{out.name}.{uuid.uuid4().hex[:12]}.unfinished")
    unfinished.mkdir()
    try:
        exported = _write(Source(store, manifest), exporter, unfinished)
        _refuse_used(out)
        if out.exists():
            out.rmdir()
        unfinished.rename(out)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    sync_directory(out.parent)
    return exported


def _refuse_used(out: Path) -> None:
    if not out.exists():
        return
    if not out.is_dir():
        raise InvalidInput(what=f"The directory {out}", why="it is a file")
    if next(out.iterdir(), None) is not None:
        why = "it is not empty; name one that is, or one that is not there yet"
        raise InvalidInput(what=f"The directory {out}", why=why)


def _write(source: Source, exporter: Exporter, folder: Path) -> Exported:
    with Output(folder) as output:
        exporter.write(source, output)
    exported = Exported(
        shard=source.manifest.id,
        target=exporter.name,
        version=exporter.version,
        written_for=exporter.target,
        rows=output.rows,
        left_out=dict(sorted(output.left_out.items())),
        counted=dict(sorted(output.counted.items())),
        files=sorted(output.files),
    )
    text = json.dumps(asdict(exported), indent=2, ensure_ascii=False) + "\n"
    (folder / EXPORT_NAME).write_text(text, encoding="utf-8")
    return exported


def _shipped() -> list[Any]:
    package = importlib.import_module(_MODULES)
    names = sorted(one.name for one in pkgutil.iter_modules(package.__path__))
    modules = [importlib.import_module(f"{_MODULES}.{name}") for name in names]
    return [module.EXPORTER for module in modules if hasattr(module, "EXPORTER")]
