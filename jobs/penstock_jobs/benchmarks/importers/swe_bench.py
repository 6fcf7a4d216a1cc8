"""Reports of SWE-bench: an instance is a task, a run is an attempt at each."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from penstock.registry.checkpoints.attempts import shortened
from penstock_jobs.benchmarks.importers import documents
from penstock_jobs.benchmarks.importers.documents import Unfit
from penstock_jobs.benchmarks.importers.trials import ImportedTrial, TrialCollection

NAME = "swe-bench"

_REPORT = "report.json"
_LOG = "run_instance.log"
_VERDICTS = ("resolved_ids", "unresolved_ids", "empty_patch_ids")
_TWICE = "the summary says both that it was resolved and that it was not"
_ENVIRONMENT = "its environment failed"
#: Lists of instances without a result, with the reason. The first that names an instance counts.
_ERRORS = {
    "error_ids": "its evaluation failed",
    "failed_ids": "its evaluation failed",
    "incomplete_ids": "no prediction was submitted",
    "pending_ids": "its evaluation has not ended",
}


class _Summary(msgspec.Struct):
    resolved_ids: list[str]
    unresolved_ids: list[str] | None = None
    completed_ids: list[str] | None = None
    submitted_ids: list[str] | None = None
    error_ids: list[str] = []
    failed_ids: list[str] = []
    incomplete_ids: list[str] = []
    pending_ids: list[str] = []
    empty_patch_ids: list[str] = []
    infra_failure_ids: list[str] = []
    failure_reasons: dict[str, Any] = {}
    #: Only in other reports with such lists.
    results: msgspec.UnsetType | Any = msgspec.UNSET
    total_instances: int | None = None


class _Instance(msgspec.Struct):
    resolved: bool
    patch_exists: bool | None = None
    patch_is_None: bool = False  # noqa: N815 (the report's name)
    patch_successfully_applied: bool | None = None
    infra_failure: bool = False
    infra_failure_reason: str | None = None


_INSTANCES = dict[str, _Instance]
#: An outcome, and whether anything was edited, if known.
_Result = tuple[float | str, bool | None]


@dataclass
class _RunReports:
    name: str
    label: tuple[str, ...]
    summary: dict[str, _Result] = field(default_factory=dict)
    instances: dict[str, tuple[_Result, Path]] = field(default_factory=dict)


def recognises(path: Path) -> bool:
    reports = documents.files(path, suffix=".json")
    return any(_summary(file) or documents.try_decode(file, _INSTANCES) for file in reports)


def collect(trials: TrialCollection) -> None:
    path = trials.path
    runs: dict[str, _RunReports] = {}
    summaries: list[tuple[Path, _Summary]] = []
    for file in documents.files(path, suffix=".json"):
        if (summary := _summary(file)) is not None:
            summaries.append((file, summary))
        elif instances := documents.try_decode(file, _INSTANCES):
            # A report elsewhere may be written by anybody.
            own = file.name == _REPORT and instances.keys() == {file.parent.name}
            if path.is_file() or own:
                run = _run_of(file, path, runs)
                for task, instance in instances.items():
                    run.instances[task] = _result(task, instance, file, trials), file
            else:
                kind = "a report that does not lie in its instance's folder was left out"
                trials.note(kind, file)
        elif file.name == _REPORT or path.is_file():
            error = Unfit("it is not a report of SWE-bench")
            try:
                documents.decode(documents.read(file, trials.options.document_bytes_max), _Summary)
            except Unfit as unfit:
                error = unfit
            trials.leave_out("a report that cannot be read is an error", file, error)
            result: _Result = f"its report cannot be read: {error}", None
            _run_of(file, path, runs).instances[file.parent.name] = result, file
    for log in documents.files(path, _LOG) if path.is_dir() else ():
        if not log.with_name(_REPORT).exists():
            trials.note("an instance without a report is an error", log.parent)
            result = "it left no report", None
            _run_of(log, path, runs).instances.setdefault(log.parent.name, (result, log))
    for file, summary in summaries:
        _take_summary(_run_named(file, runs), summary, file, trials)
    for run in runs.values():
        _add(run, trials)


def _summary(file: Path) -> _Summary | None:
    summary = documents.try_decode(file, _Summary)
    if summary is None or summary.results is not msgspec.UNSET:
        return None
    others = (summary.submitted_ids, summary.completed_ids, summary.total_instances)
    return summary if any(other is not None for other in others) else None


def _run_of(report: Path, root: Path, runs: dict[str, _RunReports]) -> _RunReports:
    """The run of a report, which lies in RUN/MODEL/INSTANCE below the imported folder."""
    folders = report.relative_to(root).parts[:-2] if root.is_dir() else ()
    name = "/".join(folders)
    return runs.setdefault(name, _RunReports(name, folders[-1:]))


def _run_named(file: Path, runs: dict[str, _RunReports]) -> _RunReports:
    """The run of a summary: MODEL.RUN.json belongs to that run, others are their own runs."""
    for run in runs.values():
        parts = run.name.split("/")
        if len(parts) >= 2 and file.stem == f"{parts[-1]}.{parts[-2]}":
            return run
    if len(runs) == 1 and not next(iter(runs.values())).summary:
        return next(iter(runs.values()))
    return runs.setdefault(str(file), _RunReports(str(file), (file.stem,)))


def _result(task: str, report: _Instance, file: Path, trials: TrialCollection) -> _Result:
    where = f"{file}: {task}"
    if report.infra_failure:
        reason = report.infra_failure_reason or "no reason told"
        return shortened(f"{_ENVIRONMENT}: {reason}"), None
    if report.patch_is_None or report.patch_exists is False:
        trials.note("an empty patch counts 0", where)
        return 0.0, False
    if report.patch_successfully_applied is False:
        trials.note("a patch that was not applied, or left no test results, counts 0", where)
    return float(report.resolved), None


def _take_summary(run: _RunReports, summary: _Summary, file: Path, trials: TrialCollection) -> None:
    lists = {name: set(getattr(summary, name) or ()) for name in (*_VERDICTS, *_ERRORS)}
    tasks = set().union(*lists.values(), summary.completed_ids or (), summary.submitted_ids or ())
    for task in sorted(tasks):
        named = {name for name, of_list in lists.items() if task in of_list}
        where = f"{file.name}: {task}"
        outcome = _listed(task, named, summary)
        run.summary[task] = outcome, None
        if not isinstance(outcome, str) and "empty_patch_ids" in named:
            trials.note("an empty patch counts 0", where)
            run.summary[task] = outcome, False
        elif outcome in (_TWICE, trials.ONLY_SUMMARY):
            trials.note(f"an instance is an error: {outcome}", where)
    unnamed = (summary.total_instances or 0) - len(tasks)
    if unnamed > 0:
        trials.note("a result is missing, and nothing names it", file.name, unnamed)


def _listed(task: str, named: set[str], summary: _Summary) -> float | str:
    if {"resolved_ids", "unresolved_ids"} <= named:
        return _TWICE
    if task in summary.infra_failure_ids:
        reason = summary.failure_reasons.get(task, "no reason told")
        return shortened(f"{_ENVIRONMENT}: {reason}")
    for name, why in _ERRORS.items():
        if name in named:
            return why
    if named:
        return float("resolved_ids" in named)
    if summary.unresolved_ids is None and task in (summary.completed_ids or ()):
        return 0.0  # older reports name the completed and the resolved
    return TrialCollection.ONLY_SUMMARY


def _add(run: _RunReports, trials: TrialCollection) -> None:
    for task in sorted(run.summary.keys() | run.instances.keys()):
        listed = run.summary.get(task)
        known, file = run.instances.get(task, (listed, Path(run.name)))
        assert known is not None
        outcome, edited = known
        where = f"{file}: {task}"
        if run.instances and task not in run.instances:
            # An empty patch is not run, and leaves no report.
            if not isinstance(outcome, str) and edited is not False:
                trials.note("an instance that only the summary names is an error", where)
                outcome, edited = trials.ONLY_SUMMARY, None
        elif listed is not None and str(listed[0]).startswith(_ENVIRONMENT):
            outcome, edited = listed  # the summary knows the logs too
        elif (  # the summary words errors differently
            listed is not None
            and listed[0] != outcome
            and not (isinstance(listed[0], str) and isinstance(outcome, str))
        ):
            trials.note(trials.DIFFERENT_RESULTS, where)
            outcome, edited = "its report and the summary differ", None
        trial = ImportedTrial(
            task=task,
            outcome=outcome,
            measures={"edited": edited},
            identity=(run.name, task),
            where=where,
            label=run.label,
            run=run.name,
            index=0,
            size=1,
        )
        trials.add(trial)
