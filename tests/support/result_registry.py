"""A registry into which results are imported."""

from pathlib import Path
from typing import Any

import sqlalchemy as sa

from penstock.backends.database.engine import Database
from penstock.core.settings import Settings
from penstock.registry.checkpoints.attempts import attempts_of
from penstock.registry.checkpoints.journal import AttemptScope
from penstock.registry.checkpoints.registration import register
from penstock.registry.checkpoints.tables import benchmark_run
from penstock_jobs.benchmarks.importers.trials import ReadOptions
from penstock_jobs.benchmarks.result_import import ImportReport, read_results, take_results

TENANT = "default"


class Registry:
    """One with a checkpoint, `ckpt-1`."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self.database, self.settings = database, settings
        register(
            database, settings, tenant=TENANT, name="ckpt-1", uri="https://models.example/1",
            digest="sha256:" + "1" * 64, actor="test",
        )  # fmt: skip

    def take(self, path: Path, *, dry_run: bool = False, **facts: Any) -> ImportReport:
        options = ReadOptions(**{name: facts.pop(name) for name in ("metric",) if name in facts})
        form = facts.pop("form", None)
        whose = {"suite": "core", "checkpoint": "ckpt-1", "dry_run": dry_run} | facts
        return take_results(self.database, TENANT, read_results(path, form, options, **whose))

    def kept(self, version: str = "imported") -> dict[tuple[str, int], float | str | None]:
        place = AttemptScope(TENANT, "core", version, "ckpt-1")
        results = [one.result for one in attempts_of(self.database, place)]
        return {(one.task, one.attempt): one.score or one.error for one in results}

    def runs(self) -> list[Any]:
        with self.database.read() as connection:
            return list(connection.execute(sa.select(benchmark_run)))
