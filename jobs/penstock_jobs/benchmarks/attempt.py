"""The work of a worker: an attempt at a task, with the agent in a sandbox and then the check."""

import os
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Annotated, Any

import msgspec

from penstock.core.errors import PenstockError
from penstock.core.files import is_relative_name
from penstock.core.settings import MIB
from penstock.registry.checkpoints.attempts import Attempt, shortened, with_audit
from penstock_jobs.benchmarks.audit.audit import audit_of, transcript_in
from penstock_jobs.benchmarks.audit.rules import AuditedTask
from penstock_jobs.benchmarks.audit.steps import AttemptTranscript
from penstock_jobs.benchmarks.environments.environment import Layer, with_indexes, with_variables
from penstock_jobs.benchmarks.harbor.task import REWARDS, SOLUTION, TESTS, Container, read_reward
from penstock_jobs.benchmarks.sandbox import sandbox as sandboxes
from penstock_jobs.benchmarks.sandbox.network import address_of
from penstock_jobs.benchmarks.sandbox.sandbox import (
    PathRules,
    ProgramEnd,
    Sandbox,
    SandboxFailed,
    SandboxProgram,
)
from penstock_jobs.benchmarks.sandbox.sandbox_files import File, system_path
from penstock_jobs.benchmarks.suite import VARIANT_MARK, BenchmarkTask, TaskFiles

_ERROR_CHARS_MAX = 500
_REPORT_NAME, _RESULT_NAME = "report.json", "result.json"
JUDGE_URL = "PENSTOCK_JUDGE_URL"
_RESULT_BYTES_MAX = 64 * 1024
_TESTS_COMMAND = ["sh", "-c", f"chmod +x {TESTS}/test.sh && exec {TESTS}/test.sh"]
#: What a report counts: of a task with steps, over all of them.
_SUMMED = "completion_tokens prompt_tokens cost_usd steps tool_calls invalid_tool_calls latency_s"

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
    #: Variables for checks that ask a model, and for these alone.
    judge: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: Tries of an attempt that fails for reasons outside the model. Pauses double.
    tries_max: int = 3
    retry_seconds: float = 1.0
    output_bytes_max: int = 64 * 1024
    report_bytes_max: int = 256 * 1024
    transcript_bytes_max: int = 64 * MIB


@dataclass(frozen=True)
class AttemptTask:
    conditions: RunConditions
    task: BenchmarkTask = field(repr=False)
    files: TaskFiles = field(repr=False)
    layer: Layer | None = None
    attempt: int = 0
    #: The end of the names of a step's folders.
    step: str = ""
    #: The id under which its agent may record a session.
    session: str = ""
    known: AuditedTask = field(default_factory=AuditedTask, repr=False)
    #: Whether the agent is shown the solution, as `lint` does in a container.
    solving: bool = False


@dataclass(frozen=True)
class AttemptOutcome:
    result: Attempt
    #: Remarks for people, such as a limit that ended it.
    marks: tuple[str, ...] = ()
    output: str = ""
    #: The end of the output of an agent that failed without a report and without an edit.
    silent: str | None = None
    #: What the agent did, for an audit by a model.
    transcript: AttemptTranscript | None = None


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
    #: The name of the agent's session beside the report, in any form that `penstock import` reads.
    transcript: str | None = None


class TreeScore(msgspec.Struct, frozen=True):
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
        outcome, retry = attempt_once(work)
        if not retry:
            break
    return replace(outcome, result=replace(outcome.result, retries=retries))


def attempt_once(work: AttemptTask) -> tuple[AttemptOutcome, bool]:
    """Make an attempt. Returns its outcome, and whether another try may do better."""
    try:
        with open_sandbox(work) as sandbox:
            return _attempt_in(sandbox, work)
    except SandboxFailed as error:
        return _failed(work, str(error)), True


def open_sandbox(work: AttemptTask) -> Sandbox:
    limits, conditions = work.task.limits, work.conditions
    memory_bytes, disk_bytes = limits.memory_mib * MIB, limits.disk_mib * MIB
    bounds = sandboxes.SandboxLimits(memory_bytes, limits.processes, disk_bytes)
    if not conditions.isolated:
        return sandboxes.PlainSandbox(bounds, conditions.output_bytes_max)
    root = work.layer.root(writable=work.task.container is not None) if work.layer else None
    return sandboxes.IsolatedSandbox(bounds, conditions.views, conditions.output_bytes_max, root)


def _attempt_in(sandbox: Sandbox, work: AttemptTask) -> tuple[AttemptOutcome, bool]:
    for folder in ("home", "scratch"):
        sandbox.put(folder, [], writable=True)
    if not work.task.steps:
        sandbox.put("tree", work.files.tree, writable=True)
        return _attempt_step(sandbox, work)
    outcomes: list[AttemptOutcome] = []
    for number, (step, files) in enumerate(zip(work.task.steps, work.files.steps, strict=True)):
        part = replace(work, task=step, files=files, step=f"-{number}")
        outcome, retry = _attempt_step(sandbox, part)
        outcomes.append(outcome)
        score = outcome.result.score
        if score is None:
            return outcome, retry
        if step.container and score < step.container.least:
            break
    return _whole(outcomes, step.container), False


def _whole(outcomes: Sequence[AttemptOutcome], container: Container | None) -> AttemptOutcome:
    """The outcome of all steps. Their counts add up."""
    results, last = [outcome.result for outcome in outcomes], outcomes[-1]
    sums: dict[str, Any] = {}
    for name in (*_SUMMED.split(), "edited"):
        known = [value for value in (getattr(each, name) for each in results) if value is not None]
        sums[name] = (any(known) if name == "edited" else sum(known)) if known else None
    if container is not None:
        sums["score"] = container.score([result.score or 0.0 for result in results])
    marks = tuple(dict.fromkeys(mark for outcome in outcomes for mark in outcome.marks))
    read = [outcome.transcript for outcome in outcomes if outcome.transcript]
    steps = enumerate((step for each in read for step in each.steps), 1)
    request = "\n".join(each.request for each in read)
    whole = AttemptTranscript([replace(step, number=n) for n, step in steps], request=request)
    transcript = whole if read else None
    result = replace(last.result, **sums)
    return replace(last, result=result, marks=marks, transcript=transcript)


def _attempt_step(sandbox: Sandbox, work: AttemptTask) -> tuple[AttemptOutcome, bool]:
    ended = _run_agent(sandbox, work)
    last_words = ended.output.strip()[-_ERROR_CHARS_MAX:]
    if ended.status in (126, 127):  # the shell: no such command, or not a program
        why = f"its command could not be run, and ended with status {ended.status}: {last_words}"
        raise AgentUnusable(why=why)
    text = sandbox.read(f"out{work.step}", _REPORT_NAME, work.conditions.report_bytes_max)
    try:
        report = msgspec.json.decode(text, type=AgentReport) if text else AgentReport()
    except (ValueError, RecursionError) as error:
        return _failed(work, f"the agent's report cannot be read: {error}"), True
    measures = msgspec.structs.asdict(report) | {"latency_s": ended.seconds}
    del measures["answer"], measures["error"], measures["transcript"]
    problem = None
    if report.error is not None:
        problem = f"the agent says: {report.error}"
    elif ended.status == os.EX_TEMPFAIL:
        problem = "the agent exited with 75: try again"
    elif ended.unreachable:
        problem = f"no answer from {', '.join(ended.unreachable)}"
    if problem is not None:
        return _failed(work, problem, ended.output, **measures), True
    edited = bool(sandbox.changed(work.task.container.workdir if work.task.container else "tree"))
    verdict = score_tree(sandbox, work, text, edited=edited)
    measures |= {"edited": edited, "score": verdict.score}
    measures["error"] = verdict.error and shortened(verdict.error)
    result = Attempt(task=work.task.name, attempt=work.attempt, **measures)
    marks = []
    if ended.cut is not None:
        marks.append("timed out" if ended.cut == "time" else f"over its {ended.cut}")
    elif ended.status:
        marks.append(f"the agent ended with status {ended.status}")
    if places := ", ".join(ended.uncovered):
        marks.append(f"it could open no Unix socket: {places} cannot be covered by an overlay")
    silent = shortened(last_words) if ended.status and not (text or edited) else None
    transcript = None
    if report.transcript is not None:
        name, size = report.transcript, work.conditions.transcript_bytes_max
        content = sandbox.read(f"out{work.step}", name, size) if is_relative_name(name) else None
        transcript = transcript_in(content or b"", name)
        audit = audit_of(work.known, transcript)
        result = with_audit(result, audit)
        marks += [] if audit else ["the transcript that its report names cannot be read"]
    return AttemptOutcome(result, tuple(marks), verdict.output, silent, transcript), False


def _failed(work: AttemptTask, error: str, output: str = "", **measures: Any) -> AttemptOutcome:
    result = Attempt(task=work.task.name, attempt=work.attempt, error=shortened(error), **measures)
    return AttemptOutcome(result, output=output)


def _run_agent(sandbox: Sandbox, work: AttemptTask) -> ProgramEnd:
    conditions, task = work.conditions, work.task
    suite, _, variant = conditions.suite.partition(VARIANT_MARK)
    given, out = f"given{work.step}", f"out{work.step}"
    prompt = [File("prompt.md", task.prompt.encode())]
    sandbox.put(given, prompt, writable=False)
    sandbox.put(out, [], writable=True)
    environment = {
        **_machine(work),
        **conditions.environment,
        **({"PENSTOCK_VARIANT": variant} if variant else {}),
        "PENSTOCK_PROMPT_FILE": f"{sandbox.path(given)}/prompt.md",
        "PENSTOCK_CHECKPOINT": conditions.checkpoint,
        "PENSTOCK_SUITE": conditions.suite,
        "PENSTOCK_TASK": task.name,
        "PENSTOCK_ATTEMPT": str(work.attempt),
        "PENSTOCK_SESSION": work.session,
        "PENSTOCK_SEED": str(seed_of(suite, task.name, work.attempt)),
        "PENSTOCK_REPORT": f"{sandbox.path(out)}/{_REPORT_NAME}",
        "HOME": "/root" if task.container else sandbox.path("home"),
    }
    addresses = [*conditions.allow]
    if conditions.serving:
        environment["PENSTOCK_MODEL_URL"] = conditions.serving
        addresses.insert(0, address_of(conditions.serving))
    folders, place, also_at = {given: False, out: True}, "tree", {}
    if (container := task.container) is None:
        folders[place] = True
    else:
        place, shown = container.workdir, (work.files.solution if work.solving else None) or []
        addresses += container.agent.addresses(work.files.setup, prompt, shown)
        if shown:
            solution = f"solution{work.step}"
            sandbox.put(solution, shown, writable=True)
            folders[solution], also_at[solution] = True, SOLUTION
            environment = with_variables(container.solution_variables, environment)
    command = ["sh", "-c", conditions.agent]
    how = place, "home", "scratch", task.limits.seconds, environment
    return sandbox.run(
        SandboxProgram(command, *how, folders, with_indexes(addresses), also_at=also_at)
    )


def _machine(work: AttemptTask) -> dict[str, str]:
    """The variables of the machine for agents and checks, then their environment's."""
    machine = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    if work.task.container:
        machine["PATH"] = system_path()
    made = work.layer.variables if work.layer else ()
    return with_variables(made, {"PATH": os.defpath} | machine)


def score_tree(
    sandbox: Sandbox, work: AttemptTask, report: bytes | None, *, edited: bool
) -> TreeScore:
    """Score the agent's tree. The check comes into the sandbox only now."""
    task = work.task
    if task.expect == "no_edit" and edited:
        return TreeScore(score=0.0, output="nothing was to be edited, but something was")
    if task.check is None:
        return TreeScore(score=1.0)
    container, judge = task.container, work.conditions.judge if task.judged else {}
    # The agent could not know this name, so none of its links leads there.
    check = f"check-{secrets.token_hex(8)}"
    given, result, home, scratch = (
        f"{check}-{part}" for part in ("given", "result", "home", "tmp")
    )
    sandbox.put(check, work.files.check, writable=container is not None)
    documents = [File("prompt.md", task.prompt.encode()), File("report.json", report or b"{}")]
    sandbox.put(given, documents, writable=False)
    for folder in (result, home, scratch):
        sandbox.put(folder, [], writable=True)
    environment = _machine(work) | {
        "HOME": "/root" if container else sandbox.path(home),
        "PENSTOCK_CHECK": sandbox.path(check),
        "PENSTOCK_PROMPT_FILE": f"{sandbox.path(given)}/prompt.md",
        "PENSTOCK_REPORT": f"{sandbox.path(given)}/report.json",
        "PENSTOCK_RESULT": f"{sandbox.path(result)}/{_RESULT_NAME}",
        "PENSTOCK_TASK": task.name,
        "PENSTOCK_EDITED": "1" if edited else "0",
        **judge,
    }
    folders, also_at = {check: container is not None, given: False, result: True}, {}
    if container:
        command, place, scratch = _TESTS_COMMAND, container.workdir, "scratch"
        environment = with_variables(container.verifier_variables, environment)
        addresses = with_indexes(container.verifier.addresses(work.files.setup, work.files.check))
        also_at = {check: TESTS, result: REWARDS}
    else:
        command, place = task.check_command(work.files, sandbox.path(check)), "tree"
        folders[place] = True
        addresses = [address_of(judge[JUDGE_URL])] if judge else []
    # The check can run even if the agent filled the disk.
    more = task.limits.disk_mib * MIB
    how = place, home, scratch, task.limits.check_seconds, environment
    ended = sandbox.run(SandboxProgram(command, *how, folders, addresses, more, also_at))
    names = ("reward.json", "reward.txt") if container else (_RESULT_NAME,)
    results = [sandbox.read(result, name, _RESULT_BYTES_MAX) for name in names]
    return _score_of_rewards(ended, *results) if container else score_of(ended, *results)


def score_copy(work: AttemptTask, tree: list[File], report: bytes | None = None) -> TreeScore:
    """Score a tree that no agent made."""
    edited = {file.path: file for file in tree} != {file.path: file for file in work.files.tree}
    try:
        with open_sandbox(work) as sandbox:
            sandbox.put("tree", tree, writable=True)
            return score_tree(sandbox, work, report, edited=edited)
    except SandboxFailed as error:
        return TreeScore(error=str(error))


def _score_of_rewards(ended: ProgramEnd, as_json: bytes | None, as_text: bytes | None) -> TreeScore:
    """Read the score of Harbor's tests. Their exit status says nothing."""
    why = None
    if ended.cut is not None:
        return TreeScore(error=f"the tests went over their {ended.cut}", output=ended.output)
    try:
        score = read_reward(as_json, as_text)
    except (ValueError, RecursionError) as error:
        score, why = None, f"the tests gave no score: {error}"
    if score != 1 and ended.unreachable:
        score, why = None, f"the tests had no answer from {', '.join(ended.unreachable)}"
    if why is not None and (lines := ended.output.strip().splitlines()):
        why += f"; their last line: {lines[-1][:300]}"
    return TreeScore(score, why, ended.output)


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
