"""Cycles and their stages in the database.

Each change is a compare-and-swap, on the number of a cycle or the epoch of a stage's claim."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from functools import cached_property
from threading import Event
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import sqlalchemy as sa
import structlog

from penstock.backends.database import DatabaseUnreachable
from penstock.backends.database.engine import Database, insert_new, now_us
from penstock.backends.database.leases import repeating
from penstock.backends.terminal.output import time_text
from penstock.core.clock import SECOND_US
from penstock.core.errors import PenstockError
from penstock.registry.checkpoints.digests import text_digest
from penstock_jobs.loop.tables import loop_cycle, loop_stage

if TYPE_CHECKING:
    from penstock.registry.proof.document import ProofSubject


class StageLost(PenstockError):
    """Another runner took over the stage {stage} of cycle {cycle} of the loop {loop}: this one was
    silent for longer than PENSTOCK_LEASE_SECONDS. Its result is dropped."""


class TrainerFailed(PenstockError):
    """The trainer made no checkpoint: {why}."""


class TrainerRefused(PenstockError, http_status=409):
    """The trainer at {address} refused with status {status}: {why}. There is no other try."""


StageState = Literal["waiting", "running", "done", "failed", "over"]
CycleOutcome = Literal["promoted", "refused", "failed", "rolled_back", "over_budget"]


log_line = structlog.get_logger()


@dataclass(frozen=True, kw_only=True)
class CycleStage:
    stage: str
    state: StageState = "waiting"
    epoch: int = 0
    owner: str | None = None
    lease_until: int = 0
    failures: int = 0
    not_before: int = 0
    why: str = ""
    inputs: Mapping[str, Any] | None = None
    inputs_digest: str | None = None
    result: Mapping[str, Any] | None = None
    started_at: int | None = None
    ended_at: int | None = None


@dataclass(frozen=True, kw_only=True)
class Cycle:
    loop: str
    number: int
    channel: str
    budget_s: int
    parent: str | None = None
    checkpoint: str | None = None
    outcome: CycleOutcome | None = None
    why: str = ""
    opened_at: int
    began_at: int | None = None
    ended_at: int | None = None
    stages: tuple[CycleStage, ...] = ()

    @cached_property
    def results(self) -> dict[str, Mapping[str, Any]]:
        return {stage.stage: stage.result or {} for stage in self.stages if stage.state == "done"}

    def stage(self, name: str) -> CycleStage:
        return next(stage for stage in self.stages if stage.stage == name)


def cycles_of(
    database: Database,
    tenant: str,
    loop: str | None = None,
    *where: sa.ColumnElement[bool],
    limit: int | None = None,
) -> list[Cycle]:
    """List cycles, newest first. `limit` counts over all loops."""
    query = sa.select(loop_cycle).filter_by(tenant=tenant).where(*where)
    columns = loop_cycle.c
    order = [columns.number.desc()]
    if loop is None:
        order = [columns.opened_at.desc(), *order, columns.loop.desc()]
    else:
        query = query.filter_by(loop=loop)
    with database.read() as connection:
        rows = connection.execute(query.order_by(*order).limit(limit)).all()
        return [_read_cycle(connection, row) for row in rows]


def database_now(database: Database) -> int:
    return int(database.scalar(sa.select(now_us())))


def encoded_inputs(inputs: Mapping[str, Any]) -> tuple[str, str]:
    encoded = msgspec.json.encode(inputs, order="sorted").decode()
    return encoded, text_digest(encoded)


class LoopCycles(msgspec.Struct, frozen=True):
    database: Database
    tenant: str
    loop: str

    @property
    def key(self) -> dict[str, str]:
        return {"tenant": self.tenant, "loop": self.loop}

    def newest(self, *where: sa.ColumnElement[bool]) -> Cycle | None:
        """Return the newest cycle for which `where` holds."""
        return next(iter(cycles_of(self.database, self.tenant, self.loop, *where, limit=1)), None)

    def at(self, number: int) -> Cycle:
        [cycle] = cycles_of(self.database, self.tenant, self.loop, loop_cycle.c.number == number)
        return cycle

    def failed_in_a_row(self) -> int:
        ended = sa.select(loop_cycle.c.outcome).filter_by(**self.key)
        ended = ended.where(loop_cycle.c.ended_at.is_not(None))
        query = ended.order_by(loop_cycle.c.number.desc()).limit(64)
        outcomes = [*self.database.scalars(query), None]
        return next(count for count, outcome in enumerate(outcomes) if outcome != "failed")

    def open(
        self, number: int, *, channel: str, file_digest: str, budget_s: int, stages: Sequence[str]
    ) -> bool:
        """Open a cycle. Returns False if another runner opened it."""
        row = self.key | {"number": number, "opened_at": now_us(), "channel": channel}
        row |= {"file_digest": file_digest, "budget_s": budget_s}
        rows = [
            self.key | {"cycle": number, "stage": name, "position": position}
            for position, name in enumerate(stages)
        ]
        with self.database.write() as connection:
            if is_new := insert_new(connection, loop_cycle, row):
                connection.execute(sa.insert(loop_stage), rows)
        return bool(is_new)

    def end(self, number: int, outcome: CycleOutcome, why: str) -> bool:
        """End a cycle. Returns False if another runner ended it."""
        cycle = sa.update(loop_cycle).filter_by(**self.key, number=number)
        ended = cycle.where(loop_cycle.c.ended_at.is_(None))
        with self.database.write() as connection:
            values = ended.values(outcome=outcome, why=why, ended_at=now_us())
            return connection.execute(values).rowcount == 1

    @contextmanager
    def claimed(
        self, number: int, stage: CycleStage, *, owner: str, lease_s: float, until_us: int | None
    ) -> Iterator["StageClaim | None"]:
        """Claim a stage until the block ends, renewing its lease until `until_us` at most.

        Yields None if another runner was faster. A block that raises gives the stage back."""
        columns = loop_stage.c
        claim_row = (
            sa.update(loop_stage)
            .filter_by(**self.key, cycle=number, stage=stage.stage, epoch=stage.epoch)
            .where(
                columns.state.in_(["waiting", "running"]),
                sa.or_(columns.state == "waiting", columns.lease_until < now_us()),
            )
            .values(
                state="running",
                epoch=stage.epoch + 1,
                owner=owner,
                lease_until=now_us(lease_s),
                started_at=sa.func.coalesce(columns.started_at, now_us()),
                tried_at=now_us(),
            )
            .returning(columns.epoch, columns.tried_at)
        )
        with self.database.write() as connection:
            row = connection.execute(claim_row).first()
        if row is None:
            yield None
            return
        ends_at = until_us and time.monotonic() + (until_us - row.tried_at) / SECOND_US
        claim = StageClaim(self, number, stage.stage, row.epoch, row.tried_at, ends_at)
        renewals = repeating(lambda: claim.renew(lease_s), lease_s / 3, "stage-lease")
        try:
            with renewals:
                yield claim
        finally:
            with suppress(DatabaseUnreachable, StageLost):  # then the lease runs out
                claim.change(state="waiting", lease_until=0)


@dataclass(frozen=True)
class StageClaim:
    """A stage that this process runs.

    `lost` is set when another process has claimed it, or the cycle's budget is used up. After
    another claim, each change raises StageLost and stores nothing."""

    cycles: LoopCycles
    number: int
    stage: str
    epoch: int
    #: When the claim was made.
    at: int
    #: End by the monotonic clock; None without a limit.
    ends_at: float | None
    lost: Event = field(default_factory=Event, compare=False)

    def left_s(self) -> float | None:
        return None if self.ends_at is None else self.ends_at - time.monotonic()

    def gone(self) -> StageLost:
        return StageLost(stage=self.stage, cycle=self.number, loop=self.cycles.loop)

    def note_inputs(self, inputs: Mapping[str, Any]) -> None:
        """Store the inputs. Other inputs than in the last try reset the count of failures."""
        encoded, digest = encoded_inputs(inputs)
        same = loop_stage.c.inputs_digest == digest
        failures = sa.case((same, loop_stage.c.failures), else_=0)
        self.change(inputs=encoded, inputs_digest=digest, failures=failures)

    def finish(
        self, state: StageState, result: Mapping[str, Any], why: str, **columns: Any
    ) -> None:
        encoded, _ = encoded_inputs(result)
        end = {"state": state, "ended_at": now_us(), "lease_until": 0}
        self.change(columns, **end, result=encoded, why=why)

    def postpone(self, why: str, pause_s: float) -> None:
        """Let the stage wait. This does not count as a failure."""
        self.change(state="waiting", lease_until=0, not_before=now_us(pause_s), why=why)

    def fail(self, why: str, *, pause_us: int | None) -> None:
        """Count a failure. Without a pause the stage is not tried again."""
        end: dict[str, Any] = {"state": "failed", "ended_at": now_us()}
        if pause_us is not None:
            end = {"state": "waiting", "not_before": now_us() + pause_us}
        self.change(lease_until=0, why=why, failures=loop_stage.c.failures + 1, **end)

    def failures(self) -> int:
        query = sa.select(loop_stage.c.failures).filter_by(**self._key)
        return int(self.cycles.database.scalar(query))

    def renew(self, lease_s: float) -> None:
        left_s = self.left_s()
        if left_s is not None and left_s < 0:
            self.lost.set()
        if self.lost.is_set():
            return
        try:
            self.change(lease_until=now_us(lease_s))
        except StageLost:
            self.lost.set()
            log_line.warning("a stage was lost during its work", stage=self.stage)
        except DatabaseUnreachable as error:
            log_line.warning("a stage's lease could not be renewed", why=str(error))

    def change(self, columns: Mapping[str, Any] | None = None, /, **values: Any) -> None:
        """Store values of the stage and columns of its cycle."""
        held = sa.update(loop_stage).filter_by(**self._key, epoch=self.epoch, state="running")
        with self.cycles.database.write() as connection:
            if connection.execute(held.values(**values)).rowcount != 1:
                raise self.gone()
            if columns:
                cycle = sa.update(loop_cycle).filter_by(**self.cycles.key, number=self.number)
                connection.execute(cycle.values(**columns))

    @property
    def _key(self) -> dict[str, Any]:
        return self.cycles.key | {"cycle": self.number, "stage": self.stage}


def _read_cycle(connection: sa.Connection, row: sa.Row[Any]) -> Cycle:
    key = {"tenant": row.tenant, "loop": row.loop, "cycle": row.number}
    query = sa.select(loop_stage).filter_by(**key).order_by(loop_stage.c.position)
    stages = []
    for stage in connection.execute(query).mappings():
        facts = {column.name: stage[column.name] for column in fields(CycleStage)}
        for name in ("inputs", "result"):
            facts[name] = facts[name] and msgspec.json.decode(facts[name])
        stages.append(CycleStage(**facts))
    names = [column.name for column in fields(Cycle) if column.name != "stages"]
    return Cycle(**{name: getattr(row, name) for name in names}, stages=tuple(stages))


# For other rooms


def shard_uses(connection: sa.Connection, tenant: str, shard: str) -> Iterator[str]:
    """Name the open cycles that use a shard."""
    cycle, stage = loop_cycle.c, loop_stage.c
    same = (stage.tenant == cycle.tenant) & (stage.loop == cycle.loop)
    under_way = (
        sa.select(stage.loop, stage.cycle, stage.result)
        .join(loop_cycle, same & (stage.cycle == cycle.number))
        .where(cycle.tenant == tenant, cycle.outcome.is_(None))
        .where(stage.stage == "shard", stage.result.is_not(None))
        .order_by(stage.loop, stage.cycle)
    )
    for row in connection.execute(under_way):
        if msgspec.json.decode(row.result).get("shard") == shard:
            yield f"cycle {row.cycle} of the loop {row.loop} uses it"


def show_training(subject: "ProofSubject") -> list[dict[str, Any]]:
    """Describe the training of each ancestor. A checkpoint that no loop made is a gap."""
    names = [learner.name for learner in subject.ancestry]
    mine = loop_cycle.c.checkpoint.in_(names)
    cycles = cycles_of(subject.lake.database, subject.tenant, None, mine)
    made = {cycle.checkpoint: cycle for cycle in cycles}
    for learner in subject.ancestry:
        if learner.name not in made:
            why = f"no loop trained it: {learner.registered_by} registered it from elsewhere"
            subject.lacks("training", learner.name, why)
    return [_trained_by(made[name]) for name in names if name in made]


def _trained_by(cycle: Cycle) -> dict[str, Any]:
    train, results = cycle.stage("train"), cycle.results
    times = {"started_at": train.started_at, "ended_at": train.ended_at}
    return {
        "checkpoint": cycle.checkpoint,
        "loop": cycle.loop,
        "cycle": cycle.number,
        "parent": cycle.parent,
        "shard": results.get("shard", {}).get("shard"),
        "digest": results.get("train", {}).get("digest"),
        "attempt": train.epoch,
        "inputs": train.inputs_digest,
    } | {name: us and time_text(us) for name, us in times.items()}
