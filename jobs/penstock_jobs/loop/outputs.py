"""What the command of a loop's trainer left in its folders.

Failed tries, and checkpoints that a cycle made and did not promote, are removed after the time
that `keep` under [trainer] names. Logs and answers stay, and so does every checkpoint that serves
or ever served.
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from penstock.checkpoints.checkpoint import State
from penstock.checkpoints.digests import is_path, path_of
from penstock.checkpoints.errors import StateRefused
from penstock.checkpoints.registration import withdraw
from penstock.checkpoints.tables import checkpoint
from penstock.clock import SECOND_US
from penstock.database.engine import Database
from penstock.safe_names import relative_name
from penstock.settings import Settings
from penstock_jobs.loop.cycles import CycleOutcome, database_now
from penstock_jobs.loop.loop_file import LoopFile, label_of
from penstock_jobs.loop.tables import loop_cycle

_OUTPUT, _WORK = "checkpoint", "work"
#: Cycles that end so have put nothing before users.
_UNUSED: tuple[CycleOutcome, ...] = ("refused", "failed", "over_budget")


@dataclass(frozen=True)
class TrainerFolders:
    """Of one cycle. Each try has a folder of its own, so that a late one does no harm."""

    cycle: Path

    @classmethod
    def of(cls, settings: Settings, loop: LoopFile, tenant: str, number: int) -> "TrainerFolders":
        data = settings.data / "loops" / relative_name(label_of(loop.name, tenant))
        return cls((loop.trainer.output or data).absolute() / f"cycle-{number:04d}")

    @property
    def work(self) -> Path:
        return self.cycle / _WORK

    def of_try(self, attempt: int) -> Path:
        return self.cycle / f"try-{attempt:03d}"

    def output(self, attempt: int) -> Path:
        return self.of_try(attempt) / _OUTPUT

    def outputs(self) -> list[Path]:
        """Of all tries."""
        return sorted(self.cycle.glob(f"try-*/{_OUTPUT}"))


@dataclass(frozen=True)
class EndedCycle:
    """With the checkpoint that it registered, if it came so far."""

    number: int
    outcome: CycleOutcome
    checkpoint: str | None = None
    state: State | None = None

    @property
    def is_unused(self) -> bool:
        """Whether nobody ever was to be served by its checkpoint, and nobody may be now."""
        return self.outcome in _UNUSED and self.state in (None, "registered", "withdrawn")


def remove_outputs(database: Database, settings: Settings, loop: LoopFile, tenant: str) -> int:
    """Remove what is older than the loop file keeps it, and return how many folders. A checkpoint
    that loses its files is withdrawn before, so that nobody promotes it."""
    keep_s, removed = loop.trainer.keep_s, 0
    if keep_s is None:
        return removed
    cycles = _ended_before(database, tenant, loop.name, keep_s)
    needed = _places_of_checkpoints(database) if cycles else {}
    for cycle in cycles:
        folders = TrainerFolders.of(settings, loop, tenant, cycle.number)
        place = needed.get((tenant, cycle.checkpoint or ""))
        unused = [path for path in folders.outputs() if place is not None and overlap(path, place)]
        if unused and cycle.is_unused:
            reason = f"cycle {cycle.number} ended as {cycle.outcome}, and its files are removed"
            who = {"tenant": tenant, "actor": f"loop-{loop.name}"}
            with suppress(StateRefused):  # somebody needs it by now
                withdraw(database, name=cycle.checkpoint or "", reason=reason, **who)
                del needed[tenant, cycle.checkpoint or ""]
        paths = removable(cycle, folders, list(needed.values()))
        removed += sum(_remove(path, folders.cycle) for path in paths)
    return removed


def removable(cycle: EndedCycle, folders: TrainerFolders, needed: Sequence[Path]) -> Iterator[Path]:
    """The folders of a cycle that has ended which hold nothing that is `needed`."""
    for path in (*folders.outputs(), *([folders.work] if cycle.is_unused else [])):
        if os.path.lexists(path) and not any(overlap(path, place) for place in needed):
            yield path


def overlap(folder: Path, place: Path) -> bool:
    """Whether one of them lies in the other; `place` has no links in it."""
    real = Path(os.path.realpath(folder))
    return place.is_relative_to(real) or real.is_relative_to(place)


def _places_of_checkpoints(database: Database) -> dict[tuple[str, str], Path]:
    """Of all checkpoints that may be served or trained from, by tenant and name: somebody may have
    registered what a loop made under another name."""
    columns = checkpoint.c
    query = sa.select(columns.tenant, columns.name, columns.uri)
    with database.read() as connection:
        rows = connection.execute(query.where(columns.state != "withdrawn")).all()
    return {
        (row.tenant, row.name): Path(os.path.realpath(path_of(row.uri)))
        for row in rows
        if is_path(row.uri)
    }


def _ended_before(database: Database, tenant: str, loop: str, keep_s: int) -> list[EndedCycle]:
    before_us = database_now(database) - keep_s * SECOND_US
    columns, made = loop_cycle.c, checkpoint.c
    same = sa.and_(made.tenant == columns.tenant, made.name == columns.checkpoint)
    query = (
        sa.select(columns.number, columns.outcome, columns.checkpoint, made.state)
        .select_from(loop_cycle.outerjoin(checkpoint, same))
        .where(columns.tenant == tenant, columns.loop == loop, columns.ended_at < before_us)
        .order_by(columns.number)
    )
    with database.read() as connection:
        return [EndedCycle(*row) for row in connection.execute(query)]


def _remove(path: Path, cycle: Path) -> bool:
    """False where it is not there, or a link on the way to it leads out of the cycle's folder."""
    expected = Path(os.path.realpath(cycle)) / path.relative_to(cycle)
    if Path(os.path.realpath(path.parent)) != expected.parent:
        return False
    try:
        if path.is_symlink():
            path.unlink()
        else:
            shutil.rmtree(path)
    except FileNotFoundError:  # another runner was faster
        return False
    return True
