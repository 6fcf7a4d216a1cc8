"""One attempt at a task: the agent in a room, then the check. This is what runs on a worker."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from penstock.checkpoints.attempt import Attempt
from penstock_jobs.benchmarks.errors import AgentMissing, RoomFailed
from penstock_jobs.benchmarks.report import AgentReport, read_report
from penstock_jobs.benchmarks.sandbox import Bounds, Ended, Program, Room, Views, isolated
from penstock_jobs.benchmarks.sandbox.addresses import address_of
from penstock_jobs.benchmarks.sandbox.files import File
from penstock_jobs.benchmarks.sandbox.isolated import IsolatedRoom
from penstock_jobs.benchmarks.sandbox.plain import PlainRoom
from penstock_jobs.benchmarks.scoring import Scored, machine_environment, score_tree
from penstock_jobs.benchmarks.suite import Limits, Task, TaskFiles

_MIB = 1024 * 1024
_SEEDS = 2**31
_ERROR_CHARS_MAX = 500
_REPORT_NAME = "report.json"
#: By a shell: a command that is not there, or is no program.
_NOT_RUN = (126, 127)
#: EX_TEMPFAIL of sysexits.h: try again.
_TRY_AGAIN = 75


@dataclass(frozen=True)
class Conditions:
    """The same for all attempts of a run."""

    agent: str
    suite: str
    checkpoint: str
    serving: str | None = None
    #: What of the caller's environment the agent gets besides.
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    allow: Sequence[str] = ()
    isolated: bool = True
    views: Views = field(default_factory=Views)
    tries_max: int = 3
    retry_seconds: float = 1.0
    output_bytes_max: int = 64 * 1024
    report_bytes_max: int = 64 * 1024


@dataclass(frozen=True)
class Work:
    """An attempt as a worker gets it."""

    conditions: Conditions
    task: Task = field(repr=False)
    files: TaskFiles = field(repr=False)
    name: str
    attempt: int


@dataclass(frozen=True)
class Outcome:
    result: Attempt
    #: What else is to be said of it: that it was cut off, and by what.
    marks: tuple[str, ...] = ()
    output: str = ""
    #: The end of what an agent said that failed without a report and without an edit.
    silent: str | None = None


@dataclass(frozen=True)
class _Try:
    scored: Scored
    #: Whether the reason lies outside the model, so that another try may do better.
    again: bool = False
    report: AgentReport = field(default_factory=AgentReport)
    latency_s: float | None = None
    edited: bool | None = None
    marks: tuple[str, ...] = ()
    silent: str | None = None


def seed_of(suite: str, task: str, attempt: int) -> int:
    """The same for every checkpoint, so that they meet the same luck."""
    digest = sha256(f"{suite}\0{task}\0{attempt}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % _SEEDS


def attempt_task(work: Work) -> Outcome:
    """Raises IsolationImpossible, AgentMissing."""
    conditions = work.conditions
    if conditions.isolated:
        isolated.check()
    retries = 0
    while True:
        found = _try(work)
        if not found.again or retries + 1 >= conditions.tries_max:
            return _outcome(work, found, retries)
        time.sleep(conditions.retry_seconds * 2**retries)
        retries += 1


def _try(work: Work) -> _Try:
    try:
        with open_room(work.conditions, work.task.limits) as room:
            return _try_in(room, work)
    except RoomFailed as error:
        return _Try(Scored(error=str(error)), again=True)


def open_room(conditions: Conditions, limits: Limits) -> Room:
    bounds = Bounds(
        memory_bytes=limits.memory_mib * _MIB,
        processes=limits.processes,
        disk_bytes=limits.disk_mib * _MIB,
    )
    if conditions.isolated:
        return IsolatedRoom(bounds, conditions.views, conditions.output_bytes_max)
    return PlainRoom(bounds, conditions.output_bytes_max)


def _try_in(room: Room, work: Work) -> _Try:
    ended = _run_agent(room, work)
    if ended.status in _NOT_RUN:
        raise AgentMissing(status=ended.status, output=ended.output.strip()[-_ERROR_CHARS_MAX:])
    text = room.read("out", _REPORT_NAME, work.conditions.report_bytes_max)
    try:
        report = read_report(text)
    except ValueError as error:
        return _Try(Scored(error=f"the agent's report cannot be read: {error}"), again=True)
    if why := _why_no_attempt(ended, report):
        return _Try(Scored(error=why, output=ended.output), True, report, ended.seconds)
    edited = bool(room.changed("tree"))
    scored = score_tree(room, work.task, work.files, text, edited=edited)
    return _Try(
        scored=scored,
        report=report,
        latency_s=ended.seconds,
        edited=edited,
        marks=_marks(ended),
        silent=_last_words(ended) if ended.status and not (text or edited) else None,
    )


def _run_agent(room: Room, work: Work) -> Ended:
    conditions, task = work.conditions, work.task
    room.put("tree", work.files.tree, writable=True)
    room.put("given", [File("prompt.md", task.prompt.encode())], writable=False)
    for folder in ("out", "home", "scratch"):
        room.put(folder, [], writable=True)
    serving = [address_of(conditions.serving)] if conditions.serving else []
    return room.run(
        Program(
            command=["sh", "-c", conditions.agent],
            cwd="tree",
            home="home",
            scratch="scratch",
            seconds=task.limits.seconds,
            environment=_environment(room, work),
            folders={"tree": True, "given": False, "out": True},
            addresses=[*serving, *conditions.allow],
        )
    )


def _environment(room: Room, work: Work) -> dict[str, str]:
    conditions = work.conditions
    serving = {"PENSTOCK_MODEL_URL": conditions.serving} if conditions.serving else {}
    return {
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


def _why_no_attempt(ended: Ended, report: AgentReport) -> str | None:
    """Why it says nothing about the model."""
    if report.error is not None:
        return f"the agent says: {report.error}"
    if ended.status == _TRY_AGAIN:
        return "the agent ended with status 75: try again"
    if ended.unreachable:
        return f"nobody answered at {', '.join(ended.unreachable)}"
    return None


def _marks(ended: Ended) -> tuple[str, ...]:
    if ended.cut is not None:
        return ({"time": "timed out", "memory": "over its memory"}[ended.cut],)
    return (f"the agent ended with status {ended.status}",) if ended.status else ()


def _last_words(ended: Ended) -> str:
    return _short(ended.output.strip()[-_ERROR_CHARS_MAX:])


def _outcome(work: Work, found: _Try, retries: int) -> Outcome:
    report, scored = found.report, found.scored
    result = Attempt(
        task=work.name,
        attempt=work.attempt,
        score=scored.score,
        error=None if scored.error is None else _short(scored.error),
        completion_tokens=report.completion_tokens,
        prompt_tokens=report.prompt_tokens,
        cost_usd=report.cost_usd,
        latency_s=found.latency_s,
        steps=report.steps,
        tool_calls=report.tool_calls,
        invalid_tool_calls=report.invalid_tool_calls,
        edited=found.edited,
        asked=report.asked,
        retries=retries,
    )
    return Outcome(result, found.marks, scored.output, found.silent)


def _short(text: str) -> str:
    plain = "".join(one if one.isprintable() else " " for one in text)
    return plain if len(plain) <= _ERROR_CHARS_MAX else plain[: _ERROR_CHARS_MAX - 1] + "…"
