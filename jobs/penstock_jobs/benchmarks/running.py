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
from penstock_jobs.benchmarks.attempting import Conditions, Outcome, Work, attempt_task
from penstock_jobs.benchmarks.errors import AgentSilent, BenchmarkStopped, ServingUnreachable
from penstock_jobs.benchmarks.sandbox import Views
from penstock_jobs.benchmarks.sandbox.addresses import address_of, split
from penstock_jobs.benchmarks.sandbox.views import named_places
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
class Wanted:
    """An attempt that is to be made."""

    attempt: int
    task: str


#: Told what is known by now, says which attempts come next; none ends the run. What is known
#: already is left out of what it asks for.
Choose = Callable[[Sequence[Attempt]], Sequence[Wanted]]
#: Told of each attempt that is done: how many, and of how many that are known by then.
Follow = Callable[[int, int], None]


@dataclass(frozen=True)
class Options:
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
class Report:
    """What a run did."""

    run: str
    place: AttemptScope
    #: How many attempts it made, and how many were known already.
    made: int
    known: int


def run(
    lake: Lake,
    executor: Executor,
    suite: Suite,
    checkpoint: str,
    options: Options,
    *,
    tenant: str,
    choose: Choose | None = None,
    follow: Follow = lambda _done, _of: None,
) -> Report:
    """The checkpoint is the name of a registered one. Raises SuiteUnfit, ServingUnreachable,
    IsolationImpossible, AgentMissing, AgentSilent, BenchmarkStopped, what the executor raises; what
    was committed stays."""
    settings = lake.settings
    choose = choose or each_task(suite, options)
    conditions = conditions_of(settings, suite, checkpoint, options)
    place = AttemptScope(tenant, suite.name, suite.version, checkpoint)
    look_at_serving(options.serving)
    register_suite(lake.database, tenant, suite, TASK_BYTES_MAX)
    begun = begin_run(lake.database, place, source=options.agent, conditions=_facts(conditions))
    results = {_key(one.result): one.result for one in attempts_of(lake.database, place)}
    before = done = len(results)
    errors = 0  # one after another
    silent: list[Outcome] = []
    while wanted := [one for one in choose(list(results.values())) if _asked(one) not in results]:
        of = done + len(wanted)
        works = _works(suite, conditions, wanted, TASK_BYTES_MAX)
        for one in executor.run(attempt_task, works):
            if one.result.silent is not None and not results:
                silent.append(one.result)
                refuse_silence(silent, min(_SILENT_MAX, len(wanted)))
                continue
            for outcome in (*silent, one.result):
                result = commit(lake.database, place, begun, outcome)
                results[_key(result)] = result
                done += 1
                follow(done, of)
                errors = 0 if result.error is None else errors + 1
                if errors >= ERRORS_MAX:
                    raise BenchmarkStopped(errors=errors, suite=suite.name, why=result.error)
            silent = []
    finish_run(lake.database, begun)
    return Report(begun, place, done - before, before)


def refuse_silence(silent: Sequence[Outcome], most: int) -> None:
    """Scores are for ever: an agent that fails at once, again and again, before it has done
    anything, is more likely to be called wrongly than to be so bad. Raises AgentSilent."""
    if len(silent) >= most:
        last = silent[-1]
        raise AgentSilent(attempts=len(silent), how=", ".join(last.marks), output=last.silent)


def each_task(suite: Suite, options: Options) -> Choose:
    """So many attempts at each task. Raises SuiteUnfit for a task that is not there."""
    names = [suite.task(name).name for name in options.tasks] or [one.name for one in suite.tasks]
    attempts = options.attempts or suite.attempts
    # The first attempts come first: what is there of a run that is cut off covers the suite.
    all_of_them = [Wanted(attempt, name) for attempt in range(attempts) for name in names]
    return lambda _known: all_of_them


def conditions_of(
    settings: Settings, suite: Suite, checkpoint: str, options: Options
) -> Conditions:
    """Nobody in a room sees the suite, nor this lake."""
    hidden = (str(suite.folder), str(settings.data), *options.hidden)
    return Conditions(
        agent=options.agent,
        suite=suite.name,
        checkpoint=checkpoint,
        serving=options.serving,
        environment=options.environment,
        allow=suite.allow,
        isolated=options.isolated,
        views=Views(hidden=hidden, visible=(*named_places(options.agent), *options.visible)),
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


def commit(database: Database, place: AttemptScope, run: str, outcome: Outcome) -> Attempt:
    """One transaction. Where another run was faster, its result is the result."""
    result = outcome.result
    with suppress(AttemptConflict), database.write() as connection:
        if record_attempts(connection, place, run, [result]):
            for problem in _problems(outcome):
                note_problem(connection, run, problem)
            return result
    kept = {_key(one.result): one.result for one in attempts_of(database, place)}
    return kept[_key(result)]


def _problems(outcome: Outcome) -> Iterator[dict[str, object]]:
    result = outcome.result
    where: dict[str, object] = {"task": result.task, "attempt": result.attempt}
    for mark in outcome.marks:
        yield where | {"problem": mark}
    if result.error is not None:
        yield where | {"problem": result.error, "output": outcome.output[-_OUTPUT_CHARS_MAX:]}


def _works(
    suite: Suite, conditions: Conditions, wanted: Sequence[Wanted], bytes_max: int
) -> Iterator[Work]:
    """Files are read as there is room for their attempts."""
    last: tuple[str, TaskFiles] | None = None
    for one in wanted:
        task = suite.task(one.task)
        if last is None or last[0] != one.task:
            last = one.task, load_files(task, bytes_max)
        yield Work(conditions, task, last[1], one.task, one.attempt)


def _facts(conditions: Conditions) -> dict[str, object]:
    """What may be known of them: of the environment its names."""
    facts = asdict(conditions)
    facts["environment"] = sorted(conditions.environment)
    return facts


def _key(result: Attempt) -> tuple[str, int]:
    return result.task, result.attempt


def _asked(one: Wanted) -> tuple[str, int]:
    return one.task, one.attempt
