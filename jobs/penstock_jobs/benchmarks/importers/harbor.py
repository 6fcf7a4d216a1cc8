"""Jobs of Harbor: a folder of jobs, a job, or a trial.

A job is a folder of trials, each with its `result.json`; the job's own `result.json` counts them,
and of older versions repeats them whole.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from penstock.checkpoints.attempts import Attempt
from penstock.errors import InvalidInput
from penstock_jobs.benchmarks.importers import documents
from penstock_jobs.benchmarks.importers.documents import Unfit, seconds_between
from penstock_jobs.benchmarks.importers.trials import (
    ONLY_SUMMARY,
    ImportedTrial,
    ReadOptions,
    ReadResults,
    TrialCollection,
    choose,
    failed_attempt,
    scored,
    short,
)

NAME = "harbor"

_RESULT, _CONFIG = "result.json", "config.json"
#: In a trial, what the agent and the tests wrote: it proves nothing, whatever it is called.
_WRITTEN_BY_OTHERS = {"agent", "user-agent", "artifacts", "verifier", "steps"}
#: What the model and its agent did by themselves: used up what they were given, or would not do
#: it. Whatever else a trial ended by, Harbor too takes its reward for no measurement.
_ITS_OWN = {
    "AgentTimeoutError",
    "ContextWindowExceededError",
    "OutputTokenExceededError",
    "ContextLengthExceededError",
    "OutputLengthExceededError",
    "AgentSafetyRefusalError",
    "ContentPolicyViolationError",
}
#: In a trial's name, its task is cut off here.
_TASK_CHARS = 32


class _Exception(msgspec.Struct):
    exception_type: str = ""
    exception_message: str = ""


class _Timing(msgspec.Struct):
    started_at: str | None = None
    finished_at: str | None = None


class _Agent(msgspec.Struct):
    n_input_tokens: Any = None
    n_output_tokens: Any = None
    cost_usd: Any = None


class _Step(msgspec.Struct):
    agent_result: _Agent | None = None
    exception_info: _Exception | None = None
    agent_execution: _Timing | None = None


class _TrialResult(msgspec.Struct):
    task_name: str
    trial_name: str
    id: str = ""
    source: str | None = None
    task_checksum: str = ""
    agent_info: dict[str, Any] | None = None
    agent_result: _Agent | None = None
    verifier_result: dict[str, Any] | None = None
    exception_info: _Exception | None = None
    started_at: str | None = None
    finished_at: str | None = None
    agent_execution: _Timing | None = None
    step_results: list[_Step] | None = None


class _Stats(msgspec.Struct):
    evals: dict[str, Any] = {}


class _Job(msgspec.Struct):
    n_total_trials: int
    stats: _Stats
    finished_at: str | None = None
    trial_results: list[_TrialResult] = []


class _TrialConfig(msgspec.Struct):
    trial_name: str
    task: dict[str, Any] = {}
    agent: dict[str, Any] = {}


def recognises(path: Path) -> bool:
    return any(
        documents.try_decode(one, kind) is not None
        for one in _files(path, _RESULT)
        for kind in (_Job, _TrialResult)
    )


def read(path: Path, options: ReadOptions) -> ReadResults:
    """Raises InvalidInput."""
    reader = _JobReader(options)
    for file in _files(path, _RESULT):
        reader.take(file, alone=path.is_file())
    if path.is_dir():
        for file in _files(path, _CONFIG):
            if not (file.parent / _RESULT).exists():
                reader.take_unfinished(file)
    return reader.finish()


def _files(path: Path, name: str) -> Iterator[Path]:
    def ends(folder: Path) -> bool:
        return (folder != path and folder.name in _WRITTEN_BY_OTHERS) or _is_trial(folder)

    return documents.files(path, name, ends=ends)


def _is_trial(folder: Path) -> bool:
    """Below it lies what was written while it ran, by the agent too."""
    return (
        documents.try_decode(folder / _CONFIG, _TrialConfig) is not None
        or documents.try_decode(folder / _RESULT, _TrialResult) is not None
    )


class _JobReader:
    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._trials = TrialCollection(options)
        self._results: list[tuple[_TrialResult, Path, bool]] = []
        self._jobs: list[tuple[_Job, Path]] = []
        self._without: list[ImportedTrial] = []

    def take(self, file: Path, *, alone: bool) -> None:
        try:
            data = documents.read(file, self._options.document_bytes_max)
            known = documents.decode(data, dict[str, msgspec.Raw]).keys()
            if "n_total_trials" in known:
                self._take_job(documents.decode(data, _Job), file)
            elif "trial_name" in known:
                self._results.append((documents.decode(data, _TrialResult), file, False))
            else:
                self._trials.note("a file of another form was passed over", str(file))
        except Unfit as error:
            if alone:
                raise InvalidInput(what=f"The file {file}", why=str(error)) from error
            self._take_unreadable(file, error)

    def _take_job(self, job: _Job, file: Path) -> None:
        self._jobs.append((job, file))
        for one in job.trial_results:
            self._results.append((one, file.parent / one.trial_name / _RESULT, True))

    def _take_unreadable(self, file: Path, error: Unfit) -> None:
        config = documents.try_decode(file.parent / _CONFIG, _TrialConfig)
        self._trials.note("a result that cannot be read is an error", f"{file}: {error}")
        if config is not None:
            self._keep(config, file, f"its result cannot be read: {error}")

    def take_unfinished(self, file: Path) -> None:
        """A trial that was begun and left no result."""
        config = documents.try_decode(file, _TrialConfig)
        if config is not None:
            self._keep(config, file.parent / _RESULT, "it left no result")

    def _keep(self, config: _TrialConfig, file: Path, error: str) -> None:
        named = config.task.get("name") or Path(str(config.task.get("path") or "")).name
        task = str(named) or config.trial_name.rpartition("__")[0]
        model = str(config.agent.get("model_name") or "")
        label = (
            str(config.agent.get("name") or ""),
            model.partition("/")[2] or model,
            str(config.task.get("source") or ""),
        )
        self._without.append(
            ImportedTrial(
                result=failed_attempt(task, short(error)),
                identity=(str(_job_of(file)), config.trial_name),
                where=str(file.parent),
                label=label,
                run=str(_job_of(file)),
                name=config.trial_name,
            )
        )

    def finish(self) -> ReadResults:
        names = {name for one, _file, _summary in self._results for name in _rewards(one)}
        metric = choose("reward", "--metric", names, self._options.metric)
        for result, file, summary in self._results:
            trial = _trial(result, file, metric)
            self._trials.add(trial, _job_of(file), summary=summary)
        self._check_contents()
        known = {(str(_job_of(file)), one.trial_name) for one, file, _summary in self._results}
        self._without = [one for one in self._without if one.identity not in known]
        for one in self._without:
            self._trials.note("a trial without a result is an error", one.where)
            self._trials.add(self._as_others(one))
        for job, file in self._jobs:
            self._add_missing(job, file)
        return self._trials.finish()

    def _as_others(self, trial: ImportedTrial) -> ImportedTrial:
        """A trial's configuration leaves out what its result would have said: the task's whole
        name, and whose it is."""
        task = self._task_of(f"{trial.result.task}__") or trial.result.task
        labels = [
            known
            for known in self._trials.labels
            if all(mine in ("", part) for mine, part in zip(trial.label, known, strict=True))
        ]
        label = labels[0] if len(labels) == 1 else (*trial.label[:2], trial.label[2] or "adhoc")
        return replace(trial, result=replace(trial.result, task=task), label=label)

    def _check_contents(self) -> None:
        seen: dict[str, str] = {}
        for result, file, _summary in self._results:
            if result.task_checksum and seen.setdefault(result.task_name, result.task_checksum) != (
                result.task_checksum
            ):
                self._trials.note("a task was not the same in all trials", str(file.parent))

    def _add_missing(self, job: _Job, file: Path) -> None:
        run = str(file.parent)
        here = {one.trial_name for one, at, _summary in self._results if str(_job_of(at)) == run}
        left = job.n_total_trials - len(here)
        here |= {one.name for one in self._without if one.run == run}
        named = {name: label for name, label in _named_in(job.stats) if name not in here}
        if left > 0 and job.finished_at is None:
            missing = f"{left} of {job.n_total_trials} trials"
            self._trials.refuse_unfinished(f"The job {file.parent}", missing)
        for name, label in sorted(named.items()):
            where = f"{file}: {name}"
            task = self._task_of(name)
            if task is None:
                kind = "a trial that only the job names, and whose task cannot be told"
                self._trials.note(f"{kind}, was left out", where)
                continue
            self._trials.note("a trial that only the job names is an error", where)
            self._trials.add(
                ImportedTrial(
                    result=failed_attempt(task, ONLY_SUMMARY),
                    identity=(run, name),
                    where=where,
                    label=label,
                    run=run,
                    name=name,
                )
            )
        unnamed = job.n_total_trials - len(here) - len(named)
        if unnamed > 0:
            self._trials.note("a result is missing, and nothing names it", str(file), unnamed)

    def _task_of(self, trial: str) -> str | None:
        """A trial's name holds the last part of its task's, cut off where it is long."""
        begun = trial.rpartition("__")[0]
        tasks = {task: task.rpartition("/")[2] for task in self._trials.tasks}
        whole = [task for task, last in tasks.items() if last == begun]
        if len(whole) == 1:
            return whole[0]
        fitting = [task for task, last in tasks.items() if last[:_TASK_CHARS].rstrip("_-") == begun]
        if len(fitting) == 1:
            return fitting[0]
        cut = len(begun) >= _TASK_CHARS - 2
        return None if fitting or cut or not begun else begun


def _job_of(result: Path) -> Path:
    return result.parent.parent


def _named_in(stats: _Stats) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The trials that a job's statistics name, and whose they were."""
    for key, evaluation in stats.evals.items():
        label = tuple(key.split("__"))
        label = label if len(label) == 3 else (label[0], "", label[-1])
        facts = evaluation if isinstance(evaluation, dict) else {}
        groups = [facts.get("exception_stats") or {}, *(facts.get("reward_stats") or {}).values()]
        for group in groups:
            for names in group.values() if isinstance(group, dict) else ():
                yield from ((str(name), label) for name in names)


def _rewards(result: _TrialResult) -> dict[str, Any]:
    """By name; the oldest versions had one, without a name."""
    verified = result.verifier_result or {}
    rewards = verified.get("rewards")
    if isinstance(rewards, dict):
        return rewards
    return {"reward": verified["reward"]} if verified.get("reward") is not None else {}


def _trial(result: _TrialResult, file: Path, metric: str | None) -> ImportedTrial:
    where = f"{file.parent.parent.name}/{result.trial_name}"
    notes: list[str] = []
    score, error = _score(result, metric, notes)
    agents = [result.agent_result] if result.agent_result else []
    agents = agents or [one.agent_result for one in result.step_results or () if one.agent_result]
    info = result.agent_info or {}
    model = (info.get("model_info") or {}).get("name") or ""
    return ImportedTrial(
        result=Attempt(
            task=result.task_name,
            attempt=0,
            score=score,
            error=error,
            completion_tokens=_sum([one.n_output_tokens for one in agents]),
            prompt_tokens=_sum([one.n_input_tokens for one in agents]),
            cost_usd=_sum([one.cost_usd for one in agents]),
            latency_s=_seconds(result),
        ),
        identity=result.id or (str(_job_of(file)), result.trial_name),
        where=where,
        label=(str(info.get("name") or ""), str(model), result.source or "adhoc"),
        run=str(_job_of(file)),
        started=result.started_at or "",
        name=result.trial_name,
        notes=tuple(notes),
    )


def _score(
    result: _TrialResult, metric: str | None, notes: list[str]
) -> tuple[float | None, str | None]:
    rewards = _rewards(result)
    ended = [result.exception_info, *(one.exception_info for one in result.step_results or ())]
    for one in ended:
        if one is not None and one.exception_type not in _ITS_OWN:
            if metric in rewards:
                notes.append("a trial that failed by itself has a reward: it is an error")
            return None, short(f"{one.exception_type}: {one.exception_message}")
    kinds = sorted({one.exception_type for one in ended if one is not None})
    if metric is None or metric not in rewards:
        ending = f" after {', '.join(kinds)}" if kinds else ""
        named = f"reward {metric}" if metric else "reward"
        return None, f"it has no {named}{ending}"
    for kind in kinds:
        notes.append(f"a trial that ended by {short(kind)} counts as scored")
        if rewards[metric]:
            notes.append(f"a trial that ended by {short(kind)} has a reward all the same")
    return scored(rewards[metric])


def _sum(values: list[Any]) -> Any:
    there = [one for one in values if isinstance(one, (int, float))]
    return sum(there) if there else None


def _seconds(result: _TrialResult) -> Any:
    """What the agent took; of a trial in steps, all of them."""
    timings = [result.agent_execution] if result.agent_execution else []
    timings = timings or [
        one.agent_execution for one in result.step_results or () if one.agent_execution
    ]
    return _sum([seconds_between(one.started_at, one.finished_at) for one in timings])
