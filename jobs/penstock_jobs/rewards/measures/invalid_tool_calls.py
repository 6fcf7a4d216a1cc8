"""invalid_tool_calls: did the model call its tools as they can be called.

Measures: calls that the tool could not understand (`error_class` is `invalid_arguments`). In
production a model was seen to break a call on purpose when it expected to fail, because broken
calls were left out of training and so cost nothing. Here they are negatives that stand there.

Formula, per turn with tool calls: − invalid calls / calls. A session is the mean of its turns,
weighted by their calls.

Range: −1, all are broken, to 0, none is.

pending, censored, invalid: never. Turns without a tool call have no row: nothing was called.

To game it: call fewer tools, or only those that take anything (a terminal): read it beside
`only_terminal`. Errors that a sound call meets, a file that is not there, do not count.
"""

from typing import Any

import pyarrow as pa

from penstock_jobs.rewards.bucket import Bucket
from penstock_jobs.rewards.reward import NoParameters, Reward
from penstock_jobs.rewards.turn_scores import TurnScore, score_turns


def invalid_tool_calls(bucket: Bucket, _parameters: NoParameters) -> pa.Table:
    """The rows of this reward: module docstring."""
    return score_turns("invalid_tool_calls", bucket, _score)


def _score(turn: dict[str, Any]) -> TurnScore | None:
    calls = turn["tool_calls"]
    if not calls:
        return None
    return TurnScore(0.0 - turn["invalid_tool_calls"] / calls, weight=calls)


REWARD = Reward("invalid_tool_calls", 1, invalid_tool_calls)
