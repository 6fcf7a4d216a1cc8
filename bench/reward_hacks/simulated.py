"""What rewards say of simulated policies whose true worth is known."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from penstock.backends.execution.calls import InlineExecutor
from penstock_jobs.rewards.definition import Definition
from penstock_jobs.rewards.runs import RunRequest, run
from penstock_jobs.simulator.policy import HACKS, HONEST, Style, habit
from penstock_jobs.simulator.production import Checkpoint, Production
from tests.support.lakes import hand_lake

#: After all that the sessions will ever say.
_LATER_US = 10 * 86_400_000_000
_SEED = 11
_REWARDS = """select session_id, value from rewards where superseded_at is null
    and name = 'reward' and target_kind = 'session' and definition_version = '{version}'"""


class Played(NamedTuple):
    """A policy over many sessions: its true worth, and by definition and number of the session
    its reward, where it has one."""

    style: Style
    honest: bool
    worth: float
    rewards: Mapping[str, Mapping[int, float]]

    def reward(self, definition: str) -> float:
        return float(np.mean(list(self.rewards[definition].values())))


def play(
    directory: Path,
    definitions: Sequence[Definition],
    sessions: int,
    styles: Sequence[Style] = (*HONEST, *HACKS),
) -> list[Played]:
    """All policies live through the same requests, users and luck."""
    worth: defaultdict[str, list[float]] = defaultdict(list)
    numbers: dict[str, tuple[str, int]] = {}
    with hand_lake(directory) as lake:
        for version, style in enumerate(styles):
            policy = habit(style, version)
            production = Production(_SEED, [Checkpoint(style.name, policy)])
            for number, lived in enumerate(production.sessions(sessions)):
                truth = lived[0].truth
                worth[style.name] += [turn.worth for turn in truth.turns]
                numbers[truth.session_id] = style.name, number
                lake.send(b"\n".join(line for one in lived for _, _, line in one.lines))
        lake.writer().drain()
        last_us = lake.rows("select max(epoch_us(ts)) as last from events")[0]["last"]
        rewards: defaultdict[str, dict[str, dict[int, float]]] = defaultdict(dict)
        for definition in definitions:
            run(lake.lake, InlineExecutor(), RunRequest(definition), now_us=last_us + _LATER_US)
            for row in lake.rows(_REWARDS.format(version=definition.version)):
                if row["session_id"] in numbers and row["value"] is not None:
                    name, number = numbers[row["session_id"]]
                    rewards[name].setdefault(definition.name, {})[number] = row["value"]
    honest = {style.name for style in HONEST}
    return [
        Played(style, style.name in honest, float(np.mean(worth[style.name])), rewards[style.name])
        for style in styles
    ]
