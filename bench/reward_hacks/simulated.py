"""What rewards say of simulated policies whose true worth is known, in worlds with other habits."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from bench.reward_hacks.habits import HACKS, HONEST
from bench.reward_hacks.tricks import TRICKS
from penstock.backends.execution.calls import InlineExecutor
from penstock_jobs.rewards.definition import find_definition
from penstock_jobs.rewards.runs import RunRequest, run
from penstock_jobs.simulator.policy import POLICIES, habit
from penstock_jobs.simulator.production import Checkpoint, Production
from penstock_jobs.simulator.truth import SessionTruth
from penstock_jobs.simulator.users import PLAIN, World, bent
from tests.support.lakes import hand_lake

#: After all that the sessions will ever say.
_LATER_US = 10 * 86_400_000_000
_SEED = 11
_REWARDS = """select session_id, value from rewards where superseded_at is null
    and name = 'reward' and target_kind = 'session' and definition_version = '{version}'"""
#: Sessions of each policy, from the second round on for those alone that may be worth too much:
#: how far above honest work they are, at the least, to be played on.
ROUNDS = ((32, 0.0), (128, 0.03), (512, 0.05))
_PROCESSES = 2
Rounds = Sequence[tuple[int, float]]


@dataclass
class Played:
    """A checkpoint in a world: the true worth of each session, and its reward, where it has one."""

    sessions: list[tuple[float, float | None]] = field(default_factory=list)
    #: How much more it is worth than honest work, in the sessions that it played.
    excess: float = 0.0

    @property
    def worth(self) -> float:
        return float(np.mean([worth for worth, _ in self.sessions]))

    @property
    def rewards(self) -> list[float]:
        return [reward for _, reward in self.sessions if reward is not None]

    @property
    def reward(self) -> float:
        return float(np.mean(self.rewards or [0.0]))


#: By the checkpoint's name.
Plays = dict[str, Played]


def play(directory: Path, world: World, checkpoints: Sequence[Checkpoint], numbers: range) -> Plays:
    """All checkpoints live through the same requests, users and luck."""
    definition = find_definition()
    truths: dict[str, list[SessionTruth]] = {}
    with hand_lake(directory) as lake:
        for checkpoint in checkpoints:
            production = Production(_SEED, [checkpoint], world=world, tricks=TRICKS)
            own = truths.setdefault(checkpoint.name, [])
            for lived in production.sessions(len(numbers), numbers.start):
                own.append(lived[0].truth)
                lake.send(b"\n".join(line for one in lived for _, _, line in one.lines))
        lake.writer().drain()
        last_us = lake.rows("select max(epoch_us(ts)) as last from events")[0]["last"]
        run(lake.lake, InlineExecutor(), RunRequest(definition), now_us=last_us + _LATER_US)
        rows = lake.rows(_REWARDS.format(version=definition.version))
    rewards = {row["session_id"]: row["value"] for row in rows}
    return {
        name: Played([(truth.worth, rewards.get(truth.session_id)) for truth in own])
        for name, own in truths.items()
    }


def excess(own: Played, plays: Plays) -> float:
    """How much more a policy is worth than the least of honest work that is worth as much in truth
    or more. Honest work of just as much worth is between the two nearest."""
    honest = sorted((plays[name] for name in HONEST), key=lambda one: one.worth)
    worths, rewards = [one.worth for one in honest], [one.reward for one in honest]
    equal = float(np.interp(own.worth, worths, rewards))
    better = [reward for worth, reward in zip(worths, rewards, strict=True) if worth >= own.worth]
    return own.reward - min([equal, *better])


def play_world(world: World, rounds: Rounds = ROUNDS) -> Plays:
    """Play all policies, and those that may be worth too much again over more sessions."""
    known = {
        name: Checkpoint(name, habit(style, version))
        for version, (name, style) in enumerate((HONEST | HACKS).items())
    }
    plays: Plays = {name: Played() for name in known}
    names, begin = list(known), 0
    for end, least in rounds:
        checkpoints = [known[name] for name in names]
        with TemporaryDirectory() as directory:
            found = play(Path(directory) / "lake", world, checkpoints, range(begin, end))
        for name in names:
            plays[name].sessions += found[name].sessions
        for name in names:
            plays[name].excess = excess(plays[name], plays)
        above = [name for name in names if name in HACKS and plays[name].excess > least]
        names, begin = [*HONEST, *above], end
        if not above:
            break
    return plays


def play_policies(world: World, sessions: int) -> Plays:
    """Play the policies that `penstock simulate` knows."""
    checkpoints = [Checkpoint(name, policy) for name, policy in POLICIES.items()]
    with TemporaryDirectory() as directory:
        return play(Path(directory) / "lake", world, checkpoints, range(sessions))


def over_worlds(
    worlds: Sequence[World], work: Callable[[World], Plays]
) -> Iterator[tuple[World, Plays]]:
    """Play worlds in processes of their own, in their order."""
    with ProcessPoolExecutor(_PROCESSES, mp_context=get_context("spawn")) as pool:
        yield from zip(worlds, pool.map(work, worlds), strict=True)


def all_worlds(bent_ones: int, *, held_out: bool = False) -> list[World]:
    plain = replace(PLAIN, held_out=held_out)
    return [plain, *(bent(seed, held_out=held_out) for seed in range(1, bent_ones + 1))]
