"""What happened in each turn of a bucket: counted once, for all rewards that need no texts."""

from collections.abc import Callable, Iterable, Iterator
from importlib.resources import files
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import duckdb
import pyarrow as pa

from penstock_jobs.rewards.rows import REWARD_ROWS, Bucket, TargetKind, reward_row

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
    known = [one for one in scores if one.value is not None]
    if not known:
        return Score(None, scores[-1].reason, sum(one.weight for one in scores))
    weight = sum(one.weight for one in known)
    total = sum(one.weight * (one.value or 0.0) for one in known)
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
    rows: list[dict[str, Any]] = []
    for session, turns in _by_session(turn_facts(bucket)):
        scores = [(turn, one) for turn in turns if (one := score(turn)) is not None]
        for turn, one in scores:
            target: tuple[TargetKind, str] = ("turn", str(turn["turn"]))
            facts = {**one._asdict(), "checkpoint": turn["checkpoint"]}
            rows.append(reward_row(session, target, name, **facts))
        if scores:
            together = whole([one for _, one in scores])
            facts = {**together._asdict(), "checkpoint": _only(turn for turn, _ in scores)}
            rows.append(reward_row(session, ("session", session), name, **facts))
    return pa.Table.from_pylist(rows, REWARD_ROWS)


def _count(bucket: Bucket) -> Iterator[dict[str, Any]]:
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name in _TABLES:
            connection.register(f"bucket_{name}", getattr(bucket, name))
        found = connection.sql(_SQL, params={"terminal_tools": list(TERMINAL_TOOLS)})
        yield from found.to_arrow_table().to_pylist()


def _by_session(
    rows: Iterable[dict[str, Any]],
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    sessions: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        sessions.setdefault(row["session_id"], []).append(row)
    yield from sessions.items()


def _only(turns: Iterable[dict[str, Any]]) -> str | None:
    """The checkpoint, where all have the same."""
    found = {turn["checkpoint"] for turn in turns}
    return found.pop() if len(found) == 1 else None
