"""explicit_feedback: what users said outright.

Measures: thumbs, accepted and rejected changes, undos: the view `feedback` says which are positive.

Formula, per turn with such feedback: (positive − negative) / (positive + negative). A session is
the mean of its turns, weighted by how many there were.

Range: −1, all negative, to 1, all positive.

pending, censored, invalid: never. Turns without feedback have no row: silence is no praise. Few
users give any, and those who do are not like the others.

To game it: flatter. Ratings and comments do not count, since their scale is the producer's.
"""

from typing import Any

import pyarrow as pa

from penstock_jobs.rewards.bucket import Bucket
from penstock_jobs.rewards.reward import NoParameters, Reward
from penstock_jobs.rewards.turn_scores import TurnScore, score_turns


def explicit_feedback(bucket: Bucket, _parameters: NoParameters) -> pa.Table:
    """The rows of this reward: module docstring."""
    return score_turns("explicit_feedback", bucket, _score)


def _score(turn: dict[str, Any]) -> TurnScore | None:
    liked, disliked = turn["liked"], turn["disliked"]
    if not liked + disliked:
        return None
    return TurnScore((liked - disliked) / (liked + disliked), weight=liked + disliked)


REWARD = Reward("explicit_feedback", 1, explicit_feedback)
