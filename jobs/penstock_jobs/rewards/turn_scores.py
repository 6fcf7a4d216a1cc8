"""What happened in each turn, counted once for all rewards that need no texts, and the rows of a
reward that is scored turn by turn."""

from collections.abc import Callable
from functools import wraps
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import pyarrow as pa

from penstock_jobs.rewards.bucket import Bucket, query_rows
from penstock_jobs.rewards.reward import NoParameters, Reward
from penstock_jobs.rewards.rows import RewardRows

_TABLES = ("turns", "model_calls", "tool_calls", "edits", "feedback", "events")
#: Tools that run commands, under the names that agents give them.
TERMINAL_TOOLS = (
    "bash", "shell", "terminal", "run_terminal_cmd", "run_terminal_command", "execute_bash",
    "run_command", "exec", "exec_command", "local_shell", "powershell",
)  # fmt: skip
Turn = dict[str, Any]

_facts: WeakKeyDictionary[Bucket, list[Turn]] = WeakKeyDictionary()


class TurnScore(NamedTuple):
    """Without a value, `reason` says why the turn is censored."""

    value: float | None
    reason: str | None = None
    weight: float = 1.0


#: None where the reward has nothing to say of such a turn.
TurnScorer = Callable[[Turn], TurnScore | None]
#: A session from its turns, of which there is one at least.
Whole = Callable[[list[TurnScore]], TurnScore]


def mean(scores: list[TurnScore]) -> TurnScore:
    """The mean is weighted. Without values it has the reason of the last turn."""
    weight = total = 0.0
    known = False
    for value, _, turn_weight in scores:
        if value is not None:
            known = True
            weight += turn_weight
            total += turn_weight * value
    if not known:
        return TurnScore(None, scores[-1].reason, sum(score.weight for score in scores))
    return TurnScore(total / weight if weight else 0.0, None, weight)


def last(scores: list[TurnScore]) -> TurnScore:
    return scores[-1]


def turn_reward(score: TurnScorer, whole: Whole = mean) -> Reward:
    """A reward without parameters that has the name and the page of the function that scores a
    turn."""
    name = score.__name__

    @wraps(score)
    def compute(bucket: Bucket, _parameters: NoParameters) -> pa.Table:
        return score_turns(name, bucket, score, whole)

    return Reward(name, 1, compute)


def score_turns(name: str, bucket: Bucket, score: TurnScorer, whole: Whole = mean) -> pa.Table:
    rows = RewardRows(name)
    for session, turns in groupby(turn_facts(bucket), key=itemgetter("session_id")):
        scored = [(turn, own) for turn in turns if (own := score(turn)) is not None]
        for turn, (value, reason, weight) in scored:
            number, checkpoint = str(turn["turn"]), turn["checkpoint"]
            rows.add(session, ("turn", number), value, reason, weight=weight, checkpoint=checkpoint)
        if scored:
            value, reason, weight = whole([own for _, own in scored])
            checkpoints = {turn["checkpoint"] for turn, _ in scored}
            common = checkpoints.pop() if len(checkpoints) == 1 else None
            rows.add(session, ("session", session), value, reason, weight=weight, checkpoint=common)
    return rows.table()


def turn_facts(bucket: Bucket) -> list[Turn]:
    if bucket not in _facts:
        tables = {f"bucket_{name}": getattr(bucket, name) for name in _TABLES}
        _facts[bucket] = query_rows("turn_facts.sql", tables, terminal_tools=list(TERMINAL_TOOLS))
    return _facts[bucket]
