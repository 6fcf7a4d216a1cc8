"""Cycles and their stages in the database. Each change is a compare-and-swap: on the number of a
cycle, or on the epoch of the claim of a stage."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Any, Literal

import msgspec
import sqlalchemy as sa
import structlog

from penstock.checkpoints.digests import text_digest
from penstock.database.engine import Database, insert_new, now_us
from penstock.database.errors import DatabaseUnreachable
from penstock_jobs.loop.errors import StageLost
from penstock_jobs.loop.tables import loop_cycle, loop_stage

StageState = Literal["waiting", "running", "done", "failed", "over"]
CycleOutcome = Literal["promoted", "refused", "failed", "rolled_back"]

_RENEWALS_A_LEASE = 3
_FAILED_CYCLES_MAX = 64
_SECOND_US = 1_000_000

log_line = structlog.get_logger()


@dataclass(frozen=True)
class LoopKey:
    tenant: str
    loop: str


@dataclass(frozen=True, kw_only=True)
class CycleStage:
    """A row of `loop_stage`, without the columns that name its cycle."""

    stage: str
    position: int = 0
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
    tried_at: int | None = None
    ended_at: int | None = None


@dataclass(frozen=True, kw_only=True)
class Cycle:
    """A row of `loop_cycle`, with its stages in their order."""

    loop: str
    number: int
    channel: str
    file_digest: str
    budget_s: int
    parent: str | None = None
    checkpoint: str | None = None
    outcome: CycleOutcome | None = None
    why: str = ""
    opened_at: int
    began_at: int | None = None
    ended_at: int | None = None
    stages: tuple[CycleStage, ...] = ()

    def results(self) -> dict[str, Mapping[str, Any]]:
        """Of the stages that are done."""
        return {stage.stage: stage.result or {} for stage in self.stages if stage.state == "done"}

    def stage(self, name: str) -> CycleStage:
        return next(stage for stage in self.stages if stage.stage == name)


@dataclass(frozen=True)
class StageClaim:
    """A stage that this process does. `lost` is set when another process has claimed it."""

    key: LoopKey
    cycle: int
    stage: str
    epoch: int
    #: When this claim was made.
    at: int
    lost: Event = field(default_factory=Event, compare=False)


def cycles_of(
    database: Database, tenant: str, loop: str | None = None, *, limit: int | None = None
) -> list[Cycle]:
    """The newest come first. `limit` counts over all loops."""
    query = sa.select(loop_cycle).where(loop_cycle.c.tenant == tenant)
    if loop is not None:
        query = query.where(loop_cycle.c.loop == loop)
    order = (loop_cycle.c.opened_at.desc(), loop_cycle.c.number.desc())
    with database.read() as connection:
        rows = connection.execute(query.order_by(*order).limit(limit)).all()
        return [_cycle(connection, row) for row in rows]


def newest_cycle(database: Database, key: LoopKey, *where: sa.ColumnElement[bool]) -> Cycle | None:
    """The one that is open, or that ended last."""
    query = _cycles(key).where(*where).order_by(loop_cycle.c.number.desc()).limit(1)
    with database.read() as connection:
        row = connection.execute(query).first()
        return None if row is None else _cycle(connection, row)


def newest_begun(database: Database, key: LoopKey, before: int) -> Cycle | None:
    """The newest cycle before this number that had enough to begin."""
    columns = loop_cycle.c
    return newest_cycle(database, key, columns.number < before, columns.began_at.is_not(None))


def newest_made(database: Database, key: LoopKey, before: int) -> Cycle | None:
    """The newest cycle before this number that made a checkpoint, promoted or not."""
    columns = loop_cycle.c
    return newest_cycle(database, key, columns.number < before, columns.checkpoint.is_not(None))


def cycle_at(database: Database, key: LoopKey, number: int) -> Cycle:
    cycle = newest_cycle(database, key, loop_cycle.c.number == number)
    assert cycle is not None
    return cycle


def failed_in_a_row(database: Database, key: LoopKey) -> int:
    """How many of the newest cycles that ended have failed."""
    ended = _cycles(key).where(loop_cycle.c.ended_at.is_not(None))
    query = ended.order_by(loop_cycle.c.number.desc()).limit(_FAILED_CYCLES_MAX)
    failed = 0
    with database.read() as connection:
        for row in connection.execute(query):
            if row.outcome != "failed":
                break
            failed += 1
    return failed


def open_cycle(
    database: Database,
    key: LoopKey,
    number: int,
    *,
    channel: str,
    file_digest: str,
    budget_s: int,
    stages: Sequence[str],
) -> bool:
    """False where another runner opened it."""
    loop = {"tenant": key.tenant, "loop": key.loop}
    row = {
        "number": number, "channel": channel, "file_digest": file_digest, "budget_s": budget_s,
        "why": "", "opened_at": now_us(),
    }  # fmt: skip
    blank = {
        "state": "waiting", "epoch": 0, "lease_until": 0, "failures": 0, "not_before": 0, "why": "",
    }  # fmt: skip
    with database.write() as connection:
        if not insert_new(connection, loop_cycle, loop | row):
            return False
        rows = [
            loop | blank | {"cycle": number, "stage": name, "position": position}
            for position, name in enumerate(stages)
        ]
        connection.execute(sa.insert(loop_stage), rows)
    return True


def end_cycle(
    database: Database, key: LoopKey, number: int, outcome: CycleOutcome, why: str
) -> bool:
    """False where another runner ended it."""
    with database.write() as connection:
        ended = connection.execute(
            sa.update(loop_cycle)
            .where(*_is_cycle(key, number), loop_cycle.c.ended_at.is_(None))
            .values(outcome=outcome, why=why, ended_at=now_us())
        )
        return ended.rowcount == 1


@contextmanager
def claimed(
    database: Database, key: LoopKey, cycle: int, stage: CycleStage, *, owner: str, lease_s: float
) -> Iterator[StageClaim | None]:
    """Claim a stage until the block ends, and renew its lease meanwhile. None where another
    runner was faster. A block that raises any other error than ours gives the stage back."""
    claim = _claim(database, key, cycle, stage, owner=owner, lease_s=lease_s)
    if claim is None:
        yield None
        return
    ended = Event()
    renewal = Thread(
        target=_renew, args=(database, claim, lease_s, ended), name="stage-lease", daemon=True
    )
    renewal.start()
    try:
        yield claim
    finally:
        ended.set()
        renewal.join()
        with suppress(DatabaseUnreachable, StageLost):  # then the lease runs out
            _change(database, claim, state="waiting", lease_until=0)


def _claim(
    database: Database, key: LoopKey, cycle: int, stage: CycleStage, *, owner: str, lease_s: float
) -> StageClaim | None:
    free = sa.or_(loop_stage.c.state == "waiting", loop_stage.c.lease_until < now_us())
    with database.write() as connection:
        row = connection.execute(
            sa.update(loop_stage)
            .where(
                *_is_stage(key, cycle, stage.stage),
                loop_stage.c.epoch == stage.epoch,
                loop_stage.c.state.in_(["waiting", "running"]),
                free,
            )
            .values(
                state="running",
                epoch=stage.epoch + 1,
                owner=owner,
                lease_until=now_us() + round(lease_s * _SECOND_US),
                started_at=sa.func.coalesce(loop_stage.c.started_at, now_us()),
                tried_at=now_us(),
            )
            .returning(loop_stage.c.epoch, loop_stage.c.tried_at)
        ).first()
    return None if row is None else StageClaim(key, cycle, stage.stage, row.epoch, row.tried_at)


def _renew(database: Database, claim: StageClaim, lease_s: float, ended: Event) -> None:
    while not ended.wait(lease_s / _RENEWALS_A_LEASE):
        try:
            _change(database, claim, lease_until=now_us() + round(lease_s * _SECOND_US))
        except StageLost:
            claim.lost.set()
            log_line.warning("a stage was lost while its work went on", stage=claim.stage)
            return
        except DatabaseUnreachable as error:
            log_line.warning("a stage's lease could not be renewed", why=str(error))


def encoded_inputs(inputs: Mapping[str, Any]) -> tuple[str, str]:
    """The text that is stored, and its digest."""
    encoded = msgspec.json.encode(inputs, order="sorted").decode()
    return encoded, text_digest(encoded)


def note_inputs(database: Database, claim: StageClaim, inputs: Mapping[str, Any]) -> None:
    """Store what the stage works on. Failures are counted anew where the try before had other
    inputs. Raises StageLost."""
    encoded, digest = encoded_inputs(inputs)
    same = loop_stage.c.inputs_digest == digest
    failures = sa.case((same, loop_stage.c.failures), else_=0)
    _change(database, claim, inputs=encoded, inputs_digest=digest, failures=failures)


def finish(
    database: Database,
    claim: StageClaim,
    result: Mapping[str, Any],
    *,
    why: str = "",
    state: StageState = "done",
    of_cycle: Mapping[str, Any] | None = None,
) -> None:
    """Store the result, and columns of the cycle with it. Raises StageLost: nothing is stored."""
    values = {"result": msgspec.json.encode(result, order="sorted").decode(), "why": why}
    with database.write() as connection:
        _swap(connection, claim, state=state, ended_at=now_us(), lease_until=0, **values)
        if of_cycle:
            cycle = _is_cycle(claim.key, claim.cycle)
            connection.execute(sa.update(loop_cycle).where(*cycle).values(**of_cycle))


def postpone(database: Database, claim: StageClaim, why: str, pause_us: int) -> None:
    """Waiting is no failure. Raises StageLost."""
    until = now_us() + pause_us
    _change(database, claim, state="waiting", lease_until=0, not_before=until, why=why)


def fail(database: Database, claim: StageClaim, why: str, *, pause_us: int | None) -> None:
    """Without a pause it is not tried again. Raises StageLost."""
    end: dict[str, Any] = {"state": "failed", "ended_at": now_us()}
    if pause_us is not None:
        end = {"state": "waiting", "not_before": now_us() + pause_us}
    _change(database, claim, lease_until=0, why=why, failures=loop_stage.c.failures + 1, **end)


def failures_of(database: Database, claim: StageClaim) -> int:
    stage = _is_stage(claim.key, claim.cycle, claim.stage)
    with database.read() as connection:
        return int(connection.execute(sa.select(loop_stage.c.failures).where(*stage)).scalar_one())


def database_now(database: Database) -> int:
    with database.read() as connection:
        return int(connection.execute(sa.select(now_us())).scalar_one())


def _change(database: Database, claim: StageClaim, **values: Any) -> None:
    with database.write() as connection:
        _swap(connection, claim, **values)


def _swap(connection: sa.Connection, claim: StageClaim, **values: Any) -> None:
    swapped = connection.execute(
        sa.update(loop_stage)
        .where(
            *_is_stage(claim.key, claim.cycle, claim.stage),
            loop_stage.c.epoch == claim.epoch,
            loop_stage.c.state == "running",
        )
        .values(**values)
    )
    if swapped.rowcount != 1:
        raise StageLost(stage=claim.stage, cycle=claim.cycle, loop=claim.key.loop)


def _cycles(key: LoopKey) -> sa.Select[Any]:
    columns = loop_cycle.c
    return sa.select(loop_cycle).where(columns.tenant == key.tenant, columns.loop == key.loop)


def _is_cycle(key: LoopKey, number: int) -> tuple[sa.ColumnElement[bool], ...]:
    columns = loop_cycle.c
    return columns.tenant == key.tenant, columns.loop == key.loop, columns.number == number


def _is_stage(key: LoopKey, cycle: int, stage: str) -> tuple[sa.ColumnElement[bool], ...]:
    columns = loop_stage.c
    loop = (columns.tenant == key.tenant, columns.loop == key.loop)
    return *loop, columns.cycle == cycle, columns.stage == stage


def _cycle(connection: sa.Connection, row: sa.Row[Any]) -> Cycle:
    columns = loop_stage.c
    key = columns.tenant == row.tenant, columns.loop == row.loop, columns.cycle == row.number
    rows = connection.execute(sa.select(loop_stage).where(*key).order_by(columns.position))
    values = {name: value for name, value in row._mapping.items() if name != "tenant"}
    return Cycle(**values, stages=tuple(_stage(stage) for stage in rows))


def _stage(row: sa.Row[Any]) -> CycleStage:
    key = ("tenant", "loop", "cycle")
    values = {name: value for name, value in row._mapping.items() if name not in key}
    for name in ("inputs", "result"):
        values[name] = msgspec.json.decode(values[name]) if values[name] is not None else None
    return CycleStage(**values)
