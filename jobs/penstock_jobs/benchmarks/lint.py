"""Checks whether a suite measures anything: untouched trees fail, solutions pass, and twice."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from penstock.execution import Executor
from penstock.settings import Settings
from penstock_jobs.benchmarks.attempt import RunConditions, TreeScore, open_sandbox, score_tree
from penstock_jobs.benchmarks.errors import SandboxFailed
from penstock_jobs.benchmarks.run import RunOptions, conditions_of
from penstock_jobs.benchmarks.sandbox.folder_files import File
from penstock_jobs.benchmarks.sandbox.sandbox import check_isolation
from penstock_jobs.benchmarks.suite import (
    BenchmarkTask,
    Suite,
    TaskFiles,
    load_files,
    load_solution,
)

_EDIT = File("penstock-lint-edit.txt", b"an edit that nobody asked for\n")
#: The marks around comments and texts, which do not count.
_MARKS = "#/*\"'- "


@dataclass(frozen=True)
class SuiteFinding:
    task: str
    problem: str


class _LintTask(NamedTuple):
    conditions: RunConditions
    task: BenchmarkTask
    files: TaskFiles
    solution: list[File] | None


def lint_suite(
    executor: Executor,
    suite: Suite,
    settings: Settings,
    *,
    isolated: bool = True,
    follow: Callable[[int, int], None] = lambda _done, _of: None,
) -> list[SuiteFinding]:
    """All problems, by task. `follow` gets how many tasks are done, of how many."""
    conditions = conditions_of(settings, suite, "lint", RunOptions(agent="", isolated=isolated))
    tasks = (
        _LintTask(conditions, task, load_files(task), load_solution(task)) for task in suite.tasks
    )
    findings: list[SuiteFinding] = []
    for number, finished in enumerate(executor.run(lint_task, tasks), 1):
        findings += finished.result
        follow(number, len(suite.tasks))
    return sorted(findings, key=lambda finding: (finding.task, finding.problem))


def lint_task(work: _LintTask) -> list[SuiteFinding]:
    """Runs on a worker."""
    if work.conditions.isolated:
        check_isolation()
    problems = [*_visible_problems(work.task, work.files), *_check_problems(work)]
    return [SuiteFinding(work.task.name, problem) for problem in problems]


def _visible_problems(task: BenchmarkTask, files: TaskFiles) -> Iterator[str]:
    """The problems that show without running anything."""
    if not files.tree:
        yield "its tree is empty"
    size = sum(len(file.content) for file in files.tree)
    if size > task.limits.disk_mib * 1024 * 1024 // 2:
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
        if len(line) >= 40 and line in prompt:  # shorter ones reveal nothing
            yield f"its prompt tells a line of its check: {line!r}"
            break


def _check_problems(work: _LintTask) -> Iterator[str]:
    task, tree = work.task, work.files.tree
    untouched = _score(work, tree)
    yield from _contradiction(untouched, _score(work, tree))
    if task.expect == "no_edit":
        if untouched.score != 1:
            yield f"nothing is to be edited, and an untouched tree {_verdict(untouched)}"
        edited = _score(work, [*tree, _EDIT])
        if edited.score != 0:
            yield f"nothing is to be edited, and an edited tree {_verdict(edited)}"
        return
    if untouched.score is None or untouched.score >= 1:
        yield f"its check has to fail an untouched tree, which {_verdict(untouched)}"
    if work.solution is not None:
        solved = _score(work, work.solution, task.solution_report)
        if solved.score != 1:
            yield f"its solution has to pass, and {_verdict(solved)}"
        yield from _contradiction(solved, _score(work, work.solution, task.solution_report))


def _contradiction(first: TreeScore, second: TreeScore) -> Iterator[str]:
    if first.score != second.score:
        verdicts = f"it {_verdict(first)}, then {_verdict(second)}"
        yield f"its check says two things of one tree: {verdicts}"


def _verdict(tree_score: TreeScore) -> str:
    if tree_score.error is not None:
        return f"gets no score ({tree_score.error})"
    score = tree_score.score or 0.0
    return {0.0: "fails", 1.0: "passes"}.get(score, f"scores {tree_score.score}")


def _score(work: _LintTask, tree: list[File], report: bytes | None = None) -> TreeScore:
    """Score this tree as if an agent had left it."""
    edited = {file.path: file for file in tree} != {file.path: file for file in work.files.tree}
    try:
        with open_sandbox(work.conditions, work.task.limits) as sandbox:
            sandbox.put("tree", tree, writable=True)
            return score_tree(sandbox, work.task, work.files, report, edited=edited)
    except SandboxFailed as error:
        return TreeScore(error=str(error))
