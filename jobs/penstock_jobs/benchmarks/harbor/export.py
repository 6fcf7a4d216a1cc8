"""A suite written as Harbor's tasks, of schema 1.4: for harnesses that run containers."""

import json
import sys
from hashlib import sha256
from pathlib import Path
from shlex import join, quote
from typing import Any

from penstock.core.errors import InvalidInput
from penstock.core.toml_document import toml_text
from penstock_jobs.benchmarks.sandbox.network import split
from penstock_jobs.benchmarks.sandbox.sandbox_files import IGNORED, File, write_folder
from penstock_jobs.benchmarks.suite import BenchmarkTask, Suite, load_files

#: Links and modes do not count as edits.
_TEST = Path(__file__).with_name("test.sh")


def export_tasks(suite: Suite, folder: Path) -> dict[str, str]:
    """Write a suite's tasks into a new folder. Returns why the others cannot be written."""
    if folder.exists():
        raise InvalidInput(what=str(folder), why="it is there already; name a new folder")
    left_out = dict(suite.left_out)
    for task in suite.tasks:
        if problem := _problem(task):
            left_out[task.name] = problem
            continue
        (folder / task.name).mkdir(parents=True)
        write_folder(str(folder / task.name), _files(suite, task))
    return left_out


def _problem(task: BenchmarkTask) -> str | None:
    problems = {
        "it is in Harbor's format": task.container,
        "its check passes without an edit, which no task of Harbor may do": task.expect != "edit",
        "its check reads the agent's report, and agents write none there": task.solution_report,
        "its check asks a model, which no verifier reaches": task.judged,
        "its environment is an image": task.environment and task.environment.image,
    }
    return next((problem for problem, found in problems.items() if found), None)


def _files(suite: Suite, task: BenchmarkTask) -> list[File]:
    files = load_files(task)
    limits, environment = task.limits, task.environment
    no_network = {"network_mode": "no-network"}
    hosts = sorted({split(address)[0] for address in suite.allow})
    reached = {"network_mode": "allowlist", "allowed_hosts": hosts} if hosts else no_network
    space = {"memory_mb": limits.memory_mib, "storage_mb": limits.disk_mib}
    described: dict[str, Any] = {
        "schema_version": "1.4",
        "task": {"name": f"{suite.name}/{task.name}", "description": suite.title},
        "metadata": {"tags": list(task.tags)},
        "agent": {"timeout_sec": limits.seconds},
        "verifier": {"timeout_sec": limits.check_seconds} | no_network,
        "environment": {"workdir": "/app"} | space | reached,
    }
    if environment:
        described["environment"] |= {"build_timeout_sec": environment.seconds}
    lines = [f"FROM python:{sys.version_info.major}.{sys.version_info.minor}-slim"]
    if environment:
        pairs = [text.partition("=") for text in environment.variables]
        lines += [f"ENV {name}={json.dumps(value)}" for name, _, value in pairs]
        lines += ["WORKDIR /opt/setup", *(["COPY setup/ ./"] if files.setup else [])]
        lines += [f"RUN {json.dumps(['sh', '-ec', each])}" for each in environment.setup]
    lines += ["WORKDIR /app", "COPY tree/ ./"]
    command = join(task.check_command(files, "/tests/check"))
    ignored = " -o ".join(f"-name {name}" for name in sorted(IGNORED))
    plain = [file for file in files.tree if file.kind != "link"]
    sums = sorted(f"{sha256(file.content).hexdigest()}  ./{file.path}\n" for file in plain)
    test = _TEST.read_text("utf-8").format(
        ignored=f"\\( {ignored} \\)", name=quote(task.name), command=command
    )
    written = [
        _text("task.toml", toml_text(described)),
        _text("instruction.md", task.prompt),
        _text("environment/Dockerfile", "\n".join((*lines, ""))),
        *_below("environment/tree", files.tree),
        *_below("environment/setup", files.setup),
        File("tests/test.sh", test.encode(), "program"),
        _text("tests/prompt.md", task.prompt),
        _text("tests/report.json", "{}"),
        _text("tests/tree.sums", "".join(sums)),
        *_below("tests/check", files.check),
    ]
    if files.solution is not None:
        solve = b"#!/bin/sh\ncp -RP /solution/files/. /app/\n"
        new = [file for file in files.solution if file not in files.tree]
        written += [File("solution/solve.sh", solve, "program"), *_below("solution/files", new)]
    return written


def _text(path: str, text: str) -> File:
    return File(path, text.encode())


def _below(folder: str, files: list[File]) -> list[File]:
    return [file._replace(path=f"{folder}/{file.path}") for file in files]
