"""Results of other harnesses, read as they are. A format is a file with `NAME`, `recognises(path)`
and `read(path, asked) -> Found`: nothing is guessed, and what could not be taken is reported."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import InvalidInput
from penstock_jobs.benchmarks.importers import (
    harbor,
    inspect_logs,
    junit,
    penstock_jsonl,
    swe_bench,
    terminal_bench,
)
from penstock_jobs.benchmarks.importers.trials import ReadOptions, ReadResults


@dataclass(frozen=True)
class Format:
    name: str
    recognises: Callable[[Path], bool]
    read: Callable[[Path, ReadOptions], ReadResults]


FORMATS = {
    one.NAME: Format(one.NAME, one.recognises, one.read)
    for one in (penstock_jsonl, inspect_logs, harbor, terminal_bench, swe_bench, junit)
}


def format_of(path: Path) -> Format:
    """What a file or folder is, by what is in it. Raises InvalidInput."""
    fitting = [one for one in FORMATS.values() if one.recognises(path)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        names = ", ".join(one.name for one in fitting)
        why = f"it holds results of several formats: {names}; name one with --format, or a part"
    else:
        why = f"it holds results of no format known: {', '.join(FORMATS)}"
    raise InvalidInput(what=_named(path), why=why)


def _named(path: Path) -> str:
    return f"The folder {path}" if path.is_dir() else f"The file {path}"
