"""Lint: untouched trees must fail their check and solutions pass it, twice."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain, filterfalse

import msgspec

from penstock.backends.execution.executor import Executor
from penstock.core.settings import MIB, Settings
from penstock_jobs.benchmarks.attempt import AttemptTask, TreeScore, attempt_once, score_copy
from penstock_jobs.benchmarks.environments.environment import EnvironmentFailed
from penstock_jobs.benchmarks.harbor.task import SOLUTION, needed
from penstock_jobs.benchmarks.run import RunOptions, conditions_of, make_layers
from penstock_jobs.benchmarks.sandbox import sandbox as sandboxes
from penstock_jobs.benchmarks.sandbox.network import answers
from penstock_jobs.benchmarks.sandbox.sandbox import SandboxFailed
from penstock_jobs.benchmarks.sandbox.sandbox_files import File
from penstock_jobs.benchmarks.suite import BenchmarkTask, Suite, TaskFiles, load_files

_EDIT = File("penstock-lint-edit.txt", b"an edit that nobody asked for\n")
#: Marks of comments and strings, which are ignored.
_MARKS = "#/*\"'- "
#: The solution as an agent. Its status says nothing.
_SOLVE = f"chmod +x {SOLUTION}/solve.sh; {SOLUTION}/solve.sh; exit 0"


class SuiteFinding(msgspec.Struct, frozen=True):
    task: str
    problem: str


def lint_suite(
    executor: Executor,
    suite: Suite,
    settings: Settings,
    *,
    isolated: bool = True,
    follow: Callable[[int, int], None] = lambda _done, _of: None,
) -> list[SuiteFinding]:
    how = conditions_of(settings, suite, "lint", RunOptions(agent="", isolated=isolated))
    findings = [SuiteFinding(name, f"left out: {why}") for name, why in suite.left_out.items()]

    def works() -> Iterator[AttemptTask]:
        for task in suite.tasks:
            files = load_files(task)
            if silent := silent_hosts(files) if task.container else None:
                findings.append(SuiteFinding(task.name, silent))
                continue
            try:
                layer = make_layers(suite, [task.name], settings, isolated=isolated).get(task.name)
            except (EnvironmentFailed, SandboxFailed) as error:
                findings.append(SuiteFinding(task.name, str(error)))
                continue
            yield AttemptTask(how, task, files, layer)

    for number, finished in enumerate(executor.run(lint_task, works()), 1):
        name = finished.task.task.name
        findings += [SuiteFinding(name, problem) for problem in finished.result]
        follow(number, len(suite.tasks))
    return sorted(findings, key=lambda finding: (finding.task, finding.problem))


def silent_hosts(files: TaskFiles) -> str | None:
    """Say which hosts a Harbor task cannot do without, and do not answer; None without any."""
    parts = files.setup, *((*part.check, *(part.solution or ())) for part in files.steps)
    silent = sorted(filterfalse(answers, {*needed(chain.from_iterable(parts))}))
    return f"it needs {', '.join(silent)}, which this machine cannot reach" if silent else None


def lint_task(work: AttemptTask) -> list[str]:
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
    texts = (file.content.decode(errors="replace").strip() for file in files.check)
    check = "\n".join(text for text in texts if text != task.prompt.strip())  # its own copy of it
    lines = (" ".join(line.split()).strip(_MARKS) for line in check.splitlines())
    for line in lines:
        if len(line) >= 40 and line in prompt:  # shorter lines reveal nothing
            yield f"its prompt contains a line of its check: {line!r}"
            break


def _check_problems(work: AttemptTask) -> Iterator[str]:
    task, tree = work.task, work.files.tree

    def contradictions(first: TreeScore, second: TreeScore) -> Iterator[str]:
        if first.score != second.score:
            verdicts = f"it {_verdict(first)}, then {_verdict(second)}"
            yield f"its check judges one tree in two ways: {verdicts}"

    untouched = _scored(work, solved=False)
    yield from contradictions(untouched, _scored(work, solved=False))
    if task.expect == "no_edit":
        if untouched.score != 1:
            yield f"nothing is to be edited, but an untouched tree {_verdict(untouched)}"
        edited = score_copy(work, [*tree, _EDIT])
        if edited.score != 0:
            yield f"nothing is to be edited, but an edited tree {_verdict(edited)}"
        return
    if untouched.score is None or untouched.score >= 1:
        yield f"an untouched tree must fail its check, but {_verdict(untouched)}"
    if all(part.solution is not None for part in work.files.parts):
        solved = _scored(work, solved=True)
        if solved.score != 1:
            yield f"its solution must pass its check, but {_verdict(solved)}"
        yield from contradictions(solved, _scored(work, solved=True))
    elif task.container:
        yield "it has no solution, so nothing shows that it can be solved here"


def _scored(work: AttemptTask, *, solved: bool) -> TreeScore:
    if work.task.steps:
        how = replace(work.conditions, agent=_SOLVE if solved else "true")
        result = attempt_once(replace(work, conditions=how, solving=solved))[0].result
        return TreeScore(result.score, result.error)
    if solved:
        return score_copy(work, work.files.solution or [], work.task.solution_report)
    return score_copy(work, work.files.tree)


def _verdict(tree_score: TreeScore) -> str:
    if tree_score.error is not None:
        return f"gets no score ({tree_score.error})"
    score = tree_score.score or 0.0
    return {0.0: "fails", 1.0: "passes"}.get(score, f"scores {tree_score.score}")
