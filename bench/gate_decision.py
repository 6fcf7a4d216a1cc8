"""How long the gate takes to decide."""

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bench.figures import Figure, Goal
from bench.measurement import Measurement, Size
from penstock.backends.database.engine import Database
from penstock.backends.database.migrations import upgrade
from penstock.core.settings import Settings
from penstock.registry.channels.promotion import Promotion, judge, promote, set_policy
from penstock.registry.checkpoints.attempts import Attempt, record_attempts
from penstock.registry.checkpoints.journal import AttemptScope
from penstock.registry.checkpoints.registration import register
from penstock.registry.checkpoints.suites import SuiteTask, SuiteVersion, add_suite

_TENANT, _CHANNEL = "default", "production"
_TASKS, _ATTEMPTS = 500, 8
_DECISION = Goal(what="deciding on tasks with eight attempts each", at_most=1, unit=" s")
_POLICY = """
[[require]]
suite = "core"
margin = 0.02
minimum = 0.3
attempts = 8
[[guard]]
suite = "core"
metric = "completion_tokens"
max_increase = 0.10
[[guard]]
suite = "core"
metric = "cost_usd"
max_increase = 0.10
[[guard]]
suite = "core"
metric = "invalid_tool_calls"
max = 0.1
[evidence]
max_age = "24h"
"""


def _measure(size: Size, here: Path) -> Iterator[Figure]:
    """A candidate that nearly is the incumbent's equal: then nothing is decided early."""
    tasks = size.of(_TASKS, 60)
    database = Database(f"sqlite:///{here}/penstock.db")
    upgrade(database)
    _fill(database, here, tasks)
    seconds = []
    for _ in range(5):
        started = time.perf_counter()
        verdict = judge(database, _TENANT, _CHANNEL, "new")
        seconds.append(time.perf_counter() - started)
    database.close()
    yield _DECISION.figure(sorted(seconds)[2], f"{tasks} of them ({verdict.outcome})")


def _fill(database: Database, here: Path, tasks: int) -> None:
    random = np.random.default_rng(7)
    names = [f"task-{at:03}" for at in range(tasks)]
    version = SuiteVersion("core", "v1", tuple(SuiteTask(one) for one in names))
    add_suite(database, _TENANT, version)
    chances = random.beta(0.6, 0.6, tasks)
    for at, name in enumerate(("old", "new")):
        digest = f"sha256:{at:064}"
        register(
            database, Settings(data=here), tenant=_TENANT, name=name, actor="bench",
            uri=f"https://models.test/{name}", digest=digest,
        )  # fmt: skip
        results = [
            Attempt(
                task=task, attempt=which, score=float(random.random() < chance),
                completion_tokens=int(random.lognormal(7, 0.5)), cost_usd=random.lognormal(-5, 1),
                tool_calls=20, invalid_tool_calls=int(random.random() < 0.3),
            )
            for task, chance in zip(names, chances, strict=True)
            for which in range(_ATTEMPTS)
        ]  # fmt: skip
        with database.write() as connection:
            record_attempts(connection, AttemptScope(_TENANT, "core", "v1", name), "bench", results)
    set_policy(
        database, tenant=_TENANT, channel=_CHANNEL, text=_POLICY, reason="bench", actor="bench"
    )
    first = Promotion(
        tenant=_TENANT, channel=_CHANNEL, checkpoint="old", reason="bench", actor="bench",
        override=True,
    )  # fmt: skip
    promote(database, first, lambda channel, name: judge(database, _TENANT, channel, name))


MEASUREMENT = Measurement(
    name="gate-decision",
    title="The gate's decision",
    about="""
The gate decides on a candidate that nearly is the incumbent's equal, with a margin, a
minimum and three guards. The median of five.
""",
    goals=(_DECISION,),
    run=_measure,
)
