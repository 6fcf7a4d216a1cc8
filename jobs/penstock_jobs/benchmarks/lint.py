"""Lint: untouched trees must fail their check and solutions pass it, twice."""

from collections.abc import Iterator
from typing import NamedTuple

from penstock.core.settings import MIB
from penstock_jobs.benchmarks.attempt import (
    RunConditions,
    TreeScore,
    home_of,
    is_last,
    machine_variables,
    open_sandbox,
    score_tree,
)
from penstock_jobs.benchmarks.environments.environment import with_variables
from penstock_jobs.benchmarks.environments.layers import Layer
from penstock_jobs.benchmarks.harbor.task import SOLUTION
from penstock_jobs.benchmarks.sandbox import sandbox as sandboxes
from penstock_jobs.benchmarks.sandbox.sandbox import Sandbox, SandboxFailed, SandboxProgram
from penstock_jobs.benchmarks.sandbox.sandbox_files import File
from penstock_jobs.benchmarks.suite import BenchmarkTask, TaskFiles

_EDIT = File("penstock-lint-edit.txt", b"an edit that nobody asked for\n")
#: Marks of comments and strings, which are ignored.
_MARKS = "#/*\"'- "
_SOLUTION_COMMAND = ["sh", "-c", f"chmod +x {SOLUTION}/solve.sh && exec {SOLUTION}/solve.sh"]


class LintTask(NamedTuple):
    conditions: RunConditions
    task: BenchmarkTask
    files: TaskFiles
    #: One for each step.
    solutions: list[list[File] | None]
    layer: Layer | None = None


def lint_task(work: LintTask) -> list[str]:
    if work.conditions.isolated:
        sandboxes.check_isolation()
    return [*_visible_problems(work.task, work.files), *_check_problems(work)]


def _visible_problems(task: BenchmarkTask, files: TaskFiles) -> Iterator[str]:
    tree = files.setup if task.container else files.tree
    if not tree:
        yield "its tree is empty"
    size = sum(len(file.content) for file in tree)
    if size > task.limits.disk_mib * MIB // 2:
        yield f"its tree has {size} bytes, over half of its disk_mib = {task.limits.disk_mib}"
    contents = {file.content: file.path for file in files.check if file.content.strip()}
    for file in tree:
        if file.path.rsplit("/", 1)[-1] in ("task.toml", "solution.json"):
            yield f"{file.path} is in its tree, where the agent sees it"
        elif contents.get(file.content, f"tests/{file.path}") != f"tests/{file.path}":
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

    untouched = _score_untouched(work)
    yield from contradictions(untouched, _score_untouched(work))
    if task.expect == "no_edit":
        if untouched.score != 1:
            yield f"nothing is to be edited, but an untouched tree {_verdict(untouched)}"
        edited = score_copy(work, [*tree, _EDIT])
        if edited.score != 0:
            yield f"nothing is to be edited, but an edited tree {_verdict(edited)}"
        return
    if untouched.score is None or untouched.score >= 1:
        yield f"an untouched tree must fail its check, but {_verdict(untouched)}"
    if None not in work.solutions:
        solved = _score_solution(work)
        if solved.score != 1:
            yield f"its solution must pass its check, but {_verdict(solved)}"
        yield from contradictions(solved, _score_solution(work))
    elif task.container:
        yield "it has no solution, so nothing shows that it can be solved here"


def _score_untouched(work: LintTask) -> TreeScore:
    return (
        _score_steps(work, solved=False) if work.task.steps else score_copy(work, work.files.tree)
    )


def _score_solution(work: LintTask) -> TreeScore:
    if work.task.steps:
        return _score_steps(work, solved=True)
    return score_copy(work, work.solutions[0] or [], work.task.solution_report)


def _score_steps(work: LintTask, *, solved: bool) -> TreeScore:
    """Score a container in which each step is solved, or nothing is done."""
    scores: list[float] = []
    try:
        with open_sandbox(work.conditions, work.task, work.layer) as sandbox:
            for folder in ("home", "scratch"):
                sandbox.put(folder, [], writable=True)
            parts = zip(work.task.steps, work.files.steps, strict=True)
            for number, (step, files) in enumerate(parts):
                if solved and (problem := _solve(sandbox, work, number)):
                    return TreeScore(error=problem)
                given = step, files, None, work.conditions
                verdict = score_tree(sandbox, *given, edited=solved, layer=work.layer)
                if verdict.score is None:
                    return verdict
                scores.append(verdict.score)
                if is_last(step, verdict.score):
                    break
    except SandboxFailed as error:
        return TreeScore(error=str(error))
    container = work.task.container
    return TreeScore(container.score(scores) if container else None)


def _solve(sandbox: Sandbox, work: LintTask, number: int) -> str | None:
    """Run a step's solution. Returns why it says nothing."""
    step, solution, folder = work.task.steps[number], work.solutions[number], f"solution-{number}"
    container = step.container
    if container is None or solution is None:
        return None
    sandbox.put(folder, solution, writable=True)
    variables = with_variables(container.solution_variables, machine_variables(work.layer, step))
    variables["HOME"] = home_of(sandbox, step, "home")
    how = container.workdir, "home", "scratch", step.limits.seconds, variables, {folder: True}
    addresses = container.agent.addresses(work.files.setup, solution)
    program = SandboxProgram(_SOLUTION_COMMAND, *how, addresses, also_at={folder: SOLUTION})
    ended = sandbox.run(program)
    if ended.cut:
        return f"the solution went over its {ended.cut}"
    if ended.status and ended.unreachable:
        return f"the solution had no answer from {', '.join(ended.unreachable)}"
    return None


def _verdict(tree_score: TreeScore) -> str:
    if tree_score.error is not None:
        return f"gets no score ({tree_score.error})"
    score = tree_score.score or 0.0
    return {0.0: "fails", 1.0: "passes"}.get(score, f"scores {tree_score.score}")


def score_copy(work: LintTask, tree: list[File], report: bytes | None = None) -> TreeScore:
    edited = {file.path: file for file in tree} != {file.path: file for file in work.files.tree}
    try:
        with open_sandbox(work.conditions, work.task, work.layer) as sandbox:
            sandbox.put("tree", tree, writable=True)
            parts = work.task, work.files, report, work.conditions
            return score_tree(sandbox, *parts, edited=edited, layer=work.layer)
    except SandboxFailed as error:
        return TreeScore(error=str(error))
