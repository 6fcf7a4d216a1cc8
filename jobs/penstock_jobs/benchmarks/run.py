"""A run of a suite: attempts on the executor, each result committed as it ends.

A run that is cut off leaves what it committed, and the next does only the rest: results never
change, and none is there twice. Two runs at once do some work twice; the first result counts.
"""

import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field

from penstock.checkpoints.attempts import (
    Attempt,
    AttemptScope,
    attempts_of,
    begin_run,
    finish_run,
    note_problem,
    record_attempts,
)
from penstock.checkpoints.errors import AttemptConflict
from penstock.checkpoints.suites import SuiteContent, SuiteTask, SuiteVersion, add_suite
from penstock.database.engine import Database
from penstock.execution import Executor
from penstock.lake.lake import Lake
from penstock.settings import Settings
from penstock_jobs.benchmarks.attempt import (
    AttemptOutcome,
    AttemptTask,
    RunConditions,
    attempt_task,
)
from penstock_jobs.benchmarks.errors import AgentUnusable, BenchmarkStopped, ServingUnreachable
from penstock_jobs.benchmarks.sandbox.network import address_of, split
from penstock_jobs.benchmarks.sandbox.sandbox import PathRules
from penstock_jobs.benchmarks.sandbox.visible_files import named_places
from penstock_jobs.benchmarks.suite import Suite, TaskFiles, load_files, load_solution

#: Attempts one after another that say nothing about the model, before a run stops.
ERRORS_MAX = 20
#: See RunConditions.
RETRY_SECONDS = 1.0
_PREFLIGHT_SECONDS_MAX = 10.0
_OUTPUT_CHARS_MAX = 2_000
#: So many attempts in which an agent fails without a trace, before any other, end a run.
_SILENT_MAX = 5


@dataclass(frozen=True, order=True)
class PlannedAttempt:
    attempt: int
    task: str

    @property
    def key(self) -> tuple[str, int]:
        return self.task, self.attempt


#: Gets the known attempts and returns the next ones; none ends the run. Attempts in its answer that
#: are known already are left out.
ChooseAttempts = Callable[[Sequence[Attempt]], Sequence[PlannedAttempt]]


@dataclass(frozen=True)
class RunOptions:
    agent: str
    serving: str | None = None
    #: At each task. The suite has a default.
    attempts: int | None = None
    #: Only these tasks, if there are any.
    tasks: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    isolated: bool = True
    hidden: tuple[str, ...] = ()
    visible: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunReport:
    run: str
    scope: AttemptScope
    #: How many attempts it made, and how many were known already.
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
) -> RunReport:
    """The checkpoint is the name of a registered one. After each attempt `follow` gets how many are
    done, of how many that are planned by then. What was committed stays, whatever is raised:
    InvalidInput, ServingUnreachable, IsolationImpossible, AgentUnusable, BenchmarkStopped, and what
    the executor raises."""
    choose = choose or each_task(suite, options)
    conditions = conditions_of(lake.settings, suite, checkpoint, options)
    scope = AttemptScope(tenant, suite.name, suite.version, checkpoint)
    _check_serving(options.serving)
    register_suite(lake.database, tenant, suite)
    # Which variables the agent got may be known, but not their values.
    facts = asdict(conditions) | {"environment": sorted(conditions.environment)}
    run = begin_run(lake.database, scope, source=options.agent, conditions=facts)
    results = _results(lake.database, scope)
    before = done = len(results)
    errors = 0  # one after another
    silent: list[AttemptOutcome] = []
    while planned := [
        attempt for attempt in choose(list(results.values())) if attempt.key not in results
    ]:
        total = done + len(planned)
        for finished in executor.run(attempt_task, _attempt_tasks(suite, conditions, planned)):
            if finished.result.silent is not None and not results:
                silent.append(finished.result)
                if len(silent) >= min(_SILENT_MAX, len(planned)):
                    raise _called_wrongly(silent)
                continue
            for outcome in (*silent, finished.result):
                result = _commit(lake.database, scope, run, outcome)
                results[result.task, result.attempt] = result
                done += 1
                follow(done, total)
                errors = 0 if result.error is None else errors + 1
                if errors >= ERRORS_MAX:
                    raise BenchmarkStopped(errors=errors, suite=suite.name, why=result.error)
            silent = []
    finish_run(lake.database, run)
    return RunReport(run, scope, done - before, before)


def _called_wrongly(silent: Sequence[AttemptOutcome]) -> AgentUnusable:
    """Scores are for ever. An agent that fails at once, again and again, before any other attempt
    was made, is more likely called wrongly than so bad."""
    marks, output = ", ".join(silent[-1].marks), silent[-1].silent
    why = (
        f"the first {len(silent)} attempts ended alike: {marks}, with no report and nothing edited."
        f" The end of its output: {output}. If this is what the model does, let the agent end"
        " with 0"
    )
    return AgentUnusable(why=why)


def each_task(suite: Suite, options: RunOptions) -> ChooseAttempts:
    """So many attempts at each task. Raises InvalidInput for a task that is not there."""
    tasks = [suite.task(name) for name in options.tasks] or suite.tasks
    attempts = options.attempts or suite.attempts
    # The first attempts come first: the results of a run that is cut off cover the suite.
    planned = [PlannedAttempt(attempt, task.name) for attempt in range(attempts) for task in tasks]
    return lambda _known: planned


def conditions_of(
    settings: Settings, suite: Suite, checkpoint: str, options: RunOptions
) -> RunConditions:
    """Agents see neither the suite nor this lake."""
    hidden = (str(suite.folder), str(settings.data), *options.hidden)
    return RunConditions(
        agent=options.agent,
        suite=suite.name,
        checkpoint=checkpoint,
        serving=options.serving,
        environment=options.environment,
        allow=suite.allow,
        isolated=options.isolated,
        views=PathRules(hidden=hidden, visible=(*named_places(options.agent), *options.visible)),
        retry_seconds=RETRY_SECONDS,
    )


def _check_serving(serving: str | None) -> None:
    """An address that nobody answers at would make an error of every attempt, for ever. Raises
    ServingUnreachable, InvalidInput."""
    if serving is None:
        return
    try:
        socket.create_connection(split(address_of(serving)), _PREFLIGHT_SECONDS_MAX).close()
    except OSError as error:
        raise ServingUnreachable(address=serving, why=error.strerror or error) from error


def register_suite(database: Database, tenant: str, suite: Suite) -> bool:
    """Make its version known, with the texts that its tasks can be recognised by. False when it
    was known already."""
    texts = []
    for task in suite.tasks:
        solution = load_solution(task) if task.has_solution else []
        tree = {file.path: file for file in load_files(task).tree}
        new = [file.content for file in solution if tree.get(file.path) != file]
        words = [task.prompt, *(content.decode(errors="replace") for content in new)]
        texts.append((task.name, "\n".join(words)))
    sources = suite.sources
    content = SuiteContent(tuple(texts), sources.sessions, sources.repos, sources.commits)
    tasks = tuple(SuiteTask(task.name, task.tags) for task in suite.tasks)
    return add_suite(database, tenant, SuiteVersion(suite.name, suite.version, tasks, content))


def _commit(database: Database, scope: AttemptScope, run: str, outcome: AttemptOutcome) -> Attempt:
    """One transaction. Where another run was faster, its result is the result."""
    result = outcome.result
    problems: list[dict[str, object]] = [{"problem": mark} for mark in outcome.marks]
    if result.error is not None:
        problems.append({"problem": result.error, "output": outcome.output[-_OUTPUT_CHARS_MAX:]})
    with suppress(AttemptConflict), database.write() as connection:
        if record_attempts(connection, scope, run, [result]):
            for problem in problems:
                facts = {"task": result.task, "attempt": result.attempt} | problem
                note_problem(connection, run, facts)
            return result
    return _results(database, scope)[result.task, result.attempt]


def _results(database: Database, scope: AttemptScope) -> dict[tuple[str, int], Attempt]:
    results = [recorded.result for recorded in attempts_of(database, scope)]
    return {(result.task, result.attempt): result for result in results}


def _attempt_tasks(
    suite: Suite, conditions: RunConditions, planned: Sequence[PlannedAttempt]
) -> Iterator[AttemptTask]:
    """Files are read only when the executor takes their attempts."""
    last: tuple[str, TaskFiles] | None = None
    for attempt in planned:
        task = suite.task(attempt.task)
        if last is None or last[0] != task.name:
            last = task.name, load_files(task)
        yield AttemptTask(conditions, task, last[1], attempt.attempt)
