"""Runs of Terminal-Bench 1.x. The `results.json` of a run repeats the results of its trials."""

import re
from collections import defaultdict
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import msgspec

from penstock_jobs.benchmarks.importers import documents
from penstock_jobs.benchmarks.importers.documents import Unfit, seconds_between
from penstock_jobs.benchmarks.importers.trials import (
    ImportedTrial,
    TrialCollection,
    reported_tokens,
    short,
)

NAME = "terminal-bench"

_RESULTS = "results.json"
_METADATA = "run_metadata.json"
#: Some versions leave the run out of a trial's name.
_TRIAL = re.compile(r".+?\.(?P<number>\d+)-of-(?P<size>\d+)(?:\.(?P<run>.+))?", re.DOTALL)
#: The run ended, or the model or its agent ended it. The tests then decide the score.
_ENDED_WELL = {"unset", "none"}
_LIMITS = {"context_length_exceeded", "output_length_exceeded"}
_ITS_OWN = _ENDED_WELL | {"agent_timeout", "fatal_llm_parse_error"} | _LIMITS


class _TerminalResult(msgspec.Struct):
    task_id: str
    is_resolved: bool | None
    trial_name: str = ""
    id: str = ""
    #: The old name of `id`.
    uuid: str = ""
    failure_mode: str | None = None
    total_input_tokens: Any = None
    total_output_tokens: Any = None
    trial_started_at: str | None = None
    agent_started_at: str | None = None
    agent_ended_at: str | None = None


class _RunResults(msgspec.Struct):
    results: list[_TerminalResult]


_KINDS: dict[str, type[msgspec.Struct]] = {"is_resolved": _TerminalResult, "results": _RunResults}


class _RunMetadata(msgspec.Struct):
    run_id: str
    agent_name: str = ""
    model_name: str | None = None
    task_ids: list[str] | None = None
    dataset_size: int | None = None
    n_attempts: int | None = None
    start_time: str | None = None
    end_time: str | None = None


def recognises(path: Path) -> bool:
    return documents.any_fits(documents.files(path, _RESULTS, ends=_is_trial), _KINDS.values())


def collect(trials: TrialCollection) -> None:
    runs: dict[Path, _RunMetadata] = {}
    folder = trials.path.parent if trials.path.is_file() else trials.path
    for file in documents.files(folder, _METADATA, ends=_is_trial):
        if trials.path.is_dir() or file.parent == folder:
            try:
                data = documents.read(file, trials.options.document_bytes_max)
                runs[file.parent] = documents.decode(data, _RunMetadata)
            except Unfit as error:
                trials.note("a run's metadata cannot be read", f"{file}: {error}")
    reader = _RunReader(trials, runs)
    for file in documents.files(trials.path, _RESULTS, ends=_is_trial):
        try:
            result = trials.decode(file, _KINDS)
        except Unfit as error:
            trials.leave_out("results that cannot be read were left out", file, error)
            continue
        if isinstance(result, _TerminalResult):
            reader.add(result, file, summary=False)
        elif isinstance(result, _RunResults):
            for part in result.results:
                reader.add(part, file, summary=True)
    reader.add_missing()


def _is_trial(folder: Path) -> bool:
    """Whether a folder is a trial's. Below it are files that the agent wrote."""
    if _TRIAL.fullmatch(folder.name) is not None:
        return not (folder / _METADATA).exists()  # else a run with such a name
    return documents.try_decode(folder / _RESULTS, _TerminalResult) is not None


class _RunReader:
    def __init__(self, trials: TrialCollection, runs: dict[Path, _RunMetadata]) -> None:
        self._trials, self._runs = trials, runs
        #: By task and run, the number of each attempt with a result, or its identity.
        self._places: defaultdict[tuple[str, str], set[Hashable]] = defaultdict(set)

    def add(self, result: _TerminalResult, file: Path, *, summary: bool) -> None:
        folder = next((folder for folder in file.parents if folder in self._runs), file.parent)
        metadata = self._runs.get(folder)
        run, index, size = metadata.run_id if metadata else str(folder), None, 0
        if match := _TRIAL.fullmatch(result.trial_name):
            run = match["run"] or run
            index, size = int(match["number"]) - 1, int(match["size"])
        own_id = result.id or result.uuid
        identity = own_id or ((run, result.trial_name) if result.trial_name else object())
        self._places[result.task_id, run].add(identity if index is None else index)
        notes: list[str] = []
        took_s = seconds_between(result.agent_started_at, result.agent_ended_at)
        tokens = reported_tokens(result.total_input_tokens, result.total_output_tokens, notes)
        named = {metadata.run_id: metadata for metadata in self._runs.values()}
        metadata = named.get(run, metadata)
        trial = ImportedTrial(
            task=result.task_id,
            outcome=_outcome(result, notes),
            measures=tokens | {"latency_s": took_s},
            identity=identity,
            trial=own_id or (result.trial_name if match and match["run"] else ""),
            where=f"{file}: {result.trial_name or result.task_id}",
            label=(metadata.agent_name, metadata.model_name or "") if metadata else (),
            run=run,
            index=index,
            size=size,
            started=result.trial_started_at or "",
            name=result.trial_name,
            notes=notes,
        )
        self._trials.add(trial, folder, summary=summary)

    def add_missing(self) -> None:
        for folder, run in self._runs.items():
            size, tasks = run.n_attempts or 1, run.task_ids or ()
            missing = [(task, index) for task in tasks for index in self._missing(task, run, size)]
            unnamed = 0
            if not tasks:
                places = self._places.items()
                known = sum(len(found) for (_, name), found in places if name == run.run_id)
                unnamed = max(0, (run.dataset_size or 0) * size - known)
            left = len(missing) + unnamed
            if left and run.start_time and not run.end_time:
                self._trials.refuse_unfinished(f"The run {folder}", f"{left} trials")
            if unnamed:
                self._trials.note("a result is missing, and nothing names it", folder, unnamed)
            for task, index in missing:
                self._trials.add_missing(
                    "a trial that only the run's metadata names is an error",
                    task,
                    (run.run_id, task, index),
                    where=f"{folder}: {task}, {index + 1} of {size}",
                    label=(run.agent_name, run.model_name or ""),
                    run=run.run_id,
                    index=index,
                    size=size,
                    started=run.start_time or "",
                )

    def _missing(self, task: str, run: _RunMetadata, size: int) -> list[int]:
        """The numbers of a task's missing attempts. Each unnumbered result fills one of them."""
        known = self._places.get((task, run.run_id), set())
        numbers = [index for index in range(size) if index not in known]
        without_number = sum(not isinstance(place, int) for place in known)
        return numbers[: max(0, len(numbers) - without_number)]


def _outcome(result: _TerminalResult, notes: list[str]) -> float | str:
    mode = result.failure_mode or "unset"
    if mode not in _ITS_OWN:
        if result.is_resolved is not None:
            verdict = "resolved" if result.is_resolved else "not resolved"
            notes.append(f"a trial with {short(mode)}, {verdict}, is an error")
        return short(mode)
    if result.is_resolved is None:
        return "nothing says whether it was resolved" if mode == "unset" else mode
    if mode not in _ENDED_WELL:
        verdict = "passed its tests" if result.is_resolved else "failed its tests"
        notes.append(f"a trial with {mode} {verdict}, and counts so")
    return float(result.is_resolved)
