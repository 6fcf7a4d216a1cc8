"""asked_instead: did the agent ask where it could have edited.

Measures: turns that end in a question to the user and without an edit. In production a model whose
reward came from edits learned to put off risky ones by asking; its rate of edits fell steeply.

Formula, per turn with an answer: 1 when there was no edit and the final message asks, else 0. A
session is the mean of its turns. A message asks when the last of its sentences, code aside, ends
with a question mark, also of Chinese, Japanese or Arabic.

Range: 0 to 1: lower is better, but not 0. A good question is worth more than a wrong edit: use it
to watch a checkpoint against the one before, or with a small negative weight.

pending: never. censored: `no_answer`, the agent said nothing in that turn and edited nothing.

To game it: put the question in the middle, or ask without a question mark. The suite for
ambiguous prompts holds against it from the other side.
"""

import re
from typing import Any

import pyarrow as pa

from penstock_jobs.rewards.bucket import Bucket
from penstock_jobs.rewards.reward import NoParameters, Reward
from penstock_jobs.rewards.turn_scores import TurnScore, score_turns

_CODE = re.compile(r"```.*?(```|\Z)", re.DOTALL)
_ASKS = re.compile("[?？؟][\\s\"'”’»）)*_]*\\Z")  # noqa: RUF001 question marks of several scripts


def asked_instead(bucket: Bucket, _parameters: NoParameters) -> pa.Table:
    """The rows of this reward: module docstring."""
    return score_turns("asked_instead", bucket, _score)


def asks(text: str) -> bool:
    """Whether it ends with a question."""
    return _ASKS.search(_CODE.sub("", text).rstrip()) is not None


def _score(turn: dict[str, Any]) -> TurnScore | None:
    if not turn["asked"]:
        return None
    if turn["edits"]:
        return TurnScore(0.0)
    if turn["final_text"] is None:
        return TurnScore(None, "no_answer")
    return TurnScore(1.0 if asks(turn["final_text"]) else 0.0)


REWARD = Reward("asked_instead", 1, asked_instead)
