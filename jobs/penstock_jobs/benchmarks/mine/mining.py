"""Mining: candidates of a repository are judged by rules, verified, and kept as proposals. Those
that are taken make a suite."""

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from penstock.backends.execution.executor import Executor
from penstock.core import toml_document
from penstock.core.errors import InvalidInput
from penstock.core.settings import MIB
from penstock.lake.lake import Lake
from penstock_jobs.benchmarks.attempt import RunConditions
from penstock_jobs.benchmarks.environments.environment import (
    ENVIRONMENTS,
    Environment,
    Layer,
    make_layer,
)
from penstock_jobs.benchmarks.environments.trial import Believed, Trials, try_recipes
from penstock_jobs.benchmarks.mine import proposals
from penstock_jobs.benchmarks.mine.candidates import (
    LIMITS,
    SCRIPT,
    Candidate,
    Verification,
    VerifyTask,
    check_files,
    commit_candidates,
    prepare,
    rubric_plan,
    session_candidates,
    verify,
)
from penstock_jobs.benchmarks.mine.history import ProjectHistory
from penstock_jobs.benchmarks.mine.proposals import Proposal, ProposalFiles, files_of, proposals_of
from penstock_jobs.benchmarks.mine.rules import Finding, MinedChange, broken_rule, measure
from penstock_jobs.benchmarks.run import judge_variables, register_suite
from penstock_jobs.benchmarks.sandbox.sandbox import PathRules
from penstock_jobs.benchmarks.sandbox.sandbox_files import File, write_folder
from penstock_jobs.benchmarks.suite import Suite, read_suite

_NO_TEST = Finding("no_test", "no test, no command of a test, and no model (PENSTOCK_JUDGE_URL)")


class MiningOptions(msgspec.Struct, frozen=True):
    repository: Path
    suite: str
    #: Candidates without a session are commits of this range.
    commits: str = "HEAD"
    #: Tasks that are proposed at most.
    limit: int = 1_000_000
    #: Asked once a candidate is verified: to find one takes a while.
    environment: Callable[[], Believed | None] = lambda: None
    isolated: bool = True
    visible: tuple[str, ...] = ()


@dataclass
class MiningReport:
    #: Candidates of earlier runs, which are not looked at again.
    known: int = 0
    proposed: int = 0
    left_out: Counter[str] = field(default_factory=Counter)


def mine(
    lake: Lake,
    executor: Executor,
    options: MiningOptions,
    *,
    tenant: str,
    follow: Callable[[int, int], None] = lambda _proposed, _of: None,
) -> MiningReport:
    """Propose tasks from a repository. Each candidate is kept when it is judged, and never twice.

    Raises InvalidInput, EnvironmentFailed."""
    mining = _Mining(lake, tenant, options, ProjectHistory.of(options.repository))
    report = mining.report
    for finished in executor.run(verify, mining.works()):
        work = finished.task
        mining.keep(work.candidate, finished.result, work.change)
        follow(report.proposed, report.known + report.proposed + report.left_out.total())
    return report


class _Mining:
    def __init__(
        self, lake: Lake, tenant: str, options: MiningOptions, history: ProjectHistory
    ) -> None:
        self._lake, self._options, self._history = lake, options, history
        self._place = tenant, options.suite
        self._conditions = RunConditions(
            agent="",
            suite=options.suite,
            checkpoint="",
            isolated=options.isolated,
            views=PathRules((str(lake.settings.data),), options.visible),
            judge=judge_variables(lake.settings),
            output_bytes_max=4 * MIB,  # the names of all tests
        )
        self.report = MiningReport()
        known = proposals.proposals_of(lake.database, *self._place)
        #: By the digests in their names: another clone may have another name.
        self._known = {each.task.rpartition("-")[2] for each in known}
        #: Commits that have a proposal: those that settled a session are no candidates again.
        self._settled = {each.facts["settled"] for each in known if each.state != "left_out"}

    def works(self) -> Iterator[VerifyTask]:
        """Yield what to verify, and keep what a rule leaves out."""
        options = self._options
        commits = commit_candidates(self._history.commits(options.commits))
        sessions = session_candidates(self._lake, self._place[0], self._history)
        for found in chain(sessions, commits):
            if self.report.proposed >= options.limit:
                return
            task = self._name(found)
            if task.rpartition("-")[2] in self._known or found.settled in self._settled:
                self.report.known += 1
                continue
            candidate, change, plan = prepare(self._history, found)
            broken = broken_rule(change, candidate.prompt)
            if plan is None and self._conditions.judge:
                plan = rubric_plan(change)
            if broken is None and plan is not None:
                self._settled.add(found.settled)
                yield VerifyTask(task, candidate, self._conditions, change, plan, self._made[0])
            else:
                self.keep(candidate, broken or _NO_TEST, change)

    @cached_property
    def _made(self) -> tuple[Layer | None, Environment | None, list[File]]:
        if (found := self._options.environment()) is None:
            return None, None, []
        layers = self._lake.settings.data / ENVIRONMENTS
        layer = make_layer(found.environment, found.files, layers)
        # Each task has the files beside it: its tree has others.
        told = replace(found.environment, files=(), digest=layer.digest)
        return layer, told, found.files

    def _name(self, candidate: Candidate) -> str:
        key = f"{self._history.root}\0{candidate.settled}\0{candidate.session or ''}"
        return f"{self._history.name}-{sha256(key.encode()).hexdigest()[:10]}"

    def keep(
        self, candidate: Candidate, ended: Verification | Finding, change: MinedChange
    ) -> None:
        names = ("source", "base", "settled")
        facts: dict[str, Any] = {name: getattr(candidate, name) for name in names}
        facts |= {"repository": self._history.origin or self._history.name}
        facts |= measure(change, candidate.prompt)
        state, why, files = "left_out", "", None
        if isinstance(ended, Finding):
            facts["rule"], why = ended.rule, ended.why[:500]
            self.report.left_out[ended.rule] += 1
        else:
            state, (_, told, setup) = "proposed", self._made
            facts |= {"check": ended.plan.check, "tests": len(ended.plan.tests or ())}
            facts |= {"failing": ended.failing, "environment": told and asdict(told)}
            files = proposals.ProposalFiles(change, ended.plan, ended.before, ended.after, setup)
            self.report.proposed += 1
        parts = state, why, candidate.session, candidate.prompt, facts
        proposal = proposals.Proposal(self._name(candidate), *parts)
        proposals.add_proposal(self._lake, *self._place, proposal, files)


def environment_named(text: str, repository: Path, trials: Trials) -> Believed | None:
    """Find what --environment says: `auto`, `machine`, or a TOML file.

    Raises InvalidInput, EnvironmentFailed."""
    if text == "machine":
        return None
    history = ProjectHistory.of(repository)
    tree = history.files(history.tree("HEAD"))
    if text != "auto":
        document = toml_document.parse_toml(toml_document.read_text(Path(text)), text)
        environment = toml_document.read_section(Environment, document, text)
        return Believed(text, environment, environment.chosen(tree))
    if (believed := try_recipes(trials, tree)) is None:
        why = "it tells none; --environment names a file with one, or machine"
        raise InvalidInput(what=f"The environment of {repository}", why=why)
    return believed


# The taken proposals as a suite


def export_suite(lake: Lake, tenant: str, suite: str, folder: Path) -> Suite:
    """Write and register a suite, so that shards leave out what it was made from.

    Raises InvalidInput."""
    taken = [each for each in proposals_of(lake.database, tenant, suite) if each.state == "taken"]
    if not taken:
        why = f"no proposal is taken yet; `penstock suites review {suite}` lists them"
        raise InvalidInput(what=f"The suite {suite}", why=why)
    if folder.exists():
        raise InvalidInput(what=f"The folder {folder}", why="it is there already")
    making = folder.with_name(f"{folder.name}.making")
    shutil.rmtree(making, ignore_errors=True)  # of an export that was killed
    making.mkdir(parents=True)
    commits = {each.facts[name] for each in taken for name in ("base", "settled")}
    sessions = {each.session_id for each in taken if each.session_id}
    head = {
        "name": suite,
        "limits": {"check_seconds": LIMITS.check_seconds},
        "check": {"command": ["python", SCRIPT.name]},
        "sources": {"sessions": sorted(sessions), "commits": sorted(commits)},
    }
    files = [File("suite.toml", toml_document.toml_text(head).encode())]
    write_folder(str(making), [*files, File(f"check/{SCRIPT.name}", SCRIPT.read_bytes())])
    for each in taken:
        place = making / "tasks" / each.task
        place.mkdir(parents=True)
        write_folder(str(place), _task_files(each, files_of(lake, tenant, suite, each.task)))
    making.rename(folder)
    written = read_suite(folder)
    register_suite(lake.database, tenant, written)
    return written


def _task_files(proposal: Proposal, kept: ProposalFiles) -> list[File]:
    facts = proposal.facts
    document: dict[str, Any] = {"tags": [facts["work"], *facts["languages"][:1], facts["source"]]}
    document["check"] = {"judged": kept.plan.check == "rubric"}
    if facts["environment"]:
        document["environment"] = facts["environment"]
    parts = {"tree": kept.change.tree, "solution": kept.change.solution}
    parts |= {"check": check_files(kept.change, kept.plan), "environment": kept.setup}
    return [
        File("task.toml", toml_document.toml_text(document).encode()),
        File("prompt.md", f"{proposal.prompt}\n".encode()),
        *(each._replace(path=f"{part}/{each.path}") for part in parts for each in parts[part]),
    ]
