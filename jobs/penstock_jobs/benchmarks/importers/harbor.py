"""Jobs of Harbor: folders of trials. The job's own result counts or repeats them."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from penstock.registry.checkpoints.attempts import shortened
from penstock.registry.checkpoints.harness import Harness
from penstock_jobs.benchmarks.importers import documents
from penstock_jobs.benchmarks.importers.documents import Unfit, seconds_between
from penstock_jobs.benchmarks.importers.trials import (
    ImportedTrial,
    TrialCollection,
    reported_tokens,
    scored,
)

NAME = "harbor"

_RESULT, _CONFIG = "result.json", "config.json"
#: Folders of a trial that the agent and the tests write to. Results there prove nothing.
_WRITTEN_BY_OTHERS = {"agent", "user-agent", "artifacts", "verifier", "steps"}
#: The model or its agent used up a limit, or refused. Other exceptions void a reward, as in Harbor.
_ITS_OWN = {
    "AgentTimeoutError", "ContextWindowExceededError", "OutputTokenExceededError",
    "ContextLengthExceededError", "OutputLengthExceededError", "AgentSafetyRefusalError",
    "ContentPolicyViolationError",
}  # fmt: skip
#: Length to which a trial's name cuts its task's name.
_TASK_CHARS = 32
_TOKENS = ("n_input_tokens", "n_output_tokens")


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


class _TrialResult(_Step, kw_only=True):
    task_name: str
    trial_name: str
    id: str = ""
    source: str | None = None
    agent_info: dict[str, Any] | None = None
    verifier_result: dict[str, Any] | None = None
    started_at: str | None = None
    step_results: list[_Step] | None = None


class _Stats(msgspec.Struct):
    evals: dict[str, Any] = {}


class _Job(msgspec.Struct):
    n_total_trials: int
    stats: _Stats
    finished_at: str | None = None
    trial_results: list[_TrialResult] = []


_KINDS: dict[str, type[msgspec.Struct]] = {"n_total_trials": _Job, "trial_name": _TrialResult}


class _TrialConfig(msgspec.Struct):
    trial_name: str
    task: dict[str, Any] = {}
    agent: dict[str, Any] = {}


def recognises(path: Path) -> bool:
    results = _files(path, _RESULT)
    return any(documents.try_decode(file, kind) for file in results for kind in _KINDS.values())


def collect(trials: TrialCollection) -> None:
    #: Each result with its folder, and whether it comes from the job's own result.
    results: list[tuple[_TrialResult, Path, bool]] = []
    jobs: list[tuple[_Job, Path]] = []
    #: Reasons for missing results, by the trial's folder.
    failed: dict[Path, str] = {}
    for file in _files(trials.path, _RESULT):
        try:
            result = trials.decode(file, _KINDS)
        except Unfit as error:
            trials.leave_out("a result that cannot be read is an error", file, error)
            failed[file.parent] = f"its result cannot be read: {error}"
            continue
        if isinstance(result, _Job):
            jobs.append((result, file))
            parts = result.trial_results
            results += [(part, file.parent / part.trial_name, True) for part in parts]
        elif isinstance(result, _TrialResult):
            results.append((result, file.parent, False))
    for file in _files(trials.path, _CONFIG) if trials.path.is_dir() else ():
        if not file.with_name(_RESULT).exists():
            failed[file.parent] = "it left no result"
    metric = trials.metric("reward", {name for result, *_ in results for name in _rewards(result)})
    done: defaultdict[Path, set[str]] = defaultdict(set)
    for result, folder, summary in results:
        done[folder.parent].add(result.trial_name)
        trials.add(_trial(result, folder, metric), folder.parent, summary=summary)
    known = defaultdict(set, {job: set(names) for job, names in done.items()})
    for folder, why in failed.items():
        config = documents.try_decode(folder / _CONFIG, _TrialConfig)
        if config is not None and config.trial_name not in known[folder.parent]:
            trials.note("a trial without a result is an error", folder)
            trials.add(_without_result(config, folder, why, trials))
            known[folder.parent].add(config.trial_name)
    for job, file in jobs:
        left = job.n_total_trials - len(done[file.parent])
        if left > 0 and job.finished_at is None:
            missing = f"{left} of {job.n_total_trials} trials"
            trials.refuse_unfinished(f"The job {file.parent}", missing)
        _add_missing(job, file, known[file.parent], trials)


def _files(path: Path, name: str) -> Iterator[Path]:
    def ends(folder: Path) -> bool:
        """Whether the walk ends here. Below a trial are files that the agent wrote."""
        return (
            (folder != path and folder.name in _WRITTEN_BY_OTHERS)
            or documents.try_decode(folder / _CONFIG, _TrialConfig) is not None
            or documents.try_decode(folder / _RESULT, _TrialResult) is not None
        )

    return documents.files(path, name, ends=ends)


def _without_result(
    config: _TrialConfig, folder: Path, why: str, trials: TrialCollection
) -> ImportedTrial:
    """The trial of a configuration without a result. If its label is incomplete, the only label
    that fits is taken."""
    task, agent = config.task, config.agent
    name = str(task.get("name") or Path(str(task.get("path") or "")).name)
    name = name or config.trial_name.rpartition("__")[0]
    model = str(agent.get("model_name") or "")
    parts = (agent.get("name"), model.partition("/")[2] or model, task.get("source"))
    own = tuple(str(part or "") for part in parts)
    labels = {
        other.label
        for other in trials
        if all(mine in ("", part) for mine, part in zip(own, other.label, strict=True))
    }
    return ImportedTrial(
        task=_task_of(name, trials) or name,
        outcome=shortened(why),
        identity=(str(folder.parent), config.trial_name),
        where=str(folder),
        label=labels.pop() if len(labels) == 1 else (*own[:2], own[2] or "adhoc"),
        run=str(folder.parent),
        name=config.trial_name,
    )


def _add_missing(job: _Job, file: Path, known: set[str], trials: TrialCollection) -> None:
    run, count = str(file.parent), len(known)
    named = {name: label for name, label in _trials_named_in(job) if name not in known}
    for name, label in sorted(named.items()):
        if task := _task_of(name.rpartition("__")[0], trials):
            count += 1
            facts = {"where": f"{file}: {name}", "label": label, "run": run, "name": name}
            kind = "a trial that only the job names is an error"
            trials.add_missing(kind, task, (run, name), **facts)
    if (unnamed := job.n_total_trials - count) > 0:
        trials.note("a result is missing, and nothing names its task", file, unnamed)


def _task_of(name: str, trials: TrialCollection) -> str | None:
    """Find a task by a trial's name, which begins with the last part of the task's name."""
    cut = name[:_TASK_CHARS].rstrip("_-")
    tasks = {trial.task: trial.task.rpartition("/")[2] for trial in trials}
    fitting = [task for task, part in tasks.items() if part[:_TASK_CHARS].rstrip("_-") == cut]
    if fitting or len(cut) >= _TASK_CHARS - 2:
        return fitting[0] if len(fitting) == 1 else None
    return name or None


def _trials_named_in(job: _Job) -> Iterator[tuple[str, tuple[str, ...]]]:
    for key, evaluation in job.stats.evals.items():
        label = tuple(key.split("__"))
        label = label if len(label) == 3 else (label[0], "", label[-1])
        facts = evaluation if isinstance(evaluation, dict) else {}
        groups = [facts.get("exception_stats") or {}, *(facts.get("reward_stats") or {}).values()]
        for group in groups:
            for names in group.values() if isinstance(group, dict) else ():
                yield from ((str(name), label) for name in names)


def _rewards(result: _TrialResult) -> dict[str, Any]:
    """Rewards by name. The oldest versions had one reward without a name."""
    verified = result.verifier_result or {}
    rewards = verified.get("rewards")
    if isinstance(rewards, dict):
        return rewards
    return {"reward": verified["reward"]} if verified.get("reward") is not None else {}


def _trial(result: _TrialResult, folder: Path, metric: str | None) -> ImportedTrial:
    from penstock_jobs.benchmarks.audit import audit  # it loads the importers of sessions

    notes: list[str] = []
    usages, timings = _parts(result, "agent_result"), _parts(result, "agent_execution")
    info, job = result.agent_info or {}, str(folder.parent)
    name, version = (str(info.get(key) or "") for key in ("name", "version"))
    model = (info.get("model_info") or {}).get("name") or ""
    prompt, completion = (_sum(getattr(usage, name) for usage in usages) for name in _TOKENS)
    return ImportedTrial(
        task=result.task_name,
        outcome=_outcome(result, metric, notes),
        measures=reported_tokens(prompt, completion, notes)
        | {
            "cost_usd": _sum(usage.cost_usd for usage in usages),
            "latency_s": _sum(
                seconds_between(each.started_at, each.finished_at) for each in timings
            ),
        },
        identity=result.id or (job, result.trial_name),
        trial=result.id,
        where=f"{folder.parent.name}/{result.trial_name}",
        label=(name, str(model), result.source or "adhoc"),
        harness=Harness(name=shortened(name), version=shortened(version)) if name else None,
        run=job,
        started=result.started_at or "",
        name=result.trial_name,
        notes=notes,
        audit=audit.audit_of(result.task_name, audit.read_transcript(folder / "agent")),
    )


def _outcome(result: _TrialResult, metric: str | None, notes: list[str]) -> float | str:
    rewards = _rewards(result)
    parts = [result, *(result.step_results or ())]
    exceptions = [part.exception_info for part in parts if part.exception_info is not None]
    for exception in exceptions:
        if exception.exception_type not in _ITS_OWN:
            if metric in rewards:
                notes.append("a trial that failed by itself has a reward: it is an error")
            return shortened(f"{exception.exception_type}: {exception.exception_message}")
    kinds = sorted({exception.exception_type for exception in exceptions})
    if metric is None or metric not in rewards:
        ending = f" after {', '.join(kinds)}" if kinds else ""
        return f"it has no {f'reward {metric}' if metric else 'reward'}{ending}"
    for kind in kinds:
        notes.append(f"a trial that ended by {shortened(kind)} counts as scored")
        if rewards[metric]:
            notes.append(f"a trial that ended by {shortened(kind)} has a reward all the same")
    return scored(rewards[metric])


def _parts(result: _TrialResult, name: str) -> list[Any]:
    """The member of the whole trial, else of each step that has it."""
    parts = [result] if getattr(result, name) else result.step_results or []
    return [value for part in parts if (value := getattr(part, name))]


def _sum(values: Iterable[Any]) -> Any:
    """Sum the values. None if one is missing, since a partial sum would pass for the whole."""
    parts = list(values)
    return sum(parts) if parts and all(isinstance(each, (int, float)) for each in parts) else None
