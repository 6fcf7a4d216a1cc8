"""Hindsight, where the truth is known: simulated users of policies whose worth is known, beside a
suite that measures it and one that measures nothing."""

from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np

from penstock.backends.execution.calls import InlineExecutor
from penstock_jobs.loop.hindsight import (
    MetricForesight,
    foresights,
    online_metrics,
    read_verdicts,
    trials_of,
    with_traffic,
)
from penstock_jobs.rewards.definition import find_definition
from penstock_jobs.rewards.runs import RunRequest, run
from penstock_jobs.simulator.policy import Policy, policy_of
from penstock_jobs.simulator.production import START_US, Checkpoint, Production
from penstock_jobs.simulator.users import bent
from tests.support.checkpoint_factory import TENANT
from tests.support.hindsight_world import promote_in_turn
from tests.support.lakes import hand_lake
from tests.support.policy_worth import worth_of

#: People come back to a session for days; what goes on after a change is left out.
TURN_US = 10 * 86_400_000_000
HISTORIES = 6
CHECKPOINTS = 16
SESSIONS = 200
TASKS = 100
ONLINE = ("reward", "work_left", "edited_requests", "negative_by_rule")


def policies(seed: int) -> list[Policy]:
    """Mixtures of careful, plain, hasty and little work, in no order."""
    random = np.random.default_rng(seed)
    styles = ("careful", "plain", "hasty", "tiny")
    weights = random.dirichlet([0.4] * len(styles), CHECKPOINTS)
    return [
        policy_of(
            number, **{name: max(share, 0.01) for name, share in zip(styles, each, strict=True)}
        )
        for number, each in enumerate(weights.tolist(), 100)
    ]


def history(path: Path, seed: int) -> dict[tuple[str, str], MetricForesight]:
    random = np.random.default_rng(seed)
    served = policies(seed)
    worths = [worth_of(policy) for policy in served]
    scores = {"telling": worths, "blind": random.permutation(worths).tolist()}
    with hand_lake(path, canary_settle_seconds=0.0) as lake:
        changes = [
            replace(change, at=START_US + number * TURN_US)
            for number, change in enumerate(promote_in_turn(lake, scores, random, tasks=TASKS))
        ]
        for number, (change, policy) in enumerate(zip(changes, served, strict=True)):
            serving = (Checkpoint(str(change.checkpoint), policy),)
            own_seed = 1_000 * seed + number
            production = Production(own_seed, serving, change.at, world=bent(seed))
            for lived in chain.from_iterable(production.sessions(SESSIONS)):
                lake.send(b"\n".join(line for _, _, line in lived.lines))
        lake.writer().drain()
        end_us = changes[-1].at + 2 * TURN_US
        run(lake.lake, InlineExecutor(), RunRequest(find_definition()), now_us=end_us)
        metrics, _ = online_metrics(lake.lake.database, ONLINE, "default", strict=True)
        trials = trials_of(changes, now_us=end_us, settle_s=0.0, watch_s=TURN_US / 1e6)
        pairs = [
            with_traffic(lake.lake, pair, trials[pair.candidate, pair.incumbent], metrics, end_us)
            for pair in read_verdicts(lake.lake.database, TENANT, "production")
        ]
    found = foresights(pairs, ONLINE, [0.05])
    return {(each.offline.split()[0], each.online): each for each in found}


def test_a_suite_that_measures_the_worth_is_told_apart(tmp_path: Path) -> None:
    """Each history errs by chance: in one of twenty a blind suite seems to foretell."""
    concluded: dict[str, list[str]] = {"telling": [], "blind": []}
    for seed in range(1, HISTORIES + 1):
        found = history(tmp_path / str(seed), seed)
        for suite, conclusions in concluded.items():
            conclusions.append(found[suite, "reward"].foresight.conclusion)
        telling, blind = (found[suite, "reward"].foresight for suite in ("telling", "blind"))
        assert telling.correlation is not None
        assert blind.correlation is not None
        assert telling.correlation.value > blind.correlation.value
        assert telling.shown_agreed == telling.shown
    assert concluded["telling"].count("foretells") >= HISTORIES - 1
    assert concluded["blind"].count("foretells") <= 1
