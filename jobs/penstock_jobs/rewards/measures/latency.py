"""latency: how long the user waited for the agent.

Measures: the time from a user's message to the end of the agent's answer: its last model call,
tool result or edit before the next message.

Formula, per turn: seconds between the two. A session is the mean of its turns.

Range: 0 and up, in seconds: lower is better, so a definition gives it a negative weight, and a
clip, since one forgotten approval overnight is longer than all answers together.

pending: never. censored: `no_answer`, the agent did nothing in that turn. Turns before the first
message have no row.

To game it: answer at once with nothing, or ask back. Read it beside the rate of edits and
`asked_instead`. Time in which a tool waits for the user's permission counts as the agent's.
"""

from typing import Any

import pyarrow as pa

from penstock_jobs.rewards.bucket import Bucket
from penstock_jobs.rewards.reward import NoParameters, Reward
from penstock_jobs.rewards.turn_scores import TurnScore, score_turns


def latency(bucket: Bucket, _parameters: NoParameters) -> pa.Table:
    """The rows of this reward: module docstring."""
    return score_turns("latency", bucket, _score)


def _score(turn: dict[str, Any]) -> TurnScore | None:
    if not turn["asked"]:
        return None
    if turn["answer_seconds"] is None:
        return TurnScore(None, "no_answer")
    return TurnScore(turn["answer_seconds"])


REWARD = Reward("latency", 1, latency)
