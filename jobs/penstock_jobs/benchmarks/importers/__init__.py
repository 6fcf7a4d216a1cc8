"""Results of other harnesses, read as they are. A format is a module with `NAME`,
`recognises(path)` and `read(path, options)`. Nothing is guessed; what is left out is reported."""

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
class ResultFormat:
    name: str
    recognises: Callable[[Path], bool]
    read: Callable[[Path, ReadOptions], ReadResults]


FORMATS = {
    module.NAME: ResultFormat(module.NAME, module.recognises, module.read)
    for module in (penstock_jsonl, inspect_logs, harbor, terminal_bench, swe_bench, junit)
}


def format_of(path: Path) -> ResultFormat:
    """What a file or folder is, by its content. Raises InvalidInput."""
    fitting = [form for form in FORMATS.values() if form.recognises(path)]
    if len(fitting) == 1:
        return fitting[0]
    why = f"it holds results of no format known: {', '.join(FORMATS)}"
    if fitting:
        names = ", ".join(form.name for form in fitting)
        why = f"it holds results of several formats: {names}; name one with --format, or a part"
    raise InvalidInput(what=f"The {'folder' if path.is_dir() else 'file'} {path}", why=why)
