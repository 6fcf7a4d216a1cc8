"""Small writers of what other harnesses leave behind."""

import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import pyarrow as pa

from penstock.registry.checkpoints.attempts import Attempt
from penstock_jobs.benchmarks.importers.trials import ReadOptions, TrialCollection
from penstock_jobs.benchmarks.result_import import FORMATS, format_of

Facts = Mapping[str, Any]


def options_with(**facts: Any) -> ReadOptions:
    limits = {"document_bytes_max": 2**20, "unpacked_bytes_max": 2**24, "attempts_max": 1000}
    return ReadOptions(**(limits | facts))


@dataclass(frozen=True)
class Results:
    """What is read, and how often each kind of problem occurred, with examples."""

    attempts: list[Attempt]
    problems: dict[str, int]
    examples: dict[str, list[str]]


def read(path: Path, form: str | None = None, **facts: Any) -> Results:
    trials = TrialCollection(path, options_with(**facts))
    FORMATS[form or format_of(path)].collect(trials)
    attempts, problems = trials.attempts(), trials.problems.items()
    counts = {kind: problem.count for kind, problem in problems}
    return Results(attempts, counts, {kind: problem.examples for kind, problem in problems})


def outcomes(results: Results) -> dict[tuple[str, int], float | str | None]:
    """By task and number: the score, or the error."""
    return {one.place: one.error if one.score is None else one.score for one in results.attempts}


def write(path: Path, value: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


# Inspect


def sample(name: str | int, value: object = "C", epoch: int = 1, **facts: Any) -> dict[str, Any]:
    scores = {"match": {"value": value}} if value is not None else None
    return {"id": name, "epoch": epoch, "scores": scores, "messages": [], **facts}


def header(names: list[Any], *, status: str = "success", **facts: Any) -> dict[str, Any]:
    spec = {
        "task": "t",
        "task_id": "T1",
        "created": "2026-11-21T10:00:00+00:00",
        "model": "m/x",
        "dataset": {"samples": len(names), "sample_ids": names},
        "config": {"epochs": 1},
    } | facts
    return {"version": 2, "status": status, "eval": spec}


def eval_log(path: Path, head: Facts, samples: list[dict[str, Any]], **facts: Any) -> Path:
    """As Inspect packs it; `zstd=True` as it does since 2026."""
    name = facts.get("header", "header.json")
    entries = {name: json.dumps(head).encode()}
    for one in samples:
        text = json.dumps(one).encode()
        entries[f"samples/{one['id']}_epoch_{one['epoch']}.json"] = text
    path.parent.mkdir(parents=True, exist_ok=True)
    if facts.get("zstd"):
        path.write_bytes(zstd_archive(entries))
    else:
        with ZipFile(path, "w", ZIP_DEFLATED) as archive:
            for key, data in entries.items():
                archive.writestr(key, data)
    return path


def zstd_archive(entries: Mapping[str, bytes]) -> bytes:
    """A zip archive by method 93, each entry in two frames."""
    body, directory = b"", b""
    codec = pa.Codec("zstd")
    for name, data in entries.items():
        half = len(data) // 2
        packed = b"".join(codec.compress(part, asbytes=True) for part in (data[:half], data[half:]))
        sizes = struct.pack("<LLL", zlib.crc32(data), len(packed), len(data))
        shared = struct.pack("<HHHHH", 63, 0, 93, 0, 33) + sizes
        encoded = name.encode()
        offset = len(body)
        body += b"PK\3\4" + shared + struct.pack("<HH", len(encoded), 0) + encoded + packed
        rest = struct.pack("<HHHHHLL", len(encoded), 0, 0, 0, 0, 0, offset)
        directory += b"PK\1\2" + struct.pack("<H", 63) + shared + rest + encoded
    count = len(entries)
    end = struct.pack("<HHHHLLH", 0, 0, count, count, len(directory), len(body), 0)
    return body + directory + b"PK\5\6" + end


# Harbor


def harbor_trial(job: Path, name: str, reward: object = 1.0, **facts: Any) -> Path:
    """`name` is TASK__ID; `reward` may be several, by name."""
    task = name.rpartition("__")[0]
    rewards = reward if isinstance(reward, dict) else {"reward": reward}
    result = {
        "id": f"{job.name}-{name}",
        "task_name": task,
        "trial_name": name,
        "trial_uri": "file:///x",
        "source": "set",
        "task_checksum": "0" * 64,
        "agent_info": {"name": "terminus", "version": "1", "model_info": {"name": "x"}},
        "agent_result": {"n_input_tokens": 100, "n_output_tokens": 7, "cost_usd": 0.5},
        "verifier_result": {"rewards": rewards} if reward is not None else None,
        "exception_info": None,
        "started_at": "2026-11-21T10:00:00Z",
        "agent_execution": {
            "started_at": "2026-11-21T10:00:00Z",
            "finished_at": "2026-11-21T10:00:31.5Z",
        },
    } | facts
    return write(job / name / "result.json", result)


def harbor_config(job: Path, name: str, task: str) -> Path:
    config = {
        "trial_name": name,
        "task": {"path": f"tasks/{task}", "source": "set"},
        "agent": {"name": "terminus", "model_name": "openai/x"},
    }
    return write(job / name / "config.json", config)


def harbor_job(job: Path, total: int, **facts: Any) -> Path:
    """Its own result; `passed` and `failed` name trials in its statistics."""
    names = {"1.0": facts.pop("passed", []), "0.0": facts.pop("failed", [])}
    stats = {"reward_stats": {"reward": names}, "exception_stats": {}}
    result = {
        "id": job.name,
        "n_total_trials": total,
        "finished_at": "2026-11-21T11:00:00",
        "stats": {"evals": {"terminus__x__set": stats}},
    } | facts
    return write(job / "result.json", result)


# SWE-bench


def swe_summary(path: Path, **lists: Any) -> Path:
    names = (
        *("completed", "incomplete", "empty_patch", "submitted", "resolved"),
        *("unresolved", "error"),
    )
    every: dict[str, Any] = {f"{name}_ids": [] for name in names}
    return write(path, every | lists | {"schema_version": 2})


def swe_instance(root: Path, task: str, *, resolved: bool = True, **facts: Any) -> Path:
    folder = root / "logs" / "run_evaluation" / "run1" / "model" / task
    report = {"patch_is_None": False, "patch_exists": True, "patch_successfully_applied": True}
    write(folder / "report.json", {task: report | {"resolved": resolved} | facts})
    (folder / "run_instance.log").write_text("…", encoding="utf-8")
    return folder
