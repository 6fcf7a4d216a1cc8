"""The check of a proposal, and its verification: untouched trees fail, settled ones pass."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import msgspec

from penstock_jobs.benchmarks.attempt import AttemptTask, RunConditions, TreeScore, score_copy
from penstock_jobs.benchmarks.environments.environment import Layer
from penstock_jobs.benchmarks.mine.rules import Finding, MinedChange
from penstock_jobs.benchmarks.sandbox import sandbox as sandboxes
from penstock_jobs.benchmarks.sandbox.sandbox_files import File, text_of
from penstock_jobs.benchmarks.suite import BenchmarkTask, TaskFiles, TaskLimits

SCRIPT = Path(__file__).with_name("mined_check.py")
LIMITS = TaskLimits(check_seconds=300)
#: Trees are judged so often, always alike.
_ROUNDS = 3
_OUTPUT_CHARS_MAX = 20_000
_RUBRIC = Path(__file__).with_name("rubric.md")


@dataclass(frozen=True)
class CheckPlan:
    #: pytest, command or rubric.
    check: str
    files: Sequence[str] = ()
    #: The tests that must pass; None asks which ones do.
    tests: Sequence[str] | None = None
    command: str = ""
    rubric: str = ""
    solution: str = ""


@dataclass(frozen=True)
class Candidate:
    """A change that may become a task. `settled` is the commit that settled it."""

    settled: str
    #: The commit of its tree.
    base: str
    prompt: str
    #: session, pull request or commit.
    source: str
    session: str | None = None
    commands: tuple[str, ...] = ()


@dataclass(frozen=True)
class VerifyTask:
    task: str
    candidate: Candidate
    conditions: RunConditions
    change: MinedChange = field(repr=False)
    plan: CheckPlan = field(repr=False)
    layer: Layer | None = None


@dataclass(frozen=True)
class Verification:
    """A finding, or the check with what it says of the untouched and of the settled tree."""

    finding: Finding | None = None
    plan: CheckPlan | None = None
    before: str = ""
    after: str = ""
    #: How many of the tests fail before.
    failing: int = 0


def rubric_plan(change: MinedChange) -> CheckPlan:
    solution = "\n".join(diff.text for diff in change.source)
    return CheckPlan("rubric", rubric=_RUBRIC.read_text("utf-8"), solution=solution)


def check_files(change: MinedChange, plan: CheckPlan) -> list[File]:
    """The files of the check beside its script: its plan, and what it lays over a tree."""
    content = msgspec.json.format(msgspec.json.encode(asdict(plan)), indent=1)
    files = [File("check.json", content + b"\n")]
    if plan.check == "rubric":
        texts = {file.path: text for file in change.tree if (text := text_of(file))}
        return [*files, File("before.json", msgspec.json.encode(texts))]
    return [*files, *(file._replace(path=f"tests/{file.path}") for file in change.tests)]


def verify(work: VerifyTask) -> Verification:
    """Find tests that fail before and pass after, and judge both trees three times.

    For a command or a rubric the first round asks whether it tells the trees apart."""
    if work.conditions.isolated:
        sandboxes.check_isolation()
    plan, untouched = work.plan, list(work.change.tree)
    laid = {file.path: file for file in (*untouched, *work.change.solution)}
    settled = list(laid.values())
    after = _score(work, plan, settled)
    if after.score != 1:
        why = after.error or " ".join(after.output.strip().splitlines()[-2:])[:200]
        return _unfit("settled_fails", f"the settled tree fails its check: {why}")
    before = _score(work, plan, untouched)
    failing = int(before.score == 0)
    if plan.check == "pytest":
        wanted = _passed(after)
        failing = len(wanted - _passed(before))
        plan = replace(plan, tests=sorted(wanted))
    if not failing:
        return _unfit("untouched_passes", before.error or "the untouched tree passes its check")
    for _ in range(_ROUNDS - 1):
        after, before = _score(work, plan, settled), _score(work, plan, untouched)
        if (after.score, before.score) != (1, 0):
            ends = f"{after.error or after.score} and {before.error or before.score}"
            return _unfit("flaky", f"the same trees are not judged alike, but then {ends}")
    before_shown, after_shown = (score.output[-_OUTPUT_CHARS_MAX:] for score in (before, after))
    return Verification(None, plan, before_shown, after_shown, failing)


def _score(work: VerifyTask, plan: CheckPlan, tree: list[File]) -> TreeScore:
    named, how = (work.task, work.candidate.prompt, ()), (LIMITS, ("python", SCRIPT.name))
    judged, none = plan.check == "rubric", Path("/")
    task = BenchmarkTask(*named, "edit", *how, none, none, none, judged=judged)
    check = [File(SCRIPT.name, SCRIPT.read_bytes()), *check_files(work.change, plan)]
    files = TaskFiles(list(work.change.tree), check)
    return score_copy(AttemptTask(work.conditions, task, files, work.layer), tree)


def _passed(score: TreeScore) -> set[str]:
    """Read the tests that pass, which the check prints last."""
    line = score.output.strip().rpartition("\n")[2]
    return set(json.loads(line)) if score.error is None and line.startswith("[") else set()


def _unfit(rule: str, why: str) -> Verification:
    return Verification(Finding(rule, why[:500]))
