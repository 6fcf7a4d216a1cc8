"""Checkpoints and a gate for tests of channels."""

import hashlib
from pathlib import Path
from typing import Any

from penstock.backends.database.engine import Database
from penstock.core.settings import Settings
from penstock.registry.channels import promotion
from penstock.registry.channels.change import Change
from penstock.registry.channels.promotion import Judge, Promotion, Rollback, roll_back
from penstock.registry.checkpoints.attempts import Attempt, record_attempts
from penstock.registry.checkpoints.checkpoint import Checkpoint
from penstock.registry.checkpoints.journal import AttemptScope
from penstock.registry.checkpoints.registration import register
from penstock.registry.checkpoints.suites import SuiteTask, SuiteVersion, add_suite
from penstock.registry.gate.verdict import Outcome, Verdict

TENANT = "default"
POLICY = '[[require]]\nsuite = "core"\nmargin = 0.02\n'
NOWHERE = Settings(data=Path("/nonexistent"))


def digest_of(name: str) -> str:
    return f"sha256:{hashlib.sha256(name.encode(errors='replace')).hexdigest()}"


def add(database: Database, *names: str, **facts: Any) -> Checkpoint:
    """Registered, with files that nobody can look at; the last of them."""
    made = [
        register(
            database,
            NOWHERE,
            **{
                "tenant": TENANT,
                "name": name,
                "uri": f"https://models.test/{name}",
                "digest": digest_of(name),
                "actor": "trainer",
            }
            | facts,
        )
        for name in names
    ]
    return made[-1]


def says(outcome: Outcome) -> Judge:
    def judge(channel: str, checkpoint: str) -> Verdict:
        document = {"outcome": outcome, "channel": channel, "checkpoint": checkpoint}
        return Verdict(outcome, channel, checkpoint, document)

    return judge


PASS = says("PASS")


def promote(database: Database, name: str, judge: Judge = PASS, **facts: Any) -> Change:
    told = {"tenant": TENANT, "channel": "production", "reason": "it is better", "actor": "ann"}
    return promotion.promote(database, Promotion(**told | {"checkpoint": name} | facts), judge)


def rollback(database: Database, to: str | None = None, **facts: Any) -> Change:
    told = {"tenant": TENANT, "channel": "production", "reason": "it is worse", "actor": "bob"}
    return roll_back(database, Rollback(**told | {"to": to} | facts))


def release(database: Database, channel: str = "production") -> Change:
    return promotion.release(
        database, tenant=TENANT, channel=channel, reason="understood", actor="carol"
    )


def add_scores(database: Database, means: dict[str, float], tasks: int = 40) -> None:
    """Attempts at the suite `core`, of which that share passed."""
    names = [f"t-{number:03}" for number in range(tasks)]
    version = SuiteVersion("core", "v1", tuple(map(SuiteTask, names)))
    add_suite(database, TENANT, version)
    for checkpoint, mean in means.items():
        attempts = [
            Attempt(task=task, attempt=0, score=float(number < mean * tasks))
            for number, task in enumerate(names)
        ]
        with database.write() as connection:
            scope = AttemptScope(TENANT, "core", "v1", checkpoint)
            record_attempts(connection, scope, "run-1", attempts)


def set_policy(database: Database, text: str = POLICY, channel: str = "production") -> Change:
    return promotion.set_policy(
        database, tenant=TENANT, channel=channel, text=text, reason="agreed", actor="carol"
    )
