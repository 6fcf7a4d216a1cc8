"""What an import reads: which of the files that somebody named are of which format."""

from collections.abc import Callable
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
from penstock_jobs.importers.registry import homes, importer_named, recognise
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


#: The importer of a source that was read before and did not change.
Remembered = Callable[[Source], Importer | None]


def plan_import(
    paths: list[Path], form: str = AUTO, remembered: Remembered = lambda _source: None
) -> ImportPlan:
    """With `auto`, what no importer knows is read as events, unless it lies in a folder beside
    sessions and does not look like events. What is `remembered` is not opened. Raises
    InvalidInput."""
    plan = ImportPlan()
    fixed = importer_named(form) if form not in (AUTO, EVENTS) else None
    usual = {home for _importer, home in homes()}
    for path in paths:
        if path in usual and form != EVENTS:  # an agent that is installed may have no session yet
            _add_sessions(plan, path, fixed, remembered)
        elif form == EVENTS or not _add_sessions(plan, path, fixed, remembered):
            if fixed is not None:
                raise InvalidInput(what=f"{path}", why=f"it holds nothing of the format {form}")
            files, left_out = find_files([path])
            plan.left_out += left_out
            plan.event_files += _with_events(files, plan.left_out, is_folder=path.is_dir())
    _leave_out_copies(plan)
    return plan


def _leave_out_copies(plan: ImportPlan) -> None:
    by_importer: dict[Importer, list[Source]] = {}
    for source, importer, _size in plan.sources:
        by_importer.setdefault(importer, []).append(source)
    for importer, sources in by_importer.items():
        if copies := importer.copies(sources):
            why = f"{len(copies)} × a copy of what {importer.name} also keeps in full elsewhere"
            plan.left_out.append(LeftOut(min(copy.path for copy in copies), why))
            left_out = {copy.real for copy in copies}
            plan.sources = [each for each in plan.sources if each[0].real not in left_out]


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


def _add_sessions(
    plan: ImportPlan, path: Path, fixed: Importer | None, remembered: Remembered
) -> bool:
    """Whether there were any. Nothing of what was looked at stays in memory but names."""
    notes = Notes(str(path))
    whole: dict[tuple[str, ...], Importer] = {}

    def importer_of(candidate: Candidate) -> Importer | None:
        if fixed is not None:
            return fixed if fixed.recognises(candidate) else None
        return recognise(candidate)

    def is_whole(folder: Candidate) -> bool:
        importer = importer_of(folder)
        if importer is not None:
            whole[folder.names] = importer
        return importer is not None

    unknown: list[tuple[EventFile, bool]] = []
    sources: list[tuple[Source, Importer, int]] = []
    for candidate in candidates(path, notes, is_whole):
        known = None if candidate.is_folder or fixed else remembered(candidate.source())
        importer = whole.get(candidate.names) if candidate.is_folder else None
        importer = importer or known or importer_of(candidate)
        if importer is not None:
            sources += [(each, importer, _size(each)) for each in importer.sources(candidate)]
        else:
            file = EventFile(candidate.path, candidate.root, candidate.names)
            unknown.append((file, _looks_like_events(candidate)))
    if not sources:
        return False
    plan.sources += sources
    for kind, items in notes.skipped.items():
        plan.left_out.append(LeftOut(Path(items.example), f"{items.count} × {kind}"))
    for file, has_events in unknown:
        if has_events:
            plan.event_files.append(file)
        else:
            suffix = file.path.suffix or "(no suffix)"
            plan.unknown.setdefault(suffix, LeftOutKind(0, str(file.path))).count += 1
    return True


def _looks_like_events(candidate: Candidate) -> bool:
    rows = candidate.first_rows if named_as_events(candidate.path) else []
    return bool(rows) and all({"session_id", "ts", "type", "payload"} <= row.keys() for row in rows)


def _size(source: Source) -> int:
    try:
        return source.size()
    except OSError:
        return 0
