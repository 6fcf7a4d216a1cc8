"""open_todos: did the agent finish what it had put on its own list.

Measures: the to-do list of a session as it last stood: the arguments of the last call of a tool
that writes one (`TodoWrite`, `update_plan` and the like).

Formula, per session with a list: − items that are neither completed nor cancelled / items.

Range: −1, nothing was done, to 0, all is.

pending: never; a session that goes on is scored as it stands, and again when more comes.
censored: `unreadable`, the arguments are not a list of items with a status. Sessions without a
list have no row.

To game it: make no list, or a short one; tick off what was not done. Read it beside the share of
sessions with a list.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock_jobs.rewards.bucket import Bucket
from penstock_jobs.rewards.reward import NoParameters, Reward, RewardRows, TargetKind

_NAME = "open_todos"
_TOOLS = (
    "todowrite", "todo_write", "update_plan", "write_todos", "update_todo_list", "task_tracker",
)  # fmt: skip
_DONE = frozenset(("completed", "complete", "done", "cancelled", "canceled"))
_LISTS = ("todos", "plan", "items", "task_list", "tasks")


def open_todos(bucket: Bucket, _parameters: NoParameters) -> pa.Table:
    """The rows of this reward: module docstring."""
    rows = RewardRows(_NAME)
    for session, (arguments, checkpoint) in sorted(_last_lists(bucket.tool_calls).items()):
        items = _statuses(arguments)
        if items == []:
            continue
        value = None
        if items is not None:
            value = 0.0 - sum(status not in _DONE for status in items) / len(items)
        reason = "unreadable" if value is None else None
        target: tuple[TargetKind, str] = ("session", session)
        rows.add(session, target, value=value, reason=reason, checkpoint=checkpoint)
    return rows.table()


def _last_lists(calls: pa.Table) -> dict[str, tuple[str | None, str | None]]:
    """The last call's arguments and checkpoint of each session; of what the tool refused there is
    nothing to be seen."""
    last: dict[str, tuple[Any, str | None, str | None]] = {}
    for row in _todo_calls(calls):
        when = (row["ts"], -1 if row["seq"] is None else row["seq"])
        if row["session_id"] not in last or when >= last[row["session_id"]][0]:
            last[row["session_id"]] = (when, row["arguments"], row["checkpoint"])
    return {session: (arguments, name) for session, (_, arguments, name) in last.items()}


def _todo_calls(calls: pa.Table) -> Iterator[dict[str, Any]]:
    columns = ["session_id", "ts", "seq", "tool", "arguments", "ok", "checkpoint"]
    if calls.num_rows:
        writing = pc.is_in(pc.utf8_lower(calls["tool"]), pa.array(_TOOLS))
        chosen = calls.select(columns).filter(writing)
        yield from (row for row in chosen.to_pylist() if row["ok"] is not False)


def _statuses(arguments: str | None) -> list[str] | None:
    """None where they cannot be read."""
    try:
        found = msgspec.json.decode(arguments or "")
    except msgspec.DecodeError:
        return None
    if isinstance(found, str):  # as some providers send them: JSON in a text
        return _statuses(found)
    if isinstance(found, dict):
        found = next((found[name] for name in _LISTS if name in found), None)
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        return None
    return [str(item.get("status", "")).lower() for item in found]


REWARD = Reward(_NAME, 1, open_todos)
