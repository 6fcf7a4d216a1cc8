"""tests_passing: do the tests pass when the agent is done.

Measures: the last `test_result` of a turn, whoever ran it.

Formula, per turn with a test result: passed / (passed + failed); where nobody counted, 1 when it
was `ok` and 0 when not. A session is its last such turn: what was red may have become green.

Range: 0, all fail, to 1, all pass.

pending: never. censored: `nothing_ran`, the result names neither a count nor whether it was well.
Turns without a test result have no row.

To game it: delete or skip the tests that fail, or run only those that pass. Skipped tests count
nothing here: watch their number.
"""

from typing import Any

import pyarrow as pa

from penstock_jobs.rewards.bucket import Bucket
from penstock_jobs.rewards.reward import NoParameters, Reward
from penstock_jobs.rewards.turn_scores import TurnScore, last, score_turns


def tests_passing(bucket: Bucket, _parameters: NoParameters) -> pa.Table:
    """The rows of this reward: module docstring."""
    return score_turns("tests_passing", bucket, _score, last)


def _score(turn: dict[str, Any]) -> TurnScore | None:
    if not turn["tested"]:
        return None
    passed, failed = turn["tests_passed"] or 0.0, turn["tests_failed"] or 0.0
    if passed + failed > 0:
        return TurnScore(passed / (passed + failed))
    if turn["tests_ok"] is None:
        return TurnScore(None, "nothing_ran")
    return TurnScore(float(turn["tests_ok"]))


REWARD = Reward("tests_passing", 1, tests_passing)
