"""Cycles and stages in the database. Each change is a compare-and-swap: on the number of a cycle,
or on the epoch by which a stage is held."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Any

import msgspec
import sqlalchemy as sa
import structlog

from penstock.checkpoints.digests import text_digest
from penstock.database.engine import Database, insert_new, now_us
from penstock.database.errors import DatabaseUnreachable
from penstock_jobs.loop.errors import StageLost
from penstock_jobs.loop.planning import CycleRow, Outcome, StageRow, StageState
from penstock_jobs.loop.tables import loop_cycle, loop_stage

_RENEWALS_A_LEASE = 3
_FAILED_LOOKED_AT_MAX = 64

log_line = structlog.get_logger()


@dataclass(frozen=True)
class Place:
    """A loop, of a tenant."""

    tenant: str
    loop: str


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A row of `loop_stage`, column by column but for its place."""

    stage: str
    position: int
    state: StageState
    epoch: int
    owner: str | None
    lease_until: int
    failures: int
    not_before: int
    why: str
    inputs: Mapping[str, Any] | None
    inputs_digest: str | None
    result: Mapping[str, Any] | None
    started_at: int | None
    tried_at: int | None
    ended_at: int | None


@dataclass(frozen=True, kw_only=True)
class Cycle:
    """A row of `loop_cycle`, with its stages in their order."""

    loop: str
    number: int
    channel: str
    file_digest: str
    budget_s: int
    parent: str | None
    checkpoint: str | None
    outcome: Outcome | None
    why: str
    opened_at: int
    began_at: int | None
    ended_at: int | None
    stages: tuple[Stage, ...] = ()

    def results(self) -> dict[str, Mapping[str, Any]]:
        """Of the stages that are done."""
        return {one.stage: one.result or {} for one in self.stages if one.state == "done"}

    def stage(self, name: str) -> Stage:
        return next(one for one in self.stages if one.stage == name)


@dataclass(frozen=True)
class Held:
    """A stage that this process does. `lost` is set when another one has it."""

    place: Place
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


def newest_cycle(database: Database, place: Place) -> Cycle | None:
    """The one that is open, or that ended last."""
    with database.read() as connection:
        row = connection.execute(_of(place).order_by(loop_cycle.c.number.desc()).limit(1)).first()
        return _cycle(connection, row) if row is not None else None


def cycle_at(database: Database, place: Place, number: int) -> Cycle:
    with database.read() as connection:
        row = connection.execute(_of(place).where(loop_cycle.c.number == number)).one()
        return _cycle(connection, row)


def newest_begun(database: Database, place: Place, before: int) -> Cycle | None:
    """The newest before this number that found what it waited for."""
    return _newest(database, place, before, loop_cycle.c.began_at.is_not(None))


def newest_made(database: Database, place: Place, before: int) -> Cycle | None:
    """The newest before this number that made a checkpoint, whatever became of it."""
    return _newest(database, place, before, loop_cycle.c.checkpoint.is_not(None))


def _newest(
    database: Database, place: Place, before: int, which: sa.ColumnElement[bool]
) -> Cycle | None:
    query = _of(place).where(loop_cycle.c.number < before, which)
    with database.read() as connection:
        row = connection.execute(query.order_by(loop_cycle.c.number.desc()).limit(1)).first()
        return _cycle(connection, row) if row is not None else None


def failed_in_a_row(database: Database, place: Place) -> int:
    """How many of the newest cycles that ended have failed."""
    ended = _of(place).where(loop_cycle.c.ended_at.is_not(None))
    query = ended.order_by(loop_cycle.c.number.desc()).limit(_FAILED_LOOKED_AT_MAX)
    failed = 0
    with database.read() as connection:
        for row in connection.execute(query):
            if row.outcome != "failed":
                break
            failed += 1
    return failed


def as_planned(cycle: Cycle, failed: int) -> CycleRow:
    """What a plan hangs on."""
    stages = [
        StageRow(
            name=one.stage,
            state=one.state,
            owner=one.owner,
            lease_until_us=one.lease_until,
            not_before_us=one.not_before,
            why=one.why,
            outcome=(one.result or {}).get("ends") if one.state == "over" else None,
        )
        for one in cycle.stages
    ]
    return CycleRow(
        number=cycle.number,
        stages=stages,
        parent=cycle.parent,
        ended_us=cycle.ended_at,
        failed=failed,
    )


def open_cycle(
    database: Database,
    place: Place,
    number: int,
    *,
    channel: str,
    file_digest: str,
    budget_s: int,
    stages: Sequence[str],
) -> bool:
    """False where another runner opened it."""
    key = {"tenant": place.tenant, "loop": place.loop}
    row = {
        "number": number, "channel": channel, "file_digest": file_digest, "budget_s": budget_s,
        "why": "", "opened_at": now_us(),
    }  # fmt: skip
    blank = {
        "state": "waiting", "epoch": 0, "lease_until": 0, "failures": 0, "not_before": 0, "why": "",
    }  # fmt: skip
    with database.write() as connection:
        if not insert_new(connection, loop_cycle, key | row):
            return False
        rows = [
            key | blank | {"cycle": number, "stage": name, "position": at}
            for at, name in enumerate(stages)
        ]
        connection.execute(sa.insert(loop_stage), rows)
    return True


def end_cycle(database: Database, place: Place, number: int, outcome: Outcome, why: str) -> bool:
    """False where another runner ended it."""
    with database.write() as connection:
        ended = connection.execute(
            sa.update(loop_cycle)
            .where(*_key(place, number), loop_cycle.c.ended_at.is_(None))
            .values(outcome=outcome, why=why, ended_at=now_us())
        )
        return ended.rowcount == 1


@contextmanager
def claimed(
    database: Database, place: Place, cycle: int, seen: Stage, *, owner: str, lease_s: float
) -> Iterator[Held | None]:
    """The stage is this process's until the block ends, as long as it is renewed; None where
    another was faster. A block that ends with an error that is none of ours gives it back."""
    held = _claim(database, place, cycle, seen, owner=owner, lease_s=lease_s)
    if held is None:
        yield None
        return
    ended = Event()
    keeper = Thread(
        target=_keep, args=(database, held, lease_s, ended), name="stage-lease", daemon=True
    )
    keeper.start()
    try:
        yield held
    finally:
        ended.set()
        keeper.join()
        with suppress(DatabaseUnreachable, StageLost):  # then the lease runs out
            give_back(database, held)


def _claim(
    database: Database, place: Place, cycle: int, seen: Stage, *, owner: str, lease_s: float
) -> Held | None:
    free = sa.or_(loop_stage.c.state == "waiting", loop_stage.c.lease_until < now_us())
    with database.write() as connection:
        row = connection.execute(
            sa.update(loop_stage)
            .where(
                *_stage_key(place, cycle, seen.stage),
                loop_stage.c.epoch == seen.epoch,
                loop_stage.c.state.in_(["waiting", "running"]),
                free,
            )
            .values(
                state="running",
                epoch=seen.epoch + 1,
                owner=owner,
                lease_until=now_us() + round(lease_s * 1_000_000),
                started_at=sa.func.coalesce(loop_stage.c.started_at, now_us()),
                tried_at=now_us(),
            )
            .returning(loop_stage.c.epoch, loop_stage.c.tried_at)
        ).first()
    return None if row is None else Held(place, cycle, seen.stage, row.epoch, row.tried_at)


def _keep(database: Database, held: Held, lease_s: float, ended: Event) -> None:
    while not ended.wait(lease_s / _RENEWALS_A_LEASE):
        try:
            _change(database, held, lease_until=now_us() + round(lease_s * 1_000_000))
        except StageLost:
            held.lost.set()
            log_line.warning("a stage was lost while its work went on", stage=held.stage)
            return
        except DatabaseUnreachable as error:
            log_line.warning("a stage's lease could not be renewed", why=str(error))


def written_inputs(inputs: Mapping[str, Any]) -> tuple[str, str]:
    """As they are kept, and the digest of that."""
    written = msgspec.json.encode(inputs, order="sorted").decode()
    return written, text_digest(written)


def note_inputs(database: Database, held: Held, inputs: Mapping[str, Any]) -> str:
    """What it works on; their digest. Other inputs than those of the try before start counting
    failures anew. Raises StageLost."""
    written, digest = written_inputs(inputs)
    same = loop_stage.c.inputs_digest == digest
    _change(
        database,
        held,
        inputs=written,
        inputs_digest=digest,
        failures=sa.case((same, loop_stage.c.failures), else_=0),
    )
    return digest


def finish(
    database: Database,
    held: Held,
    result: Mapping[str, Any],
    *,
    why: str = "",
    state: StageState = "done",
    of_cycle: Mapping[str, Any] | None = None,
) -> None:
    """One transaction, with what the cycle is told. Raises StageLost, and then nothing is kept."""
    facts = {"result": msgspec.json.encode(result, order="sorted").decode(), "why": why}
    with database.write() as connection:
        _swap(connection, held, state=state, ended_at=now_us(), lease_until=0, **facts)
        if of_cycle:
            mine = _key(held.place, held.cycle)
            connection.execute(sa.update(loop_cycle).where(*mine).values(**of_cycle))


def put_off(database: Database, held: Held, why: str, pause_us: int) -> None:
    """It is no failure that it cannot go on yet. Raises StageLost."""
    until = now_us() + pause_us
    _change(database, held, state="waiting", lease_until=0, not_before=until, why=why)


def fail(database: Database, held: Held, why: str, *, pause_us: int | None) -> None:
    """Without a pause it is not tried again. Raises StageLost."""
    failures = loop_stage.c.failures + 1
    if pause_us is None:
        _change(
            database, held, state="failed", lease_until=0, why=why, failures=failures,
            ended_at=now_us(),
        )  # fmt: skip
    else:
        _change(
            database, held, state="waiting", lease_until=0, why=why, failures=failures,
            not_before=now_us() + pause_us,
        )  # fmt: skip


def give_back(database: Database, held: Held) -> None:
    """Whoever comes next may have it, if it is still running. Raises StageLost."""
    _change(database, held, state="waiting", lease_until=0)


def failures_of(database: Database, held: Held) -> int:
    query = sa.select(loop_stage.c.failures).where(*_stage_key(held.place, held.cycle, held.stage))
    with database.read() as connection:
        return int(connection.execute(query).scalar_one())


def _change(database: Database, held: Held, **values: Any) -> None:
    with database.write() as connection:
        _swap(connection, held, **values)


def _swap(connection: sa.Connection, held: Held, **values: Any) -> None:
    swapped = connection.execute(
        sa.update(loop_stage)
        .where(
            *_stage_key(held.place, held.cycle, held.stage),
            loop_stage.c.epoch == held.epoch,
            loop_stage.c.state == "running",
        )
        .values(**values)
    )
    if swapped.rowcount != 1:
        raise StageLost(stage=held.stage, cycle=held.cycle, loop=held.place.loop)


def database_now(database: Database) -> int:
    with database.read() as connection:
        return int(connection.execute(sa.select(now_us())).scalar_one())


def _of(place: Place) -> sa.Select[Any]:
    mine = loop_cycle.c.tenant == place.tenant, loop_cycle.c.loop == place.loop
    return sa.select(loop_cycle).where(*mine)


def _key(place: Place, number: int) -> tuple[sa.ColumnElement[bool], ...]:
    columns = loop_cycle.c
    return (
        columns.tenant == place.tenant,
        columns.loop == place.loop,
        columns.number == number,
    )


def _stage_key(place: Place, cycle: int, stage: str) -> tuple[sa.ColumnElement[bool], ...]:
    columns = loop_stage.c
    return (
        columns.tenant == place.tenant,
        columns.loop == place.loop,
        columns.cycle == cycle,
        columns.stage == stage,
    )


def _cycle(connection: sa.Connection, row: sa.Row[Any]) -> Cycle:
    query = (
        sa.select(loop_stage)
        .where(
            loop_stage.c.tenant == row.tenant,
            loop_stage.c.loop == row.loop,
            loop_stage.c.cycle == row.number,
        )
        .order_by(loop_stage.c.position)
    )
    stages = tuple(_stage(one) for one in connection.execute(query))
    facts = {name: one for name, one in row._mapping.items() if name != "tenant"}
    return Cycle(**facts, stages=stages)


def _stage(row: sa.Row[Any]) -> Stage:
    place = ("tenant", "loop", "cycle")
    facts = {name: one for name, one in row._mapping.items() if name not in place}
    for name in ("inputs", "result"):
        facts[name] = msgspec.json.decode(facts[name]) if facts[name] is not None else None
    return Stage(**facts)
