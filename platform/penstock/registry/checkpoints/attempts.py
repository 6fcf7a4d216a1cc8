"""Attempts: results of checkpoints at the tasks of suites, and the runs that made them."""

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from operator import attrgetter
from typing import Any, Literal

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.access.privacy.retention import RetentionCount, RetentionPart, RetentionScope
from penstock.backends.database.engine import Database, clock_us, insert_new, portions, put_rows
from penstock.core.errors import InvalidInput
from penstock.lake.lake import Lake
from penstock.registry.checkpoints.checkpoint import AttemptConflict, check_name, check_reason
from penstock.registry.checkpoints.digests import text_digest
from penstock.registry.checkpoints.harness import Harness, harness_in
from penstock.registry.checkpoints.journal import (
    AttemptScope,
    append_attempts,
    append_entry,
    json_text,
)
from penstock.registry.checkpoints.tables import attempt_output, benchmark_attempt, benchmark_run


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """A result. With an `error` it has no score and says nothing about the model."""

    task: str
    attempt: int
    score: float | None = None
    error: str | None = None
    completion_tokens: int | None = None
    prompt_tokens: int | None = None
    cost_usd: float | None = None
    latency_s: float | None = None
    steps: int | None = None
    tool_calls: int | None = None
    invalid_tool_calls: int | None = None
    edited: bool | None = None
    asked: bool | None = None
    bits_per_byte: float | None = None
    retries: int = 0
    #: The id of the trial, whatever its number; None if unknown.
    trial: str | None = field(default=None, compare=False)
    #: What its transcript told, as JSON of an AttemptAudit; None without a transcript.
    audit: str | None = field(default=None, compare=False)

    @property
    def status(self) -> Literal["scored", "error"]:
        return "scored" if self.error is None else "error"

    def is_not(self, other: "Attempt") -> bool:
        """Whether the ids show two different trials."""
        return None not in (self.trial, other.trial) and self.trial != other.trial

    @property
    def place(self) -> tuple[str, int]:
        return self.task, self.attempt


@dataclass(frozen=True)
class ErrorGroup:
    error: str
    count: int
    tasks: tuple[str, ...]

    @property
    def text(self) -> str:
        return f"{self.count} × {self.error} ({listed(self.tasks)})"


def error_groups(attempts: Iterable[Attempt]) -> tuple[ErrorGroup, ...]:
    """Group errors with their tasks, the most frequent first."""
    tasks: dict[str, list[str]] = {}
    for attempt in attempts:
        if attempt.error is not None:
            tasks.setdefault(error_kind(attempt.error), []).append(attempt.task)
    groups = [ErrorGroup(kind, len(at), tuple(sorted({*at}))) for kind, at in tasks.items()]
    return tuple(sorted(groups, key=lambda group: (-group.count, group.error)))


def error_kind(error: str) -> str:
    return error.partition(": ")[0] or "error"


def shortened(text: object, chars_max: int = 500) -> str:
    """One printable line, cut to a length."""
    line = " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())
    return line if len(line) <= chars_max else f"{line[: chars_max - 1]}…"


def listed(names: Iterable[str]) -> str:
    """The first three names, and how many more there are."""
    known = sorted(names)
    return ", ".join(known[:3]) + (f" and {len(known) - 3} more" if len(known) > 3 else "")


RESULT_FIELDS = tuple(each.name for each in fields(Attempt) if each.compare)
_READ_FIELDS = tuple(each.name for each in fields(Attempt))
result_values: Callable[[Attempt], tuple[Any, ...]] = attrgetter(*RESULT_FIELDS)


class Finding(msgspec.Struct, frozen=True):
    """A find in a transcript: by which rule, at which step, and the text there."""

    rule: str
    step: int
    text: str


class AttemptAudit(msgspec.Struct, frozen=True):
    """The audit of a transcript with so many steps."""

    steps: int
    findings: tuple[Finding, ...] = ()
    #: The score that a suspect attempt would have.
    score: float | None = None
    #: Who took it for honest, and why.
    cleared: str | None = None
    #: The model that read it beside the rules, with its prompt's digest.
    model: str | None = None


def with_audit(attempt: Attempt, audit: AttemptAudit | None) -> Attempt:
    """An attempt as it counts: a suspect one is an error, neither a pass nor a failure."""
    if audit is None or attempt.score is None:
        return attempt
    if not audit.findings:
        return replace(attempt, audit=json_text(audit))
    first, kept = audit.findings[0], msgspec.structs.replace(audit, score=attempt.score)
    why = f"suspect of {first.rule}: step {first.step}: {first.text}"
    return replace(attempt, score=None, error=why, audit=json_text(kept))


def audit_in(attempt: Attempt) -> AttemptAudit | None:
    return msgspec.json.decode(attempt.audit, type=AttemptAudit) if attempt.audit else None


@dataclass(frozen=True)
class RecordedAttempt:
    result: Attempt
    run: str
    scored_at: int


def check_attempt(attempt: Attempt) -> None:
    """Raises InvalidInput for an impossible result."""
    why = ""
    if not 0 < len(attempt.task) <= 255 or not attempt.task.isprintable():
        why = "a task's name must be printable text of at most 255 characters"
    elif not 0 <= attempt.attempt < 2**31:
        why = "the number of an attempt must be 0 or more"
    elif (attempt.score is None) == (attempt.error is None):
        why = "it must have either a score or an error"
    elif attempt.score is not None and not 0 <= attempt.score <= 1:  # NaN neither
        why = f"its score is {attempt.score}; scores lie between 0 and 1"
    else:
        for name in RESULT_FIELDS[4:]:
            value = getattr(attempt, name)
            if isinstance(value, (int, float)) and not 0 <= value < 2**63:  # NaN neither
                why = f"its {name} is {value}, which is impossible"
                break
    if why:
        what = f"Attempt {attempt.attempt} at the task {attempt.task!r}"
        raise InvalidInput(what=what, why=why)


def record_attempts(
    connection: Connection, scope: AttemptScope, run: str, attempts: Iterable[Attempt]
) -> list[Attempt]:
    """Record attempts, and return the new ones. A score replaces an error, never the reverse.
    Raises InvalidInput, AttemptConflict."""
    by_place = {attempt.place: attempt for attempt in attempts}
    for attempt in by_place.values():
        check_attempt(attempt)
    scope.chain.hold(connection, make=True)  # nobody else records here until this has ended
    new, now = new_attempts(connection, scope, [*by_place.values()]), clock_us(connection)
    rows = [_row(scope, RecordedAttempt(attempt, run, now)) for attempt in new]
    put_rows(connection, benchmark_attempt, rows)
    append_attempts(connection, scope, rows)
    return new


def record_audits(
    connection: Connection, scope: AttemptScope, audited: Iterable[RecordedAttempt]
) -> None:
    """Put recorded attempts as they count now in the place of what was known of them."""
    for each in audited:
        row = _row(scope, each)
        put_rows(connection, benchmark_attempt, [row])
        append_attempts(connection, scope, [row])


def _row(scope: AttemptScope, known: RecordedAttempt) -> dict[str, Any]:
    facts = {"run": known.run, "scored_at": known.scored_at, "status": known.result.status}
    return asdict(scope) | asdict(known.result) | facts


def clear_attempt(
    database: Database, scope: AttemptScope, place: tuple[str, int], actor: str, reason: str
) -> None:
    """Record that a person takes a suspect attempt for honest. Raises InvalidInput."""
    cleared = f"{check_name('Who does it', actor)}: {check_reason(reason)}"
    with database.write() as connection:
        known = {each.result.place: each for each in read_attempts(connection, scope)}
        audit = audit_in(known[place].result) if place in known else None
        if audit is None or audit.score is None or audit.cleared:
            what = f"Attempt {place[1]} at the task {place[0]!r}"
            raise InvalidInput(what=what, why="no audit suspects it")
        audit = msgspec.structs.replace(audit, cleared=cleared)
        result = replace(known[place].result, score=audit.score, error=None, audit=json_text(audit))
        record_audits(connection, scope, [replace(known[place], result=result)])


def new_attempts(
    connection: Connection, scope: AttemptScope, attempts: Sequence[Attempt]
) -> list[Attempt]:
    """The attempts that `record_attempts` would keep; their places are distinct. Raises
    AttemptConflict."""
    tasks = {attempt.task for attempt in attempts}
    known = read_attempts(connection, scope, task=tasks.pop() if len(tasks) == 1 else None)
    recorded = {each.result.place: each for each in known}
    new = []
    for attempt in attempts:
        before = recorded.get(attempt.place)
        failed = before and before.result.error is not None and before.result.audit is None
        if before is None or (failed and attempt.error is None):
            new.append(attempt)
        elif attempt.error is None and (before.result != attempt or before.result.is_not(attempt)):
            place = {"checkpoint": scope.checkpoint, "suite": scope.suite, "run": before.run}
            raise AttemptConflict(attempt=attempt.attempt, task=attempt.task, **place)
    return new


def attempts_of(database: Database, scope: AttemptScope) -> list[RecordedAttempt]:
    with database.read() as connection:
        return read_attempts(connection, scope)


def read_attempts(
    connection: Connection, scope: AttemptScope, *, task: str | None = None
) -> list[RecordedAttempt]:
    columns = benchmark_attempt.c
    own = sa.true() if task is None else columns.task == task
    query = (
        sa.select(*(columns[name] for name in (*_READ_FIELDS, "run", "scored_at")))
        .where(scope.condition(benchmark_attempt), own)
        .order_by(columns.task, columns.attempt)
    )
    return [
        RecordedAttempt(Attempt(**dict(zip(_READ_FIELDS, row, strict=False))), *row[-2:])
        for row in connection.execute(query)
    ]


def versions_tried(database: Database, tenant: str, suite: str, checkpoint: str) -> list[str]:
    """The versions of a suite with attempts of a checkpoint, the latest last."""
    columns = benchmark_attempt.c
    own = columns.tenant == tenant, columns.suite == suite, columns.checkpoint == checkpoint
    return _tried(database, columns.suite_version, sa.func.max(columns.scored_at), *own)


def checkpoints_tried(database: Database, tenant: str, suite: str) -> list[str]:
    """Checkpoints with attempts, the first one first."""
    columns = benchmark_attempt.c
    own = columns.tenant == tenant, columns.suite == suite
    return _tried(database, columns.checkpoint, sa.func.min(columns.scored_at), *own)


def _tried(database: Database, column: Any, moment: Any, *own: Any) -> list[str]:
    query = sa.select(column).where(*own).group_by(column).order_by(moment, column)
    return list(database.scalars(query))


def variants_tried(database: Database, tenant: str, suite: str, mark: str) -> list[str]:
    """The suite, and its variants with attempts."""
    columns = benchmark_attempt.c
    query = sa.select(columns.suite).where(columns.tenant == tenant)
    query = query.where(columns.suite.startswith(f"{suite}{mark}", autoescape=True))
    return [suite, *database.scalars(query.distinct().order_by(columns.suite))]


@dataclass(frozen=True)
class BenchmarkRun:
    id: str
    kind: str
    source: str
    conditions: Mapping[str, Any]
    problems: Sequence[Any]
    started_at: int
    finished_at: int | None

    @property
    def harness(self) -> Harness | None:
        return harness_in(self.conditions)


def begin_run(
    database: Database, scope: AttemptScope, *, source: str, conditions: Mapping[str, Any]
) -> str:
    with database.write() as connection:
        now = clock_us(connection)
        made = BenchmarkRun(uuid.uuid4().hex, "run", source, conditions, [], now, None)
        record_run(connection, scope, made)
    return made.id


def record_run(connection: Connection, scope: AttemptScope, run: BenchmarkRun) -> None:
    """Record a run, unless it is already known."""
    facts = {field.name: getattr(run, field.name) for field in fields(run)}
    encoded = {name: json_text(facts[name]) for name in ("conditions", "problems")}
    if insert_new(connection, benchmark_run, asdict(scope) | facts | encoded):
        append_entry(connection, scope, "run", facts)


def note_problem(
    connection: Connection, scope: AttemptScope, run: str, problem: Mapping[str, Any]
) -> None:
    """Record a problem in the transaction of its attempt, with its output as a digest."""
    problem = set_output_apart(connection, scope.tenant, problem)
    own = benchmark_run.c.id == run  # only the run's own process reads and writes it
    known = connection.scalar(sa.select(benchmark_run.c.problems).where(own)) or "[]"
    problems = json_text([*msgspec.json.decode(known), problem])
    connection.execute(sa.update(benchmark_run).where(own).values(problems=problems))
    append_entry(connection, scope, "problem", {"run": run, "problem": problem})


def finish_run(database: Database, scope: AttemptScope, run: str) -> None:
    own = sa.update(benchmark_run).where(benchmark_run.c.id == run)
    with database.write() as connection:
        now = clock_us(connection)
        connection.execute(own.values(finished_at=now))
        append_entry(connection, scope, "end", {"run": run, "finished_at": now})


def runs_of(database: Database, scope: AttemptScope) -> list[BenchmarkRun]:
    columns = benchmark_run.c
    query = (
        sa.select(*(columns[field.name] for field in fields(BenchmarkRun)))
        .where(scope.condition(benchmark_run))
        .order_by(columns.started_at, columns.id)
    )
    runs = []
    with database.read() as connection:
        for row in connection.execute(query):
            problems = msgspec.json.decode(row.problems)
            shown = {
                "conditions": msgspec.json.decode(row.conditions or "{}"),
                "problems": with_outputs(connection, scope.tenant, problems),
            }
            runs.append(BenchmarkRun(**{**row._mapping, **shown}))
    return runs


# Outputs of failed attempts. The journal holds only their digests, so old texts can be deleted
# without changing it.


def set_output_apart(
    connection: Connection, tenant: str, problem: Mapping[str, Any]
) -> dict[str, Any]:
    """Store the output of a problem, and put its digest in its place."""
    if not problem.get("output"):
        return dict(problem)
    text = problem["output"].encode("utf-8", "replace").decode().replace("\0", "\ufffd")
    row = {"tenant": tenant, "digest": text_digest(text), "text": text}
    # A repeated output is as recent as its last attempt.
    put_rows(connection, attempt_output, [row | {"recorded_at": clock_us(connection)}])
    return {**problem, "output": row["digest"]}


def with_outputs(
    connection: Connection, tenant: str, problems: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Put stored outputs back in place of their digests."""
    digests = {each["output"] for each in problems if each.get("output")}
    columns = attempt_output.c
    texts: dict[str, str] = {}
    for some in portions(sorted(digests)):
        query = sa.select(columns.digest, columns.text).where(columns.tenant == tenant)
        rows = connection.execute(query.where(columns.digest.in_(some)))
        texts.update((row.digest, row.text) for row in rows)
    return [
        each | {"output": texts.get(each["output"], each["output"])} if each.get("output") else each
        for each in problems
    ]


def _aged(scope: RetentionScope) -> sa.ColumnElement[bool]:
    columns = attempt_output.c
    return (columns.tenant == scope.tenant) & (columns.recorded_at <= scope.until_us)


def _count(lake: Lake, scope: RetentionScope) -> RetentionCount:
    size = sa.func.coalesce(sa.func.sum(sa.func.length(attempt_output.c.text)), 0)
    query = sa.select(sa.func.count(), size).select_from(attempt_output).where(_aged(scope))
    with lake.database.read() as connection:
        rows, characters = connection.execute(query).one()
    return RetentionCount(rows=rows, bytes=characters)


def _remove(lake: Lake, scope: RetentionScope) -> RetentionCount:
    counted = _count(lake, scope)
    with lake.database.write() as connection:
        rows = connection.execute(sa.delete(attempt_output).where(_aged(scope))).rowcount
    return RetentionCount(rows=rows, bytes=counted.bytes)


ATTEMPTS = RetentionPart(_count, _remove)
