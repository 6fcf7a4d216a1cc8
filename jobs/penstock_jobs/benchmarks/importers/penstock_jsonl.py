"""Penstock's own format: a JSON object per line and attempt."""

from collections.abc import Hashable, Iterator
from pathlib import Path
from types import NoneType
from typing import Any

import msgspec

from penstock.registry.checkpoints.attempts import RESULT_FIELDS, shortened
from penstock_jobs.benchmarks.importers import documents
from penstock_jobs.benchmarks.importers.documents import Unfit
from penstock_jobs.benchmarks.importers.trials import ImportedTrial, TrialCollection, scored

NAME = "penstock"

_LINE_BYTES_MAX = 1024 * 1024
_KNOWN = frozenset({*RESULT_FIELDS, "trial"})
_MEASURES = _KNOWN - {"task", "attempt", "score", "error", "trial"}


def recognises(path: Path) -> bool:
    return any(map(_is_ours, _files(path)))


def collect(trials: TrialCollection) -> None:
    for file in trials.distinct(_files(trials.path), _is_ours):
        _take(file, trials)


def _files(path: Path) -> Iterator[Path]:
    suffixes = (".jsonl", ".ndjson") if path.is_dir() else ("",)
    return (file for suffix in suffixes for file in documents.files(path, suffix=suffix))


def _is_ours(file: Path) -> bool:
    for _number, line in _lines(file):
        try:
            keys = documents.decode(line or b"", dict[str, msgspec.Raw]).keys()
        except Unfit:
            return False
        return "task" in keys and not keys.isdisjoint(("score", "error"))
    return False


def _lines(file: Path) -> Iterator[tuple[int, bytes | None]]:
    """Lines that are not empty, with their numbers. None stands for a line that is too long."""
    with file.open("rb") as lines:
        number = 0
        while line := lines.readline(_LINE_BYTES_MAX + 1):
            number += 1
            if len(line) > _LINE_BYTES_MAX:
                while line and not line.endswith(b"\n"):
                    line = lines.readline(_LINE_BYTES_MAX)
                yield number, None
            elif line.strip():
                yield number, line


def _take(file: Path, trials: TrialCollection) -> None:
    without_number: list[tuple[str, dict[str, Any]]] = []
    numbered = set()
    for count, text in _lines(file):
        where = f"{file.name}:{count}"
        try:
            line = _read(text)
        except Unfit as error:
            trials.note("a line that cannot be read was left out", f"{where}: {error}")
            continue
        for name in sorted(line.keys() - _KNOWN):
            trials.note(f"the unknown field {shortened(repr(name))} was passed over", where)
        if line.get("error") is not None and line.get("score") is not None:
            trials.note("of a score and an error the error counts", where)
        if line.get("attempt") is None:
            without_number.append((where, line))
        else:
            numbered.add(line["task"])
            trials.add(_trial(line, where, _identity(line, line["attempt"])))
    for where, line in without_number:
        if line["task"] in numbered:
            kind = "a line without a number was left out: other lines of its task have one"
            trials.note(kind, where)
        else:
            trials.add(_trial(line, where, _identity(line, where), str(file)))


def _identity(line: dict[str, Any], otherwise: Hashable) -> Hashable:
    """The identity of a trial: its own id if it has one, whatever its number."""
    return line["task"], line["trial"] if line.get("trial") is not None else otherwise


def _read(text: bytes | None) -> dict[str, Any]:
    if text is None:
        raise Unfit(f"it is longer than {_LINE_BYTES_MAX} bytes")
    line = documents.decode(text, dict[str, Any])
    if not isinstance(line.get("task"), str):
        raise Unfit("it names no task")
    attempt = line.get("attempt")
    if attempt is not None and (isinstance(attempt, bool) or not isinstance(attempt, int)):
        raise Unfit(f"its attempt is {attempt!r}, not a number")
    if not isinstance(line.get("trial"), (str, int, NoneType)):
        raise Unfit(f"its trial is {shortened(repr(line['trial']))}, neither a text nor a number")
    return line


def _trial(line: dict[str, Any], where: str, identity: Hashable, run: str = "") -> ImportedTrial:
    outcome: float | str = "it has no score"
    if line.get("error") is not None:
        outcome = shortened(line["error"]) or "error"
    elif line.get("score") is not None:
        outcome = scored(line["score"])
    return ImportedTrial(
        task=line["task"],
        outcome=outcome,
        measures={name: line[name] for name in _MEASURES if line.get(name) is not None},
        identity=identity,
        trial="" if line.get("trial") is None else f"line {line['trial']}",
        where=where,
        run=run,
        index=line.get("attempt"),
        name=where.rpartition(":")[2].zfill(12),
    )
