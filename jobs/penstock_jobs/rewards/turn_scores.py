"""What happened in each turn, counted once for all rewards that need no texts, and the rows of a
reward that is scored turn by turn."""

from collections.abc import Callable, Iterator
from importlib.resources import files
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import duckdb
import pyarrow as pa

from penstock_jobs.rewards.bucket import Bucket
from penstock_jobs.rewards.reward import RewardRows

_SQL = files("penstock_jobs.rewards").joinpath("turn_facts.sql").read_text(encoding="utf-8")
_TABLES = ("turns", "model_calls", "tool_calls", "edits", "feedback", "events")
#: Tools that run commands, under the names that agents give them.
TERMINAL_TOOLS = (
    "bash", "shell", "terminal", "run_terminal_cmd", "run_terminal_command", "execute_bash",
    "run_command", "exec", "exec_command", "local_shell", "powershell",
)  # fmt: skip

_counted: WeakKeyDictionary[Bucket, list[dict[str, Any]]] = WeakKeyDictionary()


class TurnScore(NamedTuple):
    """Without a value, `reason` says why the turn is censored."""

    value: float | None
    reason: str | None = None
    weight: float = 1.0


#: None where the reward has nothing to say of such a turn.
TurnScorer = Callable[[dict[str, Any]], TurnScore | None]
#: A session from its turns, of which there is one at least.
Whole = Callable[[list[TurnScore]], TurnScore]


def mean(scores: list[TurnScore]) -> TurnScore:
    """Weighted, of the turns that have a value; else the reason of the last turn."""
    weight = total = 0.0
    known = False
    for value, _, each in scores:
        if value is not None:
            known = True
            weight += each
            total += each * value
    if not known:
        return TurnScore(None, scores[-1].reason, sum(score.weight for score in scores))
    return TurnScore(total / weight if weight else 0.0, None, weight)


def last(scores: list[TurnScore]) -> TurnScore:
    return scores[-1]


def score_turns(name: str, bucket: Bucket, score: TurnScorer, whole: Whole = mean) -> pa.Table:
    """The reward of all turns of a bucket, and of their sessions."""
    rows = RewardRows(name)
    for session, turns in groupby(turn_facts(bucket), key=itemgetter("session_id")):
        scored = [(turn, own) for turn in turns if (own := score(turn)) is not None]
        for turn, (value, reason, weight) in scored:
            rows.add(
                session,
                ("turn", str(turn["turn"])),
                value=value,
                reason=reason,
                weight=weight,
                checkpoint=turn["checkpoint"],
            )
        if scored:
            value, reason, weight = whole([own for _, own in scored])
            checkpoints = {turn["checkpoint"] for turn, _ in scored}
            rows.add(
                session,
                ("session", session),
                value=value,
                reason=reason,
                weight=weight,
                checkpoint=checkpoints.pop() if len(checkpoints) == 1 else None,
            )
    return rows.table()


def turn_facts(bucket: Bucket) -> list[dict[str, Any]]:
    """The rows of turn_facts.sql."""
    if bucket not in _counted:
        _counted[bucket] = list(_count(bucket))
    return _counted[bucket]


def _count(bucket: Bucket) -> Iterator[dict[str, Any]]:
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name in _TABLES:
            connection.register(f"bucket_{name}", getattr(bucket, name))
        counted = connection.sql(_SQL, params={"terminal_tools": list(TERMINAL_TOOLS)})
        table = counted.to_arrow_table()
    columns = (column.to_pylist() for column in table.columns)
    for row in zip(*columns, strict=True):
        yield dict(zip(table.column_names, row, strict=True))
