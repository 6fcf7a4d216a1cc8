"""One attempt at a task: the agent in a room, then the check. This is what runs on a worker."""

import os
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Annotated

import msgspec

from penstock.checkpoints.attempt import Attempt
from penstock_jobs.benchmarks.errors import AgentUnusable, SandboxFailed
from penstock_jobs.benchmarks.sandbox import isolated
from penstock_jobs.benchmarks.sandbox.folder_files import File
from penstock_jobs.benchmarks.sandbox.isolated import IsolatedSandbox
from penstock_jobs.benchmarks.sandbox.network import address_of
from penstock_jobs.benchmarks.sandbox.sandbox import (
    PathRules,
    PlainSandbox,
    ProgramEnd,
    Sandbox,
    SandboxLimits,
    SandboxProgram,
)
from penstock_jobs.benchmarks.suite import BenchmarkTask, TaskFiles, TaskLimits

_MIB = 1024 * 1024
_SEEDS = 2**31
_ERROR_CHARS_MAX = 500
_REPORT_NAME, _RESULT_NAME = "report.json", "result.json"
_RESULT_BYTES_MAX = 64 * 1024
_WHY_CHARS_MAX = 300
#: Of a shell: a command that is not there, or is no program.
_NOT_RUN = (126, 127)
#: EX_TEMPFAIL of sysexits.h: try again.
_TRY_AGAIN = 75

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Amount = Annotated[float, msgspec.Meta(ge=0, lt=2**63)]


@dataclass(frozen=True)
class RunConditions:
    """The same for all attempts of a run."""

    agent: str
    suite: str
    checkpoint: str
    serving: str | None = None
    #: What of the caller's environment the agent gets besides.
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    allow: Sequence[str] = ()
    isolated: bool = True
    views: PathRules = field(default_factory=PathRules)
    tries_max: int = 3
    retry_seconds: float = 1.0
    output_bytes_max: int = 64 * 1024
    report_bytes_max: int = 64 * 1024


@dataclass(frozen=True)
class AttemptTask:
    """An attempt as a worker gets it."""

    conditions: RunConditions
    task: BenchmarkTask = field(repr=False)
    files: TaskFiles = field(repr=False)
    name: str
    attempt: int


@dataclass(frozen=True)
class AttemptOutcome:
    result: Attempt
    #: What else people should know: that it was cut off, and by what.
    marks: tuple[str, ...] = ()
    output: str = ""
    #: The end of the output of an agent that failed without a report and without an edit.
    silent: str | None = None


class AgentReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent wrote to $PENSTOCK_REPORT. All of it is optional; more may stand there, for
    the check."""

    completion_tokens: _Count | None = None
    prompt_tokens: _Count | None = None
    cost_usd: _Amount | None = None
    steps: _Count | None = None
    tool_calls: _Count | None = None
    invalid_tool_calls: _Count | None = None
    asked: bool | None = None
    answer: str | None = None
    #: Why the attempt says nothing about the model.
    error: str | None = None


@dataclass(frozen=True)
class TreeScore:
    """Either a score, or why there is none."""

    score: float | None = None
    error: str | None = None
    output: str = ""


@dataclass(frozen=True)
class _Try:
    scored: TreeScore
    #: The reason may lie outside the model, so that another try may do better.
    again: bool = False
    report: AgentReport = field(default_factory=AgentReport)
    latency_s: float | None = None
    edited: bool | None = None
    marks: tuple[str, ...] = ()
    silent: str | None = None


class _CheckResult(msgspec.Struct):
    score: float


def seed_of(suite: str, task: str, attempt: int) -> int:
    """The same for every checkpoint, so that all have the same luck."""
    digest = sha256(f"{suite}\0{task}\0{attempt}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % _SEEDS


def attempt_task(work: AttemptTask) -> AttemptOutcome:
    """Raises IsolationImpossible, AgentUnusable."""
    conditions = work.conditions
    if conditions.isolated:
        isolated.check_isolation()
    retries = 0
    while True:
        last_try = _try(work)
        if not last_try.again or retries + 1 >= conditions.tries_max:
            return _outcome(work, last_try, retries)
        time.sleep(conditions.retry_seconds * 2**retries)
        retries += 1


def open_room(conditions: RunConditions, limits: TaskLimits) -> Sandbox:
    room_limits = SandboxLimits(
        memory_bytes=limits.memory_mib * _MIB,
        processes=limits.processes,
        disk_bytes=limits.disk_mib * _MIB,
    )
    if conditions.isolated:
        return IsolatedSandbox(room_limits, conditions.views, conditions.output_bytes_max)
    return PlainSandbox(room_limits, conditions.output_bytes_max)


def _try(work: AttemptTask) -> _Try:
    try:
        with open_room(work.conditions, work.task.limits) as room:
            return _try_in(room, work)
    except SandboxFailed as error:
        return _Try(TreeScore(error=str(error)), again=True)


def _try_in(room: Sandbox, work: AttemptTask) -> _Try:
    ended = _run_agent(room, work)
    last_words = ended.output.strip()[-_ERROR_CHARS_MAX:]
    if ended.status in _NOT_RUN:
        status = f"its command could not be run, and ended with status {ended.status}"
        raise AgentUnusable(why=f"{status}: {last_words}")
    text = room.read("out", _REPORT_NAME, work.conditions.report_bytes_max)
    try:
        report = read_report(text)
    except ValueError as error:
        return _Try(TreeScore(error=f"the agent's report cannot be read: {error}"), again=True)
    if why := _why_no_attempt(ended, report):
        return _Try(TreeScore(error=why, output=ended.output), True, report, ended.seconds)
    edited = bool(room.changed("tree"))
    return _Try(
        scored=score_tree(room, work.task, work.files, text, edited=edited),
        report=report,
        latency_s=ended.seconds,
        edited=edited,
        marks=_marks(ended),
        silent=_short(last_words) if ended.status and not (text or edited) else None,
    )


def _run_agent(room: Sandbox, work: AttemptTask) -> ProgramEnd:
    conditions, task = work.conditions, work.task
    room.put("tree", work.files.tree, writable=True)
    room.put("given", [File("prompt.md", task.prompt.encode())], writable=False)
    for folder in ("out", "home", "scratch"):
        room.put(folder, [], writable=True)
    serving = {"PENSTOCK_MODEL_URL": conditions.serving} if conditions.serving else {}
    environment = {
        **machine_environment(),
        **conditions.environment,
        "HOME": room.path("home"),
        "PENSTOCK_PROMPT_FILE": f"{room.path('given')}/prompt.md",
        **serving,
        "PENSTOCK_CHECKPOINT": conditions.checkpoint,
        "PENSTOCK_SUITE": conditions.suite,
        "PENSTOCK_TASK": work.name,
        "PENSTOCK_ATTEMPT": str(work.attempt),
        "PENSTOCK_SEED": str(seed_of(conditions.suite, work.name, work.attempt)),
        "PENSTOCK_REPORT": f"{room.path('out')}/{_REPORT_NAME}",
    }
    addresses = [address_of(conditions.serving)] if conditions.serving else []
    return room.run(
        SandboxProgram(
            command=["sh", "-c", conditions.agent],
            cwd="tree",
            home="home",
            scratch="scratch",
            seconds=task.limits.seconds,
            environment=environment,
            folders={"tree": True, "given": False, "out": True},
            addresses=[*addresses, *conditions.allow],
        )
    )


def machine_environment() -> dict[str, str]:
    """What of this process's environment programs in rooms get."""
    names = ("PATH", "LANG")
    return {"PATH": os.defpath} | {name: os.environ[name] for name in names if name in os.environ}


def read_report(text: bytes | None) -> AgentReport:
    """Raises ValueError."""
    try:
        return msgspec.json.decode(text, type=AgentReport) if text else AgentReport()
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _why_no_attempt(ended: ProgramEnd, report: AgentReport) -> str | None:
    """Why it says nothing about the model."""
    if report.error is not None:
        return f"the agent says: {report.error}"
    if ended.status == _TRY_AGAIN:
        return "the agent ended with status 75: try again"
    if ended.unreachable:
        return f"nobody answered at {', '.join(ended.unreachable)}"
    return None


def _marks(ended: ProgramEnd) -> tuple[str, ...]:
    if ended.cut is not None:
        return ({"time": "timed out", "memory": "over its memory"}[ended.cut],)
    return (f"the agent ended with status {ended.status}",) if ended.status else ()


def _outcome(work: AttemptTask, last_try: _Try, retries: int) -> AttemptOutcome:
    report, scored = msgspec.structs.asdict(last_try.report), last_try.scored
    result = Attempt(
        task=work.name,
        attempt=work.attempt,
        score=scored.score,
        error=None if scored.error is None else _short(scored.error),
        latency_s=last_try.latency_s,
        edited=last_try.edited,
        retries=retries,
        **{name: value for name, value in report.items() if name not in ("answer", "error")},
    )
    return AttemptOutcome(result, last_try.marks, scored.output, last_try.silent)


def _short(text: str) -> str:
    plain = "".join(char if char.isprintable() else " " for char in text)
    return plain if len(plain) <= _ERROR_CHARS_MAX else plain[: _ERROR_CHARS_MAX - 1] + "…"


def score_tree(
    room: Sandbox, task: BenchmarkTask, files: TaskFiles, report: bytes | None, *, edited: bool
) -> TreeScore:
    """Of the room's folder `tree` as the agent left it. The check comes into the room only now.
    Raises RoomFailed."""
    if task.expect == "no_edit" and edited:
        return TreeScore(score=0.0, output="it was not to change anything, and did")
    if task.check is None:
        return TreeScore(score=1.0)
    # Under a name that the agent could not know: it may have left links.
    check = f"check-{secrets.token_hex(8)}"
    given, result = f"{check}-given", f"{check}-result"
    home, scratch = f"{check}-home", f"{check}-tmp"
    room.put(check, files.check, writable=False)
    documents = [File("prompt.md", task.prompt.encode()), File("report.json", report or b"{}")]
    room.put(given, documents, writable=False)
    for folder in (result, home, scratch):
        room.put(folder, [], writable=True)
    environment = machine_environment() | {
        "HOME": room.path(home),
        "PENSTOCK_CHECK": room.path(check),
        "PENSTOCK_PROMPT_FILE": f"{room.path(given)}/prompt.md",
        "PENSTOCK_REPORT": f"{room.path(given)}/report.json",
        "PENSTOCK_RESULT": f"{room.path(result)}/{_RESULT_NAME}",
        "PENSTOCK_TASK": task.name,
        "PENSTOCK_EDITED": "1" if edited else "0",
    }
    program = SandboxProgram(
        command=_in_folder(task.check, files.check, room.path(check)),
        cwd="tree",
        home=home,
        scratch=scratch,
        seconds=task.limits.check_seconds,
        environment=environment,
        folders={"tree": True, check: False, given: False, result: True},
        # An agent that filled the disk does not keep its check from running.
        disk_bytes_more=task.limits.disk_mib * _MIB,
    )
    ended = room.run(program)
    return score_of(ended, room.read(result, _RESULT_NAME, _RESULT_BYTES_MAX))


def _in_folder(command: Sequence[str], check: Sequence[File], folder: str) -> list[str]:
    """The first file of the check that a command names is meant there, not in the tree."""
    paths = {file.path for file in check}
    number = next((number for number, word in enumerate(command) if word in paths), None)
    words = list(command)
    if number is not None:
        words[number] = f"{folder}/{words[number]}"
    return words


def score_of(ended: ProgramEnd, result: bytes | None) -> TreeScore:
    """By how the check ended, and what it wrote. All that is neither a pass nor a fail is an
    error."""
    output = ended.output
    if ended.cut is not None:
        limit = {"time": "its time", "memory": "its memory"}[ended.cut]
        return TreeScore(error=f"the check went over {limit}", output=output)
    if ended.status not in (0, 1):
        lines = output.strip().splitlines()
        last_line = lines[-1][:_WHY_CHARS_MAX] if lines else "it said nothing"
        why = f"the check ended with status {ended.status}: {last_line}"
        return TreeScore(error=why, output=output)
    if result is None:
        return TreeScore(score=1.0 if ended.status == 0 else 0.0, output=output)
    try:
        score = msgspec.json.decode(result, type=_CheckResult).score
    except (ValueError, RecursionError) as error:
        return TreeScore(error=f"the check's result cannot be read: {error}", output=output)
    if not 0 <= score <= 1:
        why = f"the check's score is {score}, and scores lie between 0 and 1"
        return TreeScore(error=why, output=output)
    return TreeScore(score=score, output=output)
