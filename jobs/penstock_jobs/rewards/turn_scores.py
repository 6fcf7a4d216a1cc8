"""What happened in each turn of a bucket: counted once, for all rewards that need no texts."""

from collections.abc import Callable, Iterable, Iterator
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


class Score(NamedTuple):
    """Of a turn. Without a value, `reason` says why it is censored."""

    value: float | None
    reason: str | None = None
    weight: float = 1.0


#: None where the reward has nothing to say of such a turn.
Scorer = Callable[[dict[str, Any]], Score | None]
#: A session from its turns, of which there is one at least.
Whole = Callable[[list[Score]], Score]


def mean(scores: list[Score]) -> Score:
    """Weighted, of the turns that have a value; else the reason of the last turn."""
    weight = total = 0.0
    known = False
    for value, _, each in scores:
        if value is not None:
            known = True
            weight += each
            total += each * value
    if not known:
        return Score(None, scores[-1].reason, sum(one.weight for one in scores))
    return Score(total / weight if weight else 0.0, None, weight)


def last(scores: list[Score]) -> Score:
    return scores[-1]


def turn_facts(bucket: Bucket) -> list[dict[str, Any]]:
    """The rows of turn_facts.sql."""
    if bucket not in _counted:
        _counted[bucket] = list(_count(bucket))
    return _counted[bucket]


def score_turns(name: str, bucket: Bucket, score: Scorer, whole: Whole = mean) -> pa.Table:
    """The reward of all turns of a bucket, and of their sessions."""
    rows = RewardRows(name)
    for session, turns in groupby(turn_facts(bucket), key=itemgetter("session_id")):
        scores = [(turn, one) for turn in turns if (one := score(turn)) is not None]
        for turn, (value, reason, weight) in scores:
            target = str(turn["turn"])
            checkpoint = turn["checkpoint"]
            rows.add(
                session,
                ("turn", target),
                value=value,
                reason=reason,
                weight=weight,
                checkpoint=checkpoint,
            )
        if scores:
            value, reason, weight = whole([one for _, one in scores])
            checkpoint = _only(turn for turn, _ in scores)
            rows.add(
                session,
                ("session", session),
                value=value,
                reason=reason,
                weight=weight,
                checkpoint=checkpoint,
            )
    return rows.table()


def _count(bucket: Bucket) -> Iterator[dict[str, Any]]:
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name in _TABLES:
            connection.register(f"bucket_{name}", getattr(bucket, name))
        found = connection.sql(_SQL, params={"terminal_tools": list(TERMINAL_TOOLS)})
        table = found.to_arrow_table()
    columns = (column.to_pylist() for column in table.columns)
    for row in zip(*columns, strict=True):
        yield dict(zip(table.column_names, row, strict=True))


def _only(turns: Iterable[dict[str, Any]]) -> str | None:
    """The checkpoint, where all have the same."""
    found = {turn["checkpoint"] for turn in turns}
    return found.pop() if len(found) == 1 else None
