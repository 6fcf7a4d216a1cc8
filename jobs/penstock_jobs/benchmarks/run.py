"""A run of a suite. It makes the attempts that are not recorded yet, and commits each one."""

import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, groupby
from typing import Any, Literal, NamedTuple

import msgspec

from penstock.backends.database.engine import Database
from penstock.backends.execution.executor import Executor
from penstock.core.errors import InvalidInput, PenstockError
from penstock.core.settings import Settings
from penstock.lake.lake import Lake
from penstock.registry.channels.promotion import channel_evidence
from penstock.registry.checkpoints.attempts import (
    Attempt,
    attempts_of,
    begin_run,
    finish_run,
    note_problem,
    record_attempts,
)
from penstock.registry.checkpoints.checkpoint import AttemptConflict
from penstock.registry.checkpoints.harness import Harness
from penstock.registry.checkpoints.journal import AttemptScope
from penstock.registry.checkpoints.suites import SuiteContent, SuiteTask, SuiteVersion, add_suite
from penstock.registry.gate import designs
from penstock.registry.gate.decision import decide
from penstock.registry.gate.evidence import Evidence, SideEvidence
from penstock.registry.gate.policy import Requirement
from penstock.registry.gate.verdict import Verdict
from penstock_jobs.benchmarks.attempt import (
    JUDGE_URL,
    AgentUnusable,
    AttemptOutcome,
    AttemptTask,
    RunConditions,
    attempt_task,
)
from penstock_jobs.benchmarks.audit.audit import AuditModel, attempt_session, audited_task
from penstock_jobs.benchmarks.environments.environment import (
    ENVIRONMENTS,
    EnvironmentFailed,
    Layer,
    make_layer,
)
from penstock_jobs.benchmarks.sandbox.network import address_of, split
from penstock_jobs.benchmarks.sandbox.sandbox import PathRules, check_isolation
from penstock_jobs.benchmarks.sandbox.sandbox_files import named_places
from penstock_jobs.benchmarks.suite import Suite, load_files
from penstock_jobs.benchmarks.summary import scores_by_task
from penstock_jobs.rewards import RewardSettings
from penstock_jobs.rewards.followups.llm_judge import judge_key

#: A run stops after this many errors in a row.
ERRORS_MAX = 20
RETRY_SECONDS = 1.0


class ServingUnreachable(PenstockError, exit_status=3):
    """The serving address {address} does not answer: {why}. Nothing was run."""


class BenchmarkStopped(PenstockError):
    """The run of {suite} stopped after {errors} errors in a row. The last one: {why}. The errors
    stay recorded, and say nothing about the model. Remove the cause, then run the suite again with
    more --attempts."""


class PlannedAttempt(NamedTuple):
    task: str
    attempt: int


Attempts = Sequence[Attempt]
#: Returns the next attempts, given the known ones. A run ends if none of them is new.
ChooseAttempts = Callable[[Attempts], Sequence[PlannedAttempt]]


@dataclass(frozen=True)
class RunOptions:
    agent: str
    serving: str | None = None
    #: Attempts per task; by default the suite's number.
    attempts: int | None = None
    #: Only these tasks, if any are named.
    tasks: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    isolated: bool = True
    harness: Harness | None = None
    #: The model of the settings audits transcripts, too.
    audit_model: bool = False
    hidden: tuple[str, ...] = ()
    visible: tuple[str, ...] = ()


class RunReport(msgspec.Struct, frozen=True):
    run: str
    scope: AttemptScope
    made: int
    known: int


def run_suite(
    lake: Lake,
    executor: Executor,
    suite: Suite,
    checkpoint: str,
    options: RunOptions,
    *,
    tenant: str,
    choose: ChooseAttempts | None = None,
    follow: Callable[[int, int], None] = lambda _done, _of: None,
    check: Callable[[], None] = lambda: None,
) -> RunReport:
    """Make the attempts that `choose` names. `follow` gets the numbers of done and planned ones;
    `check` raises if an attempt that just ended must not count.

    Committed attempts stay, whatever is raised."""
    choose = choose or _each_task(suite, options)
    conditions = conditions_of(lake.settings, suite, checkpoint, options)
    model = AuditModel(lake.settings, lake.database) if options.audit_model else None
    scope = AttemptScope(tenant, suite.name, suite.version, checkpoint)
    if options.serving is not None:  # without an answer every attempt would be an error
        try:
            socket.create_connection(split(address_of(options.serving)), timeout=10.0).close()
        except OSError as error:
            why = error.strerror or error
            raise ServingUnreachable(address=options.serving, why=why) from error
    named = options.tasks or tuple(task.name for task in suite.tasks)
    layers = make_layers(suite, named, lake.settings, isolated=options.isolated)
    register_suite(lake.database, tenant, suite)
    # The names of the agent's variables are recorded, not their values.
    secret = {"environment": sorted(conditions.environment), "judge": sorted(conditions.judge)}
    facts = asdict(conditions) | secret
    facts["harness"] = asdict(options.harness) if options.harness else None
    facts["audited_by"] = model.name if model else None
    facts["layers"] = {layer.digest: layer.content for layer in layers.values()}
    run = begin_run(lake.database, scope, source=options.agent, conditions=facts)
    results = _results(lake.database, scope)
    before = done = len(results)
    errors = 0  # in a row
    silent: list[AttemptOutcome] = []
    while planned := [place for place in choose(list(results.values())) if place not in results]:
        total = done + len(planned)
        work = _attempt_tasks(suite, conditions, planned, layers, scope)
        for finished in executor.run(attempt_task, work):
            check()
            if finished.result.silent is not None and not results:
                silent.append(finished.result)
                # Scores are permanent, and here probably the agent's command is wrong.
                if len(silent) >= min(5, len(planned)):
                    marks, end = ", ".join(finished.result.marks), finished.result.silent
                    why = f"the first {len(silent)} attempts ended alike: {marks}, with no report"
                    why += f" and no edit. The end of the output: {end}. If the model really does"
                    raise AgentUnusable(why=f"{why} this, let the agent exit with 0")
                continue
            for outcome in (*silent, finished.result):
                result = _commit(lake.database, scope, run, _audited(model, outcome))
                results[result.place] = result
                done += 1
                follow(done, total)
                errors = 0 if result.error is None or result.audit else errors + 1
                if errors >= ERRORS_MAX:
                    raise BenchmarkStopped(errors=errors, suite=suite.name, why=result.error)
            silent = []
    finish_run(lake.database, scope, run)
    return RunReport(run, scope, done - before, before)


def make_layers(
    suite: Suite, tasks: Iterable[str], settings: Settings, *, isolated: bool
) -> dict[str, Layer]:
    """Make the layers of the tasks with an environment, unless they are there.

    Raises EnvironmentFailed, InvalidInput."""
    layers = {}
    for task in map(suite.task, tasks):
        if task.environment is not None:
            if not isolated:
                why = f"the task {task.name} has an [environment], which only a sandbox shows"
                raise InvalidInput(what="--no-isolation", why=why)
            check_isolation()
            setup = load_files(task).setup
            try:
                layer = make_layer(task.environment, setup, settings.data / ENVIRONMENTS)
            except EnvironmentFailed as error:
                raise EnvironmentFailed(why=f"task {task.name}: {error.facts['why']}") from error
            layers[task.name] = layer
    return layers


def _each_task(suite: Suite, options: RunOptions) -> ChooseAttempts:
    tasks = [suite.task(name) for name in options.tasks] or suite.tasks
    attempts = options.attempts or suite.attempts
    # All first attempts come first, so that an interrupted run covers the suite.
    planned = [PlannedAttempt(task.name, attempt) for attempt in range(attempts) for task in tasks]
    return lambda _known: planned


def conditions_of(
    settings: Settings, suite: Suite, checkpoint: str, options: RunOptions
) -> RunConditions:
    """The conditions of a run. Agents see neither the suite nor this lake."""
    hidden = (str(suite.folder), str(settings.data), *options.hidden)
    visible = (*named_places(options.agent), *options.visible)
    return RunConditions(
        agent=options.agent,
        suite=suite.name,
        checkpoint=checkpoint,
        serving=options.serving,
        environment=options.environment,
        allow=suite.allow,
        isolated=options.isolated,
        views=PathRules(hidden, visible),
        judge=judge_variables(settings),
        retry_seconds=RETRY_SECONDS,
    )


def passed_variables(names: Iterable[str]) -> dict[str, str]:
    """The variables of this process that an agent gets, too. Raises InvalidInput."""
    for name in names:
        if name not in os.environ:
            raise InvalidInput(what=f"pass_env {name}", why="this variable is not set")
    return {name: os.environ[name] for name in names}


def judge_variables(settings: Settings) -> dict[str, str]:
    """The variables by which checks ask the judge of the settings; empty without one."""
    judge = settings.room(RewardSettings)
    values = {JUDGE_URL: judge.judge_url, "PENSTOCK_JUDGE_MODEL": judge.judge_model}
    values["PENSTOCK_JUDGE_KEY"] = judge_key(judge)
    return {name: value for name, value in values.items() if value} if judge.judge_url else {}


def register_suite(database: Database, tenant: str, suite: Suite) -> bool:
    """Register a suite with texts that identify its tasks. Returns False if it was known."""
    if not suite.tasks:
        why = "none of its tasks can be run on this machine; `penstock suites lint` says why"
        raise InvalidInput(what=f"The suite {suite.name}", why=why)
    texts = []
    for task in suite.tasks:
        files, words = load_files(task), [task.prompt]
        tree = {file.path: set(file.content.splitlines()) for file in files.tree}
        for file in chain(*(part.solution or () for part in files.parts)):
            new = (
                line for line in file.content.splitlines() if line not in tree.get(file.path, ())
            )
            words.append(b"\n".join(new).decode(errors="replace"))
        texts.append((task.name, "\n".join(words)))
    sources = suite.sources
    content = SuiteContent(tuple(texts), sources.sessions, sources.repos, sources.commits)
    tasks = tuple(SuiteTask(task.name, task.tags, task.digest) for task in suite.tasks)
    return add_suite(database, tenant, SuiteVersion(suite.name, suite.version, tasks, content))


def _audited(model: AuditModel | None, outcome: AttemptOutcome) -> AttemptOutcome:
    if model is None or outcome.transcript is None:
        return outcome
    result, why_not = model.audit(outcome.result, outcome.transcript)
    return replace(outcome, result=result, marks=(*outcome.marks, *filter(None, [why_not])))


def _commit(database: Database, scope: AttemptScope, run: str, outcome: AttemptOutcome) -> Attempt:
    """Record an outcome. If another run recorded this attempt first, its result counts."""
    result = outcome.result
    problems = [{"problem": mark} for mark in outcome.marks]
    if result.error is not None:
        problems.append({"problem": result.error, "output": outcome.output[-2_000:]})
    place = {"task": result.task, "attempt": result.attempt}
    with suppress(AttemptConflict), database.write() as connection:
        if record_attempts(connection, scope, run, [result]):
            for problem in problems:
                note_problem(connection, scope, run, place | problem)
            return result
    return _results(database, scope)[result.place]


def _results(database: Database, scope: AttemptScope) -> dict[tuple[str, int], Attempt]:
    results = [recorded.result for recorded in attempts_of(database, scope)]
    return {result.place: result for result in results}


def _attempt_tasks(
    suite: Suite,
    conditions: RunConditions,
    planned: Sequence[PlannedAttempt],
    layers: Mapping[str, Layer],
    scope: AttemptScope,
) -> Iterator[AttemptTask]:
    """Make the executor's tasks. Files are read only when an attempt is taken."""
    for name, of_task in groupby(planned, key=lambda place: place.task):
        task = suite.task(name)
        files = load_files(task)
        known = audited_task(suite, task, files)
        for place in of_task:
            session = attempt_session(scope, name, place.attempt)
            work = AttemptTask(conditions, task, files, layers.get(name), place.attempt)
            yield replace(work, session=session, known=known)


# Attempts until the gate's verdict is decided

_ATTEMPTS_MAX_DEFAULT = 8
Stop = Literal["decided", "hopeless", "all looks taken"] | None
_STOPS: dict[Stop, str] = {
    "decided": "decided",
    "hopeless": "more attempts would hardly decide it; more tasks may",
    "all looks taken": "all planned attempts are made",
    None: "interrupted",
}


class LookResult(msgspec.Struct, frozen=True):
    """The verdict on one suite at a look. `stopped` is the reason why no attempts follow."""

    look: int
    looks: int
    verdict: Verdict | None
    stopped: Stop

    @property
    def document(self) -> dict[str, Any]:
        verdict = self.verdict
        outcome, why = (verdict.outcome, verdict.document["why"]) if verdict else (None, [])
        looks = {"look": self.look, "looks": self.looks, "stopped": self.stopped}
        return looks | {"outcome": outcome, "why": why}

    @property
    def text(self) -> str:
        outcome, why = self.document["outcome"] or "No verdict", "; ".join(self.document["why"])
        verdict = f"{outcome} on this suite at look {self.look} of {self.looks}"
        return f"{verdict}: {_STOPS[self.stopped]}.{f' ({why})' if why else ''}"


class UntilDecided:
    """Chooses the next attempts of a run. `ended` is the result of its last look."""

    def __init__(
        self, database: Database, scope: AttemptScope, channel: str, *, most: int | None = None
    ) -> None:
        """Plan attempts at a registered suite. Raises InvalidInput if nothing can be decided."""
        self._database, self._scope, self._channel = database, scope, channel
        evidence, requirements = self._evidence()
        suite = evidence.suites[scope.suite]
        least = max(required.attempts for required in requirements)
        limits = {"least": least, "most": most or _ATTEMPTS_MAX_DEFAULT}
        left_out = evidence.policy.left_out(scope.suite) if evidence.policy else {}
        tasks = [task for task in suite.tasks if task not in left_out]
        design = designs.make_design(tasks, _scores(suite.incumbent), **limits)
        design = designs.keep_design(database, scope, design)
        self.design: designs.Design = design.without(left_out)
        if most not in (None, self.design.allowed):
            why = f"its plan allows {self.design.allowed} attempts per task, not {most}"
            raise InvalidInput(what=f"The plan of {scope.checkpoint} on {scope.suite}", why=why)
        self.ended = LookResult(0, len(self.design.looks), None, None)

    def __call__(self, known: Sequence[Attempt]) -> list[PlannedAttempt]:
        progress, looks = designs.look_progress(self.design, known), len(self.design.looks)
        look, planned = progress.look, [PlannedAttempt(*place) for place in progress.missing]
        stopped: Stop = None
        verdict: Verdict | None = None
        if look:
            evidence, requirements = self._evidence()
            verdict = decide(evidence)
            if verdict.outcome != "INCONCLUSIVE":
                stopped = "decided"
            elif look == looks:
                stopped = "all looks taken"
            elif planned and self._is_hopeless(look, requirements, evidence, known):
                stopped = "hopeless"
        self.ended = LookResult(look, looks, verdict, stopped)
        return planned if stopped is None else []

    def _is_hopeless(
        self, look: int, required: Iterable[Requirement], evidence: Evidence, known: Attempts
    ) -> bool:
        numbers = designs.look_progress(self.design, known).numbers
        planned = (attempt for attempt in known if attempt.attempt in numbers.get(attempt.task, ()))
        incumbent = _scores(evidence.suites[self._scope.suite].incumbent)
        facts = self.design, look, scores_by_task(planned), incumbent
        return any(
            designs.is_hopeless(*facts, margin=each.margin, alpha=each.alpha)
            for each in required
            if each.margin is not None and each.metric == "score"
        )

    def _evidence(self) -> tuple[Evidence, tuple[Requirement, ...]]:
        scope = self._scope
        candidate = scope.tenant, self._channel, scope.checkpoint
        evidence = channel_evidence(self._database, *candidate, full=False)
        policy, suite = evidence.policy, evidence.suites.get(scope.suite)
        what = f"A plan for {scope.checkpoint} on {scope.suite} by {self._channel}"
        if policy is None:
            why = evidence.policy_problem or "the channel has no policy, so nothing can be decided"
            raise InvalidInput(what=what, why=why)
        required = [each for each in policy.require if each.suite == scope.suite]
        if suite is None or not required:
            why = f"the policy requires nothing on {scope.suite}; give a number of attempts instead"
            raise InvalidInput(what=what, why=why)
        if suite.version != scope.suite_version:
            why = f"the gate counts version {suite.version}; this run is of {scope.suite_version}"
            raise InvalidInput(what=what, why=why)
        if evidence.incumbent and not _scores(suite.incumbent):
            why = f"the incumbent {evidence.incumbent.name} has no results there"
            raise InvalidInput(what=what, why=why)
        # If one requirement is enough, each keeps its share of alpha.
        chances = len(policy.require) if policy.combine == "any" else 1
        require = tuple(replace(each, alpha=each.alpha / chances) for each in required)
        guards = tuple(guard for guard in policy.guards if guard.suite == scope.suite)
        policy = replace(policy, require=require, guards=guards, live=(), combine="all")
        return replace(evidence, policy=policy, suites={scope.suite: suite}), require


def _scores(side: SideEvidence | None) -> dict[str, list[float]]:
    return scores_by_task(recorded.result for recorded in side.attempts) if side else {}
