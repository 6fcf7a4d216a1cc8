"""Whether a suite measures anything: its checks are run where the answer is known.

An untouched tree has to fail its check, and a solution, where there is one, has to pass; where
nothing is to be edited, an untouched tree has to pass and an edited one to fail. A check has to
say the same of the same tree twice.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from penstock.execution import Executor
from penstock.settings import Settings
from penstock_jobs.benchmarks.attempting import Conditions, open_room
from penstock_jobs.benchmarks.errors import RoomFailed
from penstock_jobs.benchmarks.running import Options, conditions_of
from penstock_jobs.benchmarks.sandbox import isolated
from penstock_jobs.benchmarks.sandbox.files import File
from penstock_jobs.benchmarks.scoring import Scored, score_tree
from penstock_jobs.benchmarks.suite import (
    TASK_BYTES_MAX,
    Suite,
    Task,
    TaskFiles,
    load_files,
    load_solution,
)

_EDIT = File("penstock-lint-edit.txt", b"an edit that nobody asked for\n")
#: What a prompt has in common with a check without telling it: a line of so many letters is told.
_TOLD_CHARS_MIN = 40
#: What comments and texts begin and end with.
_MARKS = "#/*\"'- "
#: Names by which checks are known; in a tree the agent would see them.
_CHECK_NAMES = ("task.toml", "solution.json")


@dataclass(frozen=True)
class Finding:
    task: str
    problem: str


#: Told of each task that is done, of how many.
Follow = Callable[[int, int], None]


@dataclass(frozen=True)
class _Work:
    conditions: Conditions
    task: Task
    files: TaskFiles
    solution: list[File] | None


def lint(
    executor: Executor,
    suite: Suite,
    settings: Settings,
    *,
    isolated: bool = True,
    follow: Follow = lambda _done, _of: None,
) -> list[Finding]:
    """All that is wrong with it, by task. Raises SuiteUnfit, IsolationImpossible."""
    conditions = conditions_of(settings, suite, "lint", Options(agent="", isolated=isolated))
    findings: list[Finding] = []
    done = executor.run(lint_task, _works(suite, conditions, TASK_BYTES_MAX))
    for number, one in enumerate(done, 1):
        findings += one.result
        follow(number, len(suite.tasks))
    return sorted(findings, key=lambda one: (one.task, one.problem))


def _works(suite: Suite, conditions: Conditions, bytes_max: int) -> Iterator[_Work]:
    for task in suite.tasks:
        solution = load_solution(task, bytes_max) if task.has_solution else None
        yield _Work(conditions, task, load_files(task, bytes_max), solution)


def lint_task(work: _Work) -> list[Finding]:
    """What runs on a worker."""
    if work.conditions.isolated:
        isolated.check()
    problems = [*_seen(work.task, work.files), *_ran(work)]
    return [Finding(work.task.name, problem) for problem in problems]


def _seen(task: Task, files: TaskFiles) -> Iterator[str]:
    """Without running anything."""
    if not files.tree:
        yield "its tree is empty"
    size = sum(len(file.content) for file in files.tree)
    if size > task.limits.disk_mib * 1024 * 1024 // 2:
        yield f"its tree has {size} bytes, over half of its disk_mib = {task.limits.disk_mib}"
    contents = {file.content for file in files.check if file.content.strip()}
    for file in files.tree:
        if file.path.rsplit("/", 1)[-1] in _CHECK_NAMES:
            yield f"{file.path} is in its tree, where the agent sees it"
        elif file.content in contents:
            yield f"{file.path} in its tree is a file of its check"
    if line := _told(task.prompt, files.check):
        yield f"its prompt tells a line of its check: {line!r}"


def _told(prompt: str, check: Sequence[File]) -> str | None:
    words = " ".join(prompt.split())
    for file in check:
        for line in file.content.decode(errors="replace").splitlines():
            plain = " ".join(line.split()).strip(_MARKS)
            if len(plain) >= _TOLD_CHARS_MIN and plain in words:
                return plain
    return None


def _ran(work: _Work) -> Iterator[str]:
    task, tree = work.task, work.files.tree
    untouched = _score(work, tree)
    again = _score(work, tree)
    yield from _unlike(untouched, again)
    if task.expect == "no_edit":
        if untouched.score != 1:
            yield f"nothing is to be edited, and an untouched tree {_said(untouched)}"
        edited = _score(work, [*tree, _EDIT])
        if edited.score != 0:
            yield f"nothing is to be edited, and an edited tree {_said(edited)}"
        return
    if untouched.score is None or untouched.score >= 1:
        yield f"its check has to fail an untouched tree, which {_said(untouched)}"
    if work.solution is not None:
        solved = _score(work, work.solution, task.solution_report)
        if solved.score != 1:
            yield f"its solution has to pass, and {_said(solved)}"
        yield from _unlike(solved, _score(work, work.solution, task.solution_report))


def _unlike(one: Scored, other: Scored) -> Iterator[str]:
    if one.score != other.score:
        yield f"its check says two things of one tree: it {_said(one)}, then {_said(other)}"


def _said(scored: Scored) -> str:
    if scored.error is not None:
        return f"gets no score ({scored.error})"
    return {0.0: "fails", 1.0: "passes"}.get(scored.score or 0.0, f"scores {scored.score}")


def _score(work: _Work, tree: list[File], report: bytes | None = None) -> Scored:
    """Of this tree, as if an agent had left it so."""
    edited = {file.path: file for file in tree} != {file.path: file for file in work.files.tree}
    try:
        with open_room(work.conditions, work.task.limits) as room:
            room.put("tree", tree, writable=True)
            return score_tree(room, work.task, work.files, report, edited=edited)
    except RoomFailed as error:
        return Scored(error=str(error))
