"""only_terminal: did the agent do everything through a terminal.

Measures: a collapse that was seen in training: a model that has edit, search and read tools and
calls nothing but the terminal, since a terminal takes anything.

Formula, per turn with at least `calls_min` tool calls: −1 when all were of a terminal, else 0. A
session is the mean of its turns.

Range: −1 to 0.

pending, censored, invalid: never. Turns with fewer tool calls have no row: one command is no
collapse.

To game it: a read for show among the commands. Read it beside the share of terminal calls in the
view `tool_calls`. Where agents have a terminal alone, leave it out of the definition.
"""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock_jobs.rewards.bucket import Bucket
from penstock_jobs.rewards.reward import Reward
from penstock_jobs.rewards.turn_scores import TurnScore, score_turns


@dataclass(frozen=True)
class TerminalParameters:
    """`calls_min` are tool calls of a turn."""

    calls_min: int = 4


def only_terminal(bucket: Bucket, parameters: TerminalParameters) -> pa.Table:
    """The rows of this reward: module docstring."""

    def score(turn: dict[str, Any]) -> TurnScore | None:
        if turn["tool_calls"] < parameters.calls_min:
            return None
        return TurnScore(-1.0 if turn["terminal_calls"] == turn["tool_calls"] else 0.0)

    return score_turns("only_terminal", bucket, score)


REWARD = Reward("only_terminal", 1, only_terminal, TerminalParameters)
