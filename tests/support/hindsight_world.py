"""Channels that promoted one checkpoint after another, what suites said of them, and what their
users met."""

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from numpy.random import Generator

from penstock.core.clock import SystemClock
from penstock.registry.channels.change import Change
from penstock.registry.channels.promotion import gate_judge
from penstock.registry.checkpoints.attempts import Attempt, record_attempts
from penstock.registry.checkpoints.journal import AttemptScope
from penstock.registry.checkpoints.suites import SuiteTask, SuiteVersion, add_suite
from tests.support.canary_traffic import reward, session
from tests.support.checkpoint_factory import TENANT, add, promote, set_policy
from tests.support.lakes import HandLake
from tests.support.waiting import eventually

#: Between two promotions of `serve_in_turn`, so that the sessions fit in between.
_TURN_US = 20_000
Shares = Mapping[str, Sequence[float]]


def promote_in_turn(
    lake: HandLake, scores: Shares, random: Generator, *, tasks: int, apart_us: int = 0
) -> list[Change]:
    """Promote checkpoints whatever the gate says; `scores` are their shares of solved tasks by
    suite."""
    database = lake.lake.database
    count = min(map(len, scores.values()))
    names = [f"ckpt-{number:02}" for number in range(count)]
    add(database, *names)
    for suite, shares in scores.items():
        for name, share in zip(names, shares, strict=True):
            _record(lake, suite, name, [bool(one < share) for one in random.random(tasks)])
    requirements = (f'[[require]]\nsuite = "{suite}"\nmargin = 0.05\n' for suite in scores)
    set_policy(database, "\n".join([*requirements, '[canary]\nwatch = "1d"\n']))
    changes = []
    for name in names:
        changes.append(promote(database, name, gate_judge(database, TENANT), override=True))
        eventually(partial(_is_over, changes[-1].at + apart_us))
    return changes


def _is_over(at_us: int) -> bool:
    return SystemClock().now_us() > at_us


def serve_in_turn(
    lake: HandLake, *, pleased: Sequence[float], scores: Shares, users: int, seed: int = 1
) -> list[str]:
    """Promote a checkpoint for each share of pleased users, and store their sessions. Returns the
    checkpoints."""
    random = np.random.default_rng(seed)
    changes = promote_in_turn(lake, scores, random, tasks=40, apart_us=_TURN_US)
    events = []
    for change, share in zip(changes, pleased, strict=True):
        for user in range(users):
            who, at_us = (
                f"{change.checkpoint}-{user}",
                change.at + 1 + user * _TURN_US // users // 2,
            )
            events += session(
                who,
                at_us,
                checkpoint=change.checkpoint,
                user=who,
                pleased=bool(random.random() < share),
                step_us=1,
            )
    lake.store(events)
    reward(lake, SystemClock().now_us())
    return [str(change.checkpoint) for change in changes]


def _record(lake: HandLake, suite: str, checkpoint: str, passed: Sequence[bool]) -> None:
    tasks = [f"t-{number:03}" for number in range(len(passed))]
    database = lake.lake.database
    add_suite(database, TENANT, SuiteVersion(suite, "v1", tuple(map(SuiteTask, tasks))))
    attempts = [
        Attempt(task=task, attempt=0, score=float(score))
        for task, score in zip(tasks, passed, strict=True)
    ]
    with database.write() as connection:
        record_attempts(connection, AttemptScope(TENANT, suite, "v1", checkpoint), "run", attempts)
