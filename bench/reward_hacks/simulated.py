"""What rewards say of simulated policies whose true worth is known, in worlds with other habits."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from bench.reward_hacks.habits import HACKS, HONEST
from bench.reward_hacks.tricks import TRICKS
from penstock.backends.execution.calls import InlineExecutor
from penstock_jobs.rewards.definition import find_definition
from penstock_jobs.rewards.runs import RunRequest, run
from penstock_jobs.simulator.policy import Style, habit
from penstock_jobs.simulator.production import Checkpoint, Production
from penstock_jobs.simulator.users import World
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
_STYLES = (*HONEST, *HACKS)


@dataclass
class Played:
    """A policy in a world: the true worth of each session, and its reward, where it has one."""

    style: Style
    worths: list[float] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    #: How much more it is worth than honest work, in the sessions that it played.
    excess: float = 0.0

    @property
    def honest(self) -> bool:
        return self.style in HONEST

    @property
    def worth(self) -> float:
        return float(np.mean(self.worths))

    @property
    def reward(self) -> float:
        return float(np.mean(self.rewards or [0.0]))


Plays = dict[str, Played]


def play(directory: Path, world: World, styles: Sequence[Style], numbers: range) -> Plays:
    """All policies live through the same requests, users and luck."""
    played = {style.name: Played(style) for style in styles}
    of_session: dict[str, str] = {}
    definition = find_definition()
    with hand_lake(directory) as lake:
        for version, style in enumerate(styles):
            checkpoint = Checkpoint(style.name, habit(style, version))
            production = Production(_SEED, [checkpoint], world=world, tricks=TRICKS)
            for lived in production.sessions(len(numbers), numbers.start):
                truth = lived[0].truth
                played[style.name].worths.append(truth.worth)
                of_session[truth.session_id] = style.name
                lake.send(b"\n".join(line for one in lived for _, _, line in one.lines))
        lake.writer().drain()
        last_us = lake.rows("select max(epoch_us(ts)) as last from events")[0]["last"]
        run(lake.lake, InlineExecutor(), RunRequest(definition), now_us=last_us + _LATER_US)
        for row in lake.rows(_REWARDS.format(version=definition.version)):
            name = of_session.get(row["session_id"])
            if name is not None and row["value"] is not None:
                played[name].rewards.append(row["value"])
    return played


def excess(own: Played, plays: Plays) -> float:
    """How much more a policy is worth than the least of honest work that is worth as much in truth
    or more. Honest work of just as much worth is between the two nearest."""
    honest = sorted((one for one in plays.values() if one.honest), key=lambda one: one.worth)
    worths, rewards = [one.worth for one in honest], [one.reward for one in honest]
    equal = float(np.interp(own.worth, worths, rewards))
    better = [reward for worth, reward in zip(worths, rewards, strict=True) if worth >= own.worth]
    return own.reward - min([equal, *better])


Rounds = Sequence[tuple[int, float]]


def play_world(world: World, rounds: Rounds = ROUNDS) -> Plays:
    """Play all policies, and those that may be worth too much again over more sessions."""
    plays: Plays = {style.name: Played(style) for style in _STYLES}
    styles, begin = list(_STYLES), 0
    for end, least in rounds:
        with TemporaryDirectory() as directory:
            found = play(Path(directory) / "lake", world, styles, range(begin, end))
        for name, one in found.items():
            plays[name].worths += one.worths
            plays[name].rewards += one.rewards
        for name in found:
            plays[name].excess = excess(plays[name], plays)
        above = [style for style in styles if plays[style.name].excess > least]
        styles, begin = [*HONEST, *(style for style in above if style not in HONEST)], end
        if len(styles) == len(HONEST):
            break
    return plays


def play_worlds(worlds: Sequence[World], rounds: Rounds = ROUNDS) -> Iterator[tuple[World, Plays]]:
    """Play worlds in processes of their own, in their order."""
    with ProcessPoolExecutor(_PROCESSES, mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(play_world, world, rounds) for world in worlds]
        for world, future in zip(worlds, futures, strict=True):
            yield world, future.result()
