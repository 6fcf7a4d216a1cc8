"""A run of a suite: attempts on the executor, each result committed as it ends.

A run that is cut off leaves what it committed, and the next does only the rest: results never
change, and none is there twice. Two runs at once do some work twice; the first result counts.
"""

import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field

from penstock.checkpoints.attempt import Attempt, AttemptScope
from penstock.checkpoints.errors import AttemptConflict
from penstock.checkpoints.scores import (
    attempts_of,
    begin_run,
    finish_run,
    note_problem,
    record_attempts,
)
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
from penstock_jobs.benchmarks.suite import (
    TASK_BYTES_MAX,
    Suite,
    TaskFiles,
    load_files,
    load_solution,
)

#: Attempts one after another that say nothing about the model, before a run stops.
ERRORS_MAX = 20
#: Tries of an attempt that errs for reasons outside the model.
_TRIES_MAX = 3
#: The pause before its second try; each further pause is twice as long.
RETRY_SECONDS = 1.0
#: What is kept of the output of an agent or a check; its middle is left out.
_OUTPUT_BYTES_MAX = 64 * 1024
#: The report of an agent.
_REPORT_BYTES_MAX = 256 * 1024

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


#: Gets the known attempts, and says which come next; none ends the run. Attempts that are known
#: already are left out of its answer.
ChooseAttempts = Callable[[Sequence[Attempt]], Sequence[PlannedAttempt]]
#: Called after each attempt: how many are done, of how many that are planned by then.
Follow = Callable[[int, int], None]


@dataclass(frozen=True)
class RunOptions:
    agent: str
    serving: str | None = None
    #: Of each task; the suite says otherwise.
    attempts: int | None = None
    #: Only these.
    tasks: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    isolated: bool = True
    hidden: tuple[str, ...] = ()
    visible: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunReport:
    """What a run did."""

    run: str
    place: AttemptScope
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
    follow: Follow = lambda _done, _of: None,
) -> RunReport:
    """The checkpoint is the name of a registered one. What was committed stays, whatever is raised:
    InvalidInput, ServingUnreachable, IsolationImpossible, AgentUnusable, BenchmarkStopped, and what
    the executor raises."""
    settings = lake.settings
    choose = choose or each_task(suite, options)
    conditions = conditions_of(settings, suite, checkpoint, options)
    place = AttemptScope(tenant, suite.name, suite.version, checkpoint)
    look_at_serving(options.serving)
    register_suite(lake.database, tenant, suite, TASK_BYTES_MAX)
    # Which variables the agent got may be known, but not what is in them.
    facts = asdict(conditions) | {"environment": sorted(conditions.environment)}
    run = begin_run(lake.database, place, source=options.agent, conditions=facts)
    results = _results(lake.database, place)
    before = done = len(results)
    errors = 0  # one after another
    silent: list[AttemptOutcome] = []
    while planned := [one for one in choose(list(results.values())) if one.key not in results]:
        total = done + len(planned)
        tasks = _attempt_tasks(suite, conditions, planned, TASK_BYTES_MAX)
        for finished in executor.run(attempt_task, tasks):
            if finished.result.silent is not None and not results:
                silent.append(finished.result)
                refuse_silence(silent, min(_SILENT_MAX, len(planned)))
                continue
            for outcome in (*silent, finished.result):
                result = commit(lake.database, place, run, outcome)
                results[result.task, result.attempt] = result
                done += 1
                follow(done, total)
                errors = 0 if result.error is None else errors + 1
                if errors >= ERRORS_MAX:
                    raise BenchmarkStopped(errors=errors, suite=suite.name, why=result.error)
            silent = []
    finish_run(lake.database, run)
    return RunReport(run, place, done - before, before)


def refuse_silence(silent: Sequence[AttemptOutcome], most: int) -> None:
    """Scores are for ever. An agent that fails at once, again and again, before any other attempt
    was made, is more likely called wrongly than so bad. Raises AgentUnusable."""
    if len(silent) >= most:
        last = silent[-1]
        why = (
            f"the first {len(silent)} attempts ended alike: {', '.join(last.marks)}, with no report"
            f" and nothing edited. The end of its output: {last.silent}. If this is what the model"
            " does, let the agent end with 0"
        )
        raise AgentUnusable(why=why)


def each_task(suite: Suite, options: RunOptions) -> ChooseAttempts:
    """So many attempts at each task. Raises InvalidInput for a task that is not there."""
    names = [suite.task(name).name for name in options.tasks] or [one.name for one in suite.tasks]
    attempts = options.attempts or suite.attempts
    # The first attempts come first: what is there of a run that is cut off covers the suite.
    all_of_them = [PlannedAttempt(attempt, name) for attempt in range(attempts) for name in names]
    return lambda _known: all_of_them


def conditions_of(
    settings: Settings, suite: Suite, checkpoint: str, options: RunOptions
) -> RunConditions:
    """Nobody in a room sees the suite, nor this lake."""
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
        tries_max=_TRIES_MAX,
        retry_seconds=RETRY_SECONDS,
        output_bytes_max=_OUTPUT_BYTES_MAX,
        report_bytes_max=_REPORT_BYTES_MAX,
    )


def look_at_serving(serving: str | None) -> None:
    """An address that nobody answers at would make an error of every attempt, for ever. Raises
    ServingUnreachable, InvalidInput."""
    if serving is None:
        return
    try:
        socket.create_connection(split(address_of(serving)), _PREFLIGHT_SECONDS_MAX).close()
    except OSError as error:
        raise ServingUnreachable(address=serving, why=error.strerror or error) from error


def register_suite(database: Database, tenant: str, suite: Suite, bytes_max: int) -> bool:
    """Make its version known, with what its tasks can be recognised by. False when it was."""
    texts = []
    for task in suite.tasks:
        answer = load_solution(task, bytes_max) if task.has_solution else []
        tree = {file.path: file for file in load_files(task, bytes_max).tree}
        new = [file.content for file in answer if tree.get(file.path) != file]
        words = [task.prompt, *(content.decode(errors="replace") for content in new)]
        texts.append((task.name, "\n".join(words)))
    sources = suite.sources
    content = SuiteContent(tuple(texts), sources.sessions, sources.repos, sources.commits)
    tasks = tuple(SuiteTask(one.name, one.tags) for one in suite.tasks)
    return add_suite(database, tenant, SuiteVersion(suite.name, suite.version, tasks, content))


def commit(database: Database, place: AttemptScope, run: str, outcome: AttemptOutcome) -> Attempt:
    """One transaction. Where another run was faster, its result is the result."""
    result = outcome.result
    with suppress(AttemptConflict), database.write() as connection:
        if record_attempts(connection, place, run, [result]):
            for problem in _problems(outcome):
                note_problem(connection, run, problem)
            return result
    return _results(database, place)[result.task, result.attempt]


def _results(database: Database, place: AttemptScope) -> dict[tuple[str, int], Attempt]:
    kept = attempts_of(database, place)
    return {(one.result.task, one.result.attempt): one.result for one in kept}


def _problems(outcome: AttemptOutcome) -> Iterator[dict[str, object]]:
    result = outcome.result
    where: dict[str, object] = {"task": result.task, "attempt": result.attempt}
    for mark in outcome.marks:
        yield where | {"problem": mark}
    if result.error is not None:
        yield where | {"problem": result.error, "output": outcome.output[-_OUTPUT_CHARS_MAX:]}


def _attempt_tasks(
    suite: Suite, conditions: RunConditions, planned: Sequence[PlannedAttempt], bytes_max: int
) -> Iterator[AttemptTask]:
    """Files are read only when the executor takes their attempts."""
    last: tuple[str, TaskFiles] | None = None
    for one in planned:
        task = suite.task(one.task)
        if last is None or last[0] != one.task:
            last = one.task, load_files(task, bytes_max)
        yield AttemptTask(conditions, task, last[1], one.task, one.attempt)
