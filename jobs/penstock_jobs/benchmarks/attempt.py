"""The work of a worker: an attempt at a task, with the agent in a sandbox and then the check."""

import os
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Annotated, Any, NamedTuple

import msgspec

from penstock.core.errors import PenstockError
from penstock.core.settings import MIB
from penstock.registry.checkpoints.attempts import Attempt
from penstock_jobs.benchmarks.environments.environment import with_variables
from penstock_jobs.benchmarks.environments.layers import Layer
from penstock_jobs.benchmarks.sandbox import sandbox as sandboxes
from penstock_jobs.benchmarks.sandbox.network import address_of
from penstock_jobs.benchmarks.sandbox.sandbox import (
    PathRules,
    ProgramEnd,
    Sandbox,
    SandboxFailed,
    SandboxProgram,
)
from penstock_jobs.benchmarks.sandbox.sandbox_files import File
from penstock_jobs.benchmarks.suite import BenchmarkTask, TaskFiles, TaskLimits

_ERROR_CHARS_MAX = 500
_REPORT_NAME, _RESULT_NAME = "report.json", "result.json"

_CHECK_RESULT: Any = msgspec.defstruct("CheckResult", [("score", float)])
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Amount = Annotated[float, msgspec.Meta(ge=0, lt=2**63)]


class AgentUnusable(PenstockError, exit_status=2):
    """The agent cannot be used: {why}. Nothing was recorded. In its sandbox an agent sees the
    machine's programs, files that its command names by absolute paths, the paths of --visible, and
    its own copy of the tree."""


@dataclass(frozen=True)
class RunConditions:
    """The conditions that all attempts of a run share."""

    agent: str
    suite: str
    checkpoint: str
    serving: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    allow: Sequence[str] = ()
    isolated: bool = True
    views: PathRules = field(default_factory=PathRules)
    #: Tries of an attempt that fails for reasons outside the model. Pauses double.
    tries_max: int = 3
    retry_seconds: float = 1.0
    output_bytes_max: int = 64 * 1024
    report_bytes_max: int = 256 * 1024


@dataclass(frozen=True)
class AttemptTask:
    conditions: RunConditions
    task: BenchmarkTask = field(repr=False)
    files: TaskFiles = field(repr=False)
    attempt: int
    layer: Layer | None = None


@dataclass(frozen=True)
class AttemptOutcome:
    result: Attempt
    #: Remarks for people, such as a limit that ended it.
    marks: tuple[str, ...] = ()
    output: str = ""
    #: The end of the output of an agent that failed without a report and without an edit.
    silent: str | None = None


class AgentReport(msgspec.Struct, frozen=True, kw_only=True):
    """The agent's report, written to $PENSTOCK_REPORT. The check gets all of it."""

    completion_tokens: _Count | None = None
    prompt_tokens: _Count | None = None
    cost_usd: _Amount | None = None
    steps: _Count | None = None
    tool_calls: _Count | None = None
    invalid_tool_calls: _Count | None = None
    asked: bool | None = None
    answer: str | None = None
    #: The reason why the attempt says nothing about the model.
    error: str | None = None


@dataclass(frozen=True)
class TreeScore:
    score: float | None = None
    error: str | None = None
    output: str = ""


def seed_of(suite: str, task: str, attempt: int) -> int:
    """The seed of an attempt. It is the same for every checkpoint, so all have the same luck."""
    digest = sha256(f"{suite}\0{task}\0{attempt}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % 2**31


def attempt_task(work: AttemptTask) -> AttemptOutcome:
    conditions = work.conditions
    if conditions.isolated:
        sandboxes.check_isolation()
    for retries in range(conditions.tries_max):
        if retries:
            time.sleep(conditions.retry_seconds * 2 ** (retries - 1))
        try:
            with open_sandbox(conditions, work.task.limits, work.layer) as sandbox:
                outcome, retry = _attempt_in(sandbox, work)
        except SandboxFailed as error:
            outcome, retry = _failed(work, str(error)), True
        if not retry:
            break
    return replace(outcome, result=replace(outcome.result, retries=retries))


def open_sandbox(
    conditions: RunConditions, limits: TaskLimits, layer: Layer | None = None
) -> Sandbox:
    memory_bytes, disk_bytes = limits.memory_mib * MIB, limits.disk_mib * MIB
    bounds = sandboxes.SandboxLimits(memory_bytes, limits.processes, disk_bytes)
    if conditions.isolated:
        how = conditions.views, conditions.output_bytes_max
        return sandboxes.IsolatedSandbox(bounds, *how, layer.root() if layer else None)
    return sandboxes.PlainSandbox(bounds, conditions.output_bytes_max)


def _attempt_in(sandbox: Sandbox, work: AttemptTask) -> tuple[AttemptOutcome, bool]:
    """Make an attempt. Returns its outcome, and whether another try may do better."""
    ended = _run_agent(sandbox, work)
    last_words = ended.output.strip()[-_ERROR_CHARS_MAX:]
    if ended.status in (126, 127):  # the shell: no such command, or not a program
        why = f"its command could not be run, and ended with status {ended.status}: {last_words}"
        raise AgentUnusable(why=why)
    text = sandbox.read("out", _REPORT_NAME, work.conditions.report_bytes_max)
    try:
        report = msgspec.json.decode(text, type=AgentReport) if text else AgentReport()
    except (ValueError, RecursionError) as error:
        return _failed(work, f"the agent's report cannot be read: {error}"), True
    measures = msgspec.structs.asdict(report) | {"latency_s": ended.seconds}
    del measures["answer"], measures["error"]
    problem = None
    if report.error is not None:
        problem = f"the agent says: {report.error}"
    elif ended.status == os.EX_TEMPFAIL:
        problem = "the agent exited with 75: try again"
    elif ended.unreachable:
        problem = f"no answer from {', '.join(ended.unreachable)}"
    if problem is not None:
        return _failed(work, problem, ended.output, **measures), True
    edited = bool(sandbox.changed("tree"))
    verdict = score_tree(sandbox, work.task, work.files, text, edited=edited, layer=work.layer)
    measures |= {"edited": edited, "score": verdict.score}
    measures["error"] = verdict.error and _short(verdict.error)
    result = Attempt(task=work.task.name, attempt=work.attempt, **measures)
    marks = []
    if ended.cut is not None:
        marks.append({"time": "timed out", "memory": "over its memory"}[ended.cut])
    elif ended.status:
        marks.append(f"the agent ended with status {ended.status}")
    if places := ", ".join(ended.uncovered):
        marks.append(f"it could open no Unix socket: {places} cannot be covered by an overlay")
    silent = _short(last_words) if ended.status and not (text or edited) else None
    return AttemptOutcome(result, tuple(marks), verdict.output, silent), False


def _failed(work: AttemptTask, error: str, output: str = "", **measures: Any) -> AttemptOutcome:
    result = Attempt(task=work.task.name, attempt=work.attempt, error=_short(error), **measures)
    return AttemptOutcome(result, output=output)


def _run_agent(sandbox: Sandbox, work: AttemptTask) -> ProgramEnd:
    conditions, task = work.conditions, work.task
    sandbox.put("tree", work.files.tree, writable=True)
    sandbox.put("given", [File("prompt.md", task.prompt.encode())], writable=False)
    for folder in ("out", "home", "scratch"):
        sandbox.put(folder, [], writable=True)
    environment = {
        **_machine(work.layer),
        **conditions.environment,
        "PENSTOCK_PROMPT_FILE": f"{sandbox.path('given')}/prompt.md",
        "PENSTOCK_CHECKPOINT": conditions.checkpoint,
        "PENSTOCK_SUITE": conditions.suite,
        "PENSTOCK_TASK": task.name,
        "PENSTOCK_ATTEMPT": str(work.attempt),
        "PENSTOCK_SEED": str(seed_of(conditions.suite, task.name, work.attempt)),
        "PENSTOCK_REPORT": f"{sandbox.path('out')}/{_REPORT_NAME}",
    }
    addresses = [*conditions.allow]
    if conditions.serving:
        environment["PENSTOCK_MODEL_URL"] = conditions.serving
        addresses.insert(0, address_of(conditions.serving))
    places, folders = ("tree", "home", "scratch"), {"tree": True, "given": False, "out": True}
    how = task.limits.seconds, _environment(sandbox, "home", environment)
    command = ["sh", "-c", conditions.agent]
    return sandbox.run(SandboxProgram(command, *places, *how, folders, addresses))


def _environment(sandbox: Sandbox, home: str, more: Mapping[str, str]) -> dict[str, str]:
    return {**more, "HOME": sandbox.path(home)}


def _machine(layer: Layer | None) -> dict[str, str]:
    """The variables of the machine for agents and checks, then their environment's."""
    machine = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    return with_variables(layer.variables if layer else (), {"PATH": os.defpath} | machine)


def _short(text: str) -> str:
    plain = "".join(char if char.isprintable() else " " for char in text)
    return plain if len(plain) <= _ERROR_CHARS_MAX else plain[: _ERROR_CHARS_MAX - 1] + "…"


def score_tree(
    sandbox: Sandbox,
    task: BenchmarkTask,
    files: TaskFiles,
    report: bytes | None,
    *,
    edited: bool,
    layer: Layer | None = None,
) -> TreeScore:
    """Score the agent's tree. The check comes into the sandbox only now."""
    if task.expect == "no_edit" and edited:
        return TreeScore(score=0.0, output="nothing was to be edited, but something was")
    if task.check is None:
        return TreeScore(score=1.0)
    # The agent could not know this name, so none of its links leads there.
    check = f"check-{secrets.token_hex(8)}"
    given, result = f"{check}-given", f"{check}-result"
    home, scratch = f"{check}-home", f"{check}-tmp"
    sandbox.put(check, files.check, writable=False)
    documents = [File("prompt.md", task.prompt.encode()), File("report.json", report or b"{}")]
    sandbox.put(given, documents, writable=False)
    for folder in (result, home, scratch):
        sandbox.put(folder, [], writable=True)
    environment = _machine(layer) | {
        "PENSTOCK_CHECK": sandbox.path(check),
        "PENSTOCK_PROMPT_FILE": f"{sandbox.path(given)}/prompt.md",
        "PENSTOCK_REPORT": f"{sandbox.path(given)}/report.json",
        "PENSTOCK_RESULT": f"{sandbox.path(result)}/{_RESULT_NAME}",
        "PENSTOCK_TASK": task.name,
        "PENSTOCK_EDITED": "1" if edited else "0",
    }
    # The first word that names a file of the check means that file, not one of the tree.
    command = list(task.check)
    paths = {file.path for file in files.check}
    number = next((number for number, word in enumerate(command) if word in paths), None)
    if number is not None:
        command[number] = f"{sandbox.path(check)}/{command[number]}"
    places, folders = ("tree", home, scratch), {"tree": True, check: False, given: False}
    how = task.limits.check_seconds, _environment(sandbox, home, environment)
    # The check can run even if the agent filled the disk.
    more = task.limits.disk_mib * MIB
    program = SandboxProgram(command, *places, *how, folders | {result: True}, (), more)
    return score_of(sandbox.run(program), sandbox.read(result, _RESULT_NAME, 64 * 1024))


def score_of(ended: ProgramEnd, result: bytes | None) -> TreeScore:
    """Read a check's score from its exit status and result. Anything else is an error."""
    score, why = None, None
    if ended.cut is not None:
        why = f"the check went over its {ended.cut}"
    elif ended.status not in (0, 1):
        lines = ended.output.strip().splitlines()
        last_line = lines[-1][:300] if lines else "it said nothing"
        why = f"the check ended with status {ended.status}: {last_line}"
    elif result is None:
        score = 1.0 if ended.status == 0 else 0.0
    else:
        try:
            score = msgspec.json.decode(result, type=_CHECK_RESULT).score
        except (ValueError, RecursionError) as error:
            why = f"the check's result cannot be read: {error}"
        if score is not None and not 0 <= score <= 1:
            score, why = None, f"the check's score is {score}, not between 0 and 1"
    return TreeScore(score, why, ended.output)


# Lint: untouched trees must fail and solutions pass, twice

_EDIT = File("penstock-lint-edit.txt", b"an edit that nobody asked for\n")
#: Marks of comments and strings, which are ignored.
_MARKS = "#/*\"'- "


class LintTask(NamedTuple):
    conditions: RunConditions
    task: BenchmarkTask
    files: TaskFiles
    solution: list[File] | None
    layer: Layer | None = None


def lint_task(work: LintTask) -> list[str]:
    if work.conditions.isolated:
        sandboxes.check_isolation()
    return [*_visible_problems(work.task, work.files), *_check_problems(work)]


def _visible_problems(task: BenchmarkTask, files: TaskFiles) -> Iterator[str]:
    if not files.tree:
        yield "its tree is empty"
    size = sum(len(file.content) for file in files.tree)
    if size > task.limits.disk_mib * MIB // 2:
        yield f"its tree has {size} bytes, over half of its disk_mib = {task.limits.disk_mib}"
    contents = {file.content for file in files.check if file.content.strip()}
    for file in files.tree:
        if file.path.rsplit("/", 1)[-1] in ("task.toml", "solution.json"):
            yield f"{file.path} is in its tree, where the agent sees it"
        elif file.content in contents:
            yield f"{file.path} in its tree is a file of its check"
    prompt = " ".join(task.prompt.split())
    check = "\n".join(file.content.decode(errors="replace") for file in files.check)
    lines = (" ".join(line.split()).strip(_MARKS) for line in check.splitlines())
    for line in lines:
        if len(line) >= 40 and line in prompt:  # shorter lines reveal nothing
            yield f"its prompt contains a line of its check: {line!r}"
            break


def _check_problems(work: LintTask) -> Iterator[str]:
    task, tree = work.task, work.files.tree

    def contradictions(first: TreeScore, second: TreeScore) -> Iterator[str]:
        if first.score != second.score:
            verdicts = f"it {_verdict(first)}, then {_verdict(second)}"
            yield f"its check judges one tree in two ways: {verdicts}"

    untouched = _score_copy(work, tree)
    yield from contradictions(untouched, _score_copy(work, tree))
    if task.expect == "no_edit":
        if untouched.score != 1:
            yield f"nothing is to be edited, but an untouched tree {_verdict(untouched)}"
        edited = _score_copy(work, [*tree, _EDIT])
        if edited.score != 0:
            yield f"nothing is to be edited, but an edited tree {_verdict(edited)}"
        return
    if untouched.score is None or untouched.score >= 1:
        yield f"an untouched tree must fail its check, but {_verdict(untouched)}"
    if work.solution is not None:
        solved = _score_copy(work, work.solution, task.solution_report)
        if solved.score != 1:
            yield f"its solution must pass its check, but {_verdict(solved)}"
        yield from contradictions(solved, _score_copy(work, work.solution, task.solution_report))


def _verdict(tree_score: TreeScore) -> str:
    if tree_score.error is not None:
        return f"gets no score ({tree_score.error})"
    score = tree_score.score or 0.0
    return {0.0: "fails", 1.0: "passes"}.get(score, f"scores {tree_score.score}")


def _score_copy(work: LintTask, tree: list[File], report: bytes | None = None) -> TreeScore:
    edited = {file.path: file for file in tree} != {file.path: file for file in work.files.tree}
    try:
        with open_sandbox(work.conditions, work.task.limits, work.layer) as sandbox:
            sandbox.put("tree", tree, writable=True)
            how = work.task, work.files, report
            return score_tree(sandbox, *how, edited=edited, layer=work.layer)
    except SandboxFailed as error:
        return TreeScore(error=str(error))
