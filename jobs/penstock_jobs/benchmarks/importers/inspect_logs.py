"""Logs of Inspect: a sample is a task, an epoch an attempt. Logs of one task id are tries."""

import re
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from penstock.registry.checkpoints.attempts import AttemptAudit, shortened
from penstock.registry.checkpoints.harness import Harness
from penstock_jobs.benchmarks.importers import documents
from penstock_jobs.benchmarks.importers.documents import Unfit, UnfitArchive
from penstock_jobs.benchmarks.importers.trials import (
    ImportedTrial,
    TrialCollection,
    reported_tokens,
    scored,
)

NAME = "inspect"

_HEADERS = ("header.json", "_journal/start.json")
#: A whole sample, or the part of a large one with its result.
_SAMPLE = re.compile(r"samples/(.+)_epoch_(\d+)(\.json|/sample\.json)")
_EVAL, _HEAD_BYTES = re.compile(rb'"eval"\s*:\s*\{'), 64 * 1024
#: Numbers that Inspect's metrics use for these values by default.
_VALUES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_cache_write: int | None = None
    input_tokens_cache_read: int | None = None
    total_cost: float | None = None


class _Score(msgspec.Struct):
    value: Any = None
    reason: Any = None


class _EvalSample(msgspec.Struct):
    id: int | str
    epoch: int = 1
    scores: dict[str, _Score] | None = None
    error: Any = None
    limit: Any = None
    invalidation: Any = None
    model_usage: dict[str, _Usage] | None = None
    total_time: Any = None
    turn_count: Any = None
    error_retries: list[Any] | None = None
    messages: Any = None
    audit: AttemptAudit | None = None


class _Dataset(msgspec.Struct):
    samples: int | None = None
    sample_ids: list[int | str] | None = None


class _Config(msgspec.Struct):
    epochs: int | None = None


class _Spec(msgspec.Struct):
    task: str
    model: str
    dataset: _Dataset
    config: _Config
    created: str = ""
    task_id: str = ""
    run_id: str = ""
    solver: str | None = None
    packages: dict[str, Any] = {}

    @property
    def harness(self) -> Harness:
        version = self.packages.get("inspect_ai", "")
        return Harness(
            name=shortened(self.solver or self.task), version=f"inspect_ai {version}".strip()
        )


class _Header(msgspec.Struct):
    eval: _Spec
    status: str = "started"
    error: Any = None


class _JsonLog(_Header):
    samples: list[_EvalSample] = []


@dataclass
class _Log:
    path: Path
    header: _Header
    samples: dict[tuple[str, int], _EvalSample] = field(default_factory=dict)

    def __post_init__(self) -> None:
        spec = self.header.eval
        self.run = spec.task_id or spec.run_id or str(self.path)

    def add(self, sample: _EvalSample, samples_max: int) -> None:
        if len(self.samples) == samples_max:
            raise Unfit(f"it holds more than {samples_max} samples")
        if isinstance(sample.messages, list):
            from penstock_jobs.benchmarks.audit import audit

            messages = audit.transcript_of_messages(sample.messages)
            sample.audit = audit.audit_of(str(sample.id), messages)
            sample.messages = None  # those of all samples would fill the memory
        self.samples[str(sample.id), sample.epoch] = sample


def recognises(path: Path) -> bool:
    archives = documents.files(path, suffix=".eval")
    logs = documents.files(path, suffix=".json")
    return any(map(_is_archive, archives)) or any(map(_is_json_log, logs))


def collect(trials: TrialCollection) -> None:
    evals: defaultdict[str, list[_Log]] = defaultdict(list)
    archives = documents.files(trials.path, suffix=".eval")  # whatever the name of a single file
    logs = () if trials.path.is_file() else documents.files(trials.path, suffix=".json")
    for file in (*archives, *filter(_is_json_log, logs)):
        try:
            with file.open("rb") as stream:
                zipped = stream.read(4) == b"PK\x03\x04"
            log = _read_archive(file, trials) if zipped else _read_json(file, trials)
        except Unfit as error:
            trials.leave_out("a log that cannot be read was left out", file, error)
            continue
        evals[log.run].append(log)
    names = {
        name
        for logs in evals.values()
        for log in logs
        for sample in log.samples.values()
        for name in _values(sample)
    }
    metric = trials.metric("score", names)
    for tries in evals.values():
        tries.sort(key=lambda log: (log.header.eval.created, log.path))
        _add_eval(tries, metric, trials)


def _is_archive(path: Path) -> bool:
    try:
        with documents.opened_archive(path, 0) as archive:
            return any(name in archive.names for name in _HEADERS)
    except Unfit:
        return False


def _is_json_log(path: Path) -> bool:
    """Whether a file is a log, even a truncated one: its description comes early."""
    with path.open("rb") as file:
        return _EVAL.search(file.read(_HEAD_BYTES)) is not None


def _read_archive(path: Path, trials: TrialCollection) -> _Log:
    options = trials.options
    with documents.opened_archive(path, options.unpacked_bytes_max) as archive:
        name = next((name for name in _HEADERS if name in archive.names), None)
        if name is None:
            raise Unfit("it has no header")
        header = documents.decode(archive.read(name, options.document_bytes_max), _Header)
        log = _Log(path, header)
        for name in archive.names:
            match = _SAMPLE.fullmatch(name)
            if match is None:
                continue
            try:
                text = archive.read(name, options.document_bytes_max)
                sample = documents.decode(text, _EvalSample)
            except UnfitArchive:
                raise
            except Unfit as error:
                trials.note("a sample that cannot be read is an error", f"{path.name} {name}")
                why = f"it cannot be read: {error}"
                sample = _EvalSample(id=match[1], epoch=int(match[2]), error=why)
            log.add(sample, options.attempts_max)
    return log


def _read_json(path: Path, trials: TrialCollection) -> _Log:
    options = trials.options
    document = documents.decode(documents.read(path, options.document_bytes_max), _JsonLog)
    log = _Log(path, document)
    for sample in document.samples:
        log.add(sample, options.attempts_max)
    return log


def _add_eval(logs: list[_Log], metric: str | None, trials: TrialCollection) -> None:
    last = logs[-1]
    spec, status = last.header.eval, last.header.status
    done: dict[tuple[str, int], ImportedTrial] = {}
    for log in logs:
        for key, sample in log.samples.items():
            trial = _trial(log, key, sample, metric)
            done[key] = _later(done[key], trial, trials) if key in done else trial
    epochs = spec.config.epochs or 1
    ids = map(str, spec.dataset.sample_ids or ())
    named = [(name, epoch) for name in ids for epoch in range(1, epochs + 1)]
    expected = len(named) or (spec.dataset.samples or 0) * epochs
    missing = [key for key in named if key not in done]
    unnamed = max(0, expected - len(done) - len(missing))
    if (left := len(missing) + unnamed) and status == "started":
        trials.refuse_unfinished(f"The log {last.path}", f"{left} of {expected} samples")
    if status != "success":
        text = f"{last.path.name}: {status} {_message(last.header.error)}"
        trials.note("a run did not end well", text.strip())
    if unnamed:
        trials.note("a result is missing, and nothing names it", last.path.name, unnamed)
    for key in missing:
        sample = _EvalSample(id=key[0], epoch=key[1], error=trials.ONLY_SUMMARY)
        done[key] = _trial(last, key, sample, metric)
        trials.note("a sample that only the log's header names is an error", done[key].where)
    for trial in done.values():
        trials.add(trial)


def _later(known: ImportedTrial, new: ImportedTrial, trials: TrialCollection) -> ImportedTrial:
    """Merge a later try of a trial: it keeps results of the earlier one, and repeats its errors."""
    retries = known.measures["retries"], new.measures["retries"]
    if isinstance(known.outcome, str):
        if known.result == new.result:
            return known
        trials.note("an error of an earlier try was tried again", new.where)
        return replace(new, measures={**new.measures, "retries": max(retries[1], retries[0] + 1)})
    if known.outcome != new.outcome or {**known.measures, "retries": retries[1]} != new.measures:
        return trials.neither(known, new)
    return known


def _trial(
    log: _Log, key: tuple[str, int], sample: _EvalSample, metric: str | None
) -> ImportedTrial:
    spec = log.header.eval
    notes: list[str] = []
    outcome = _outcome(sample, metric, notes)
    # Only the tested model's tokens count: other models may have graded.
    usage = (sample.model_usage or {}).get(spec.model)
    if sample.model_usage and usage is None:
        notes.append("its tokens are not told: none are of the model itself")
    measures: dict[str, Any] = {"latency_s": sample.total_time, "steps": sample.turn_count}
    measures["retries"] = len(sample.error_retries or ())
    if usage is not None:
        read = (usage.input_tokens, usage.input_tokens_cache_read, usage.input_tokens_cache_write)
        prompt = None if read == (None, None, None) else sum(count or 0 for count in read)
        measures |= reported_tokens(prompt, usage.output_tokens, notes)
        measures["cost_usd"] = usage.total_cost
    return ImportedTrial(
        task=key[0],
        outcome=outcome,
        measures=measures,
        identity=(log.run, *key),
        trial="/".join((spec.task_id, key[0], str(key[1]))) if spec.task_id else "",
        where=f"{log.path.name}, sample {key[0]}, epoch {key[1]}",
        label=(spec.task, spec.model),
        harness=spec.harness,
        run=log.run,
        index=key[1] - 1,
        size=spec.config.epochs or 1,
        started=spec.created,
        name=str(log.path),
        notes=notes,
        audit=sample.audit,
    )


def _outcome(sample: _EvalSample, metric: str | None, notes: list[str]) -> float | str:
    values = _values(sample)
    limit = sample.limit.get("type") if isinstance(sample.limit, dict) else sample.limit
    if sample.invalidation is not None:
        return "a person took it for invalid"
    if sample.error is not None:
        if values:
            notes.append("a sample with an error was scored: the error counts")
        return _message(sample.error) or "error"
    if limit == "operator":  # the model is responsible for all other limits
        return "a person stopped it"
    if metric is None or metric not in values:
        return "it was not scored" if metric is None else f"it has no score {metric}"
    if limit is not None:
        notes.append(f"a sample that came to the limit {shortened(limit)} counts as scored")
    value, reason = values[metric]
    if isinstance(value, str):
        if value == "N":
            notes.append("no answer (N) counts 0, as Inspect counts it")
        value = _VALUES.get(value, _VALUES.get(value.lower(), value))
        with suppress(ValueError):
            value = float(value)
    outcome = scored(value)
    return f"{outcome} ({shortened(reason)})" if reason and isinstance(outcome, str) else outcome


def _values(sample: _EvalSample) -> dict[str, tuple[Any, Any]]:
    values: dict[str, tuple[Any, Any]] = {}
    for name, score in (sample.scores or {}).items():
        if isinstance(score.value, dict):
            values |= {f"{name}.{key}": (part, score.reason) for key, part in score.value.items()}
        else:
            values[name] = (score.value, score.reason)
    return values


def _message(error: Any) -> str:
    if isinstance(error, dict):
        return shortened(error.get("message") or error)
    return shortened(error) if error else ""
