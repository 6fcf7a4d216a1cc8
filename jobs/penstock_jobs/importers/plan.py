"""What an import reads: which of the files that somebody named are of which format."""

from dataclasses import dataclass, field
from pathlib import Path

from penstock.errors import InvalidInput
from penstock.ingest.event_files import (
    EventFile,
    LeftOut,
    find_files,
    named_as_events,
    problem_of,
)
from penstock_jobs.importers.importer import Importer
from penstock_jobs.importers.registry import importer_named, recognise
from penstock_jobs.importers.report import LeftOutKind, Notes
from penstock_jobs.importers.sources import Candidate, Source, candidates

AUTO = "auto"
#: The format of Penstock's own files.
EVENTS = "events"


@dataclass
class ImportPlan:
    #: With their importers, and their sizes in bytes.
    sources: list[tuple[Source, Importer, int]] = field(default_factory=list)
    event_files: list[EventFile] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    #: Files of no format, by the end of their names.
    unknown: dict[str, LeftOutKind] = field(default_factory=dict)


def plan_import(paths: list[Path], form: str = AUTO) -> ImportPlan:
    """With `auto`, what no importer knows is read as events, unless it lies in a folder beside
    sessions and does not look like events. Raises InvalidInput."""
    plan = ImportPlan()
    fixed = importer_named(form) if form not in (AUTO, EVENTS) else None
    for path in paths:
        if form == EVENTS or not _add_sessions(plan, path, fixed):
            if fixed is not None:
                raise InvalidInput(what=f"{path}", why=f"it holds nothing of the format {form}")
            files, left_out = find_files([path])
            plan.left_out += left_out
            plan.event_files += _with_events(files, plan.left_out, is_folder=path.is_dir())
    return plan


def _with_events(
    files: list[EventFile], left_out: list[LeftOut], *, is_folder: bool
) -> list[EventFile]:
    """Nothing of an import is taken if a file that was named holds something else; in a folder
    such files are left out, as long as there are others. Raises InvalidInput."""
    fit: list[EventFile] = []
    problems: list[LeftOut] = []
    for file in files:
        if problem := problem_of(file):
            problems.append(LeftOut(file.path, problem))
        else:
            fit.append(file)
    if problems and not (fit and is_folder):
        raise InvalidInput(what=f"The file {problems[0].path}", why=problems[0].why)
    left_out += problems
    return fit


def _add_sessions(plan: ImportPlan, path: Path, fixed: Importer | None) -> bool:
    """Whether there were any."""
    notes = Notes(str(path))
    importers: dict[Candidate, Importer] = {}

    def is_whole(folder: Candidate) -> bool:
        return _importer_of(folder, fixed, importers) is not None

    unknown: list[Candidate] = []
    sources: list[tuple[Source, Importer, int]] = []
    for candidate in candidates(path, notes, is_whole):
        importer = _importer_of(candidate, fixed, importers)
        if importer is None:
            unknown.append(candidate)
            continue
        sources += [(source, importer, _size(source)) for source in importer.sources(candidate)]
    if not sources:
        return False
    plan.sources += sources
    for kind, items in notes.skipped.items():
        plan.left_out.append(LeftOut(Path(items.example), f"{items.count} × {kind}"))
    for candidate in unknown:
        if _looks_like_events(candidate):
            plan.event_files.append(EventFile(candidate.path, candidate.root, candidate.names))
        else:
            known = plan.unknown.setdefault(
                candidate.path.suffix or "(no suffix)", LeftOutKind(0, str(candidate.path))
            )
            known.count += 1
    return True


def _importer_of(
    candidate: Candidate, fixed: Importer | None, importers: dict[Candidate, Importer]
) -> Importer | None:
    if candidate in importers:
        return importers[candidate]
    if fixed is None:
        importer = recognise(candidate)
    else:
        importer = fixed if fixed.recognises(candidate) else None
    if importer is not None:
        importers[candidate] = importer
    return importer


def _looks_like_events(candidate: Candidate) -> bool:
    rows = candidate.first_rows if named_as_events(candidate.path) else []
    return bool(rows) and all({"session_id", "ts", "type", "payload"} <= row.keys() for row in rows)


def _size(source: Source) -> int:
    try:
        return source.size()
    except OSError:
        return 0
