"""The rewards about what the agent leaves to the user: open items of its own list, and its thinking
in comments."""

from collections import Counter, defaultdict
from dataclasses import dataclass

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock_jobs.rewards.bucket import Bucket, by_session
from penstock_jobs.rewards.definition import NoParameters, Reward
from penstock_jobs.rewards.rows import RewardRows
from penstock_jobs.rewards.texts.places import comment_start, is_comment
from penstock_jobs.rewards.texts.trail import Row, named

_TODO_TOOLS = (
    "todowrite", "todo_write", "update_plan", "write_todos", "update_todo_list", "task_tracker",
)  # fmt: skip
_DONE = frozenset(("completed", "complete", "done", "cancelled", "canceled"))
_LISTS = ("todos", "plan", "items", "task_list", "tasks")


def open_todos(bucket: Bucket, _parameters: NoParameters) -> pa.Table:
    """open_todos: did the agent finish what it had put on its own list.

    Measures: the to-do list of a session as it last stood: the arguments of the last call of a tool
    that writes one (`TodoWrite`, `update_plan` and the like).

    Formula, per session with a list: − items that are neither completed nor cancelled / items.
    Range: −1, nothing was done, to 0, all is.
    pending: never. censored: `unreadable`, the arguments are not a list of items with a status.
    Sessions without a list have no row.
    To game it: make no list, or a short one; tick off what was not done.
    """
    rows = RewardRows("open_todos")
    last_lists: dict[str, tuple[tuple[int, int], str | None, str | None]] = {}
    calls = bucket.tool_calls
    if calls.num_rows:
        calls = calls.filter(pc.is_in(pc.utf8_lower(calls["tool"]), pa.array(_TODO_TOOLS)))
        columns = ["session_id", "ts", "seq", "arguments", "ok", "checkpoint"]
        for row in calls.select(columns).to_pylist():
            if row["ok"] is False:  # the tool refused it: there is nothing to be seen of it
                continue
            session, when = row["session_id"], (row["ts"], -1 if row["seq"] is None else row["seq"])
            if session not in last_lists or when >= last_lists[session][0]:
                last_lists[session] = (when, row["arguments"], row["checkpoint"])
    for session, (_, arguments, checkpoint) in sorted(last_lists.items()):
        items = _statuses(arguments)
        if items is None:
            rows.add(session, ("session", session), None, "unreadable", checkpoint=checkpoint)
        elif items:
            value = 0.0 - sum(status not in _DONE for status in items) / len(items)
            rows.add(session, ("session", session), value, checkpoint=checkpoint)
    return rows.table()


def _statuses(arguments: str | None) -> list[str] | None:
    """None means that they cannot be read."""
    try:
        items = msgspec.json.decode(arguments or "")
    except msgspec.DecodeError:
        return None
    if isinstance(items, str):  # as some providers send them: JSON in a text
        return _statuses(items)
    if isinstance(items, dict):
        items = next((items[name] for name in _LISTS if name in items), None)
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        return None
    return [str(item.get("status", "")).lower() for item in items]


@dataclass(frozen=True)
class CommentParameters:
    """`chars_min` counts inserted characters of an edit; `free_share` is a share of them."""

    chars_min: int = 200
    free_share: float = 0.4

    def __post_init__(self) -> None:
        if not 0 <= self.free_share < 1 or self.chars_min < 1:
            raise ValueError("free_share has to be in [0, 1) and chars_min at least 1")


def reasoning_in_comments(bucket: Bucket, parameters: CommentParameters) -> pa.Table:
    """reasoning_in_comments: did the agent think aloud in the code.

    Measures: how much of what an edit put in is comments. A model that is charged for its thinking
    was seen to move it there, where the user has to read it.

    Formula, per edit that puts in at least `chars_min` characters: share = characters of inserted
    lines that are comments alone / characters of inserted lines. Above `free_share`,

        value = − (share − free_share) / (1 − free_share)

    A line is inserted when `before` has it less often than `after`. A session is the mean of its
    edits, weighted by inserted characters.

    Range: −1, nothing but comments, to 0.
    pending, censored, invalid: never. Shorter edits, and prose (Markdown, plain text), have no row.
    To game it: put the comment behind code on its line, or into strings, of which only whole lines
    within triple quotes count.
    """
    rows = RewardRows("reasoning_in_comments")
    of_sessions: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
    columns = ("edit_id", "event_id", "path", "before", "after", "checkpoint")
    for session, edits in by_session(bucket.edits, *columns).items():
        for edit_id, edit in named(edits):
            score = _comment_score(edit, parameters)
            if score is not None:
                value, written = score
                of_sessions[session].append(score)
                checkpoint = edit["checkpoint"]
                rows.add(session, ("edit", edit_id), value, weight=written, checkpoint=checkpoint)
    for session, scores in of_sessions.items():
        written = sum(weight for _, weight in scores)
        value = sum(value * weight for value, weight in scores) / written
        rows.add(session, ("session", session), value, weight=written)
    return rows.table()


def _comment_score(edit: Row, parameters: CommentParameters) -> tuple[float, int] | None:
    """Returns the value, and the number of characters that it is of."""
    if len(edit["after"] or "") < parameters.chars_min:
        return None
    start = comment_start(edit["path"] or "")
    if start is None:
        return None
    comments, written = comment_chars(edit["before"] or "", edit["after"] or "", start)
    if written < parameters.chars_min:
        return None
    excess = max(comments / written - parameters.free_share, 0.0)
    return 0.0 - excess / (1 - parameters.free_share), written


def comment_chars(before: str, after: str, start: str) -> tuple[int, int]:
    left = Counter(before.splitlines())
    comments = written = 0
    within = False
    for line in after.splitlines():
        opens = line.count('"""') + line.count("'''") if start == "#" else 0
        in_quotes = within or opens > 0
        within = within ^ (opens % 2 == 1)
        known = left.get(line)
        if known:
            left[line] = known - 1
            continue
        text = line.strip()
        written += len(text)
        if in_quotes or is_comment(text, start):
            comments += len(text)
    return comments, written


REWARDS = (
    Reward("open_todos", 1, open_todos),
    Reward("reasoning_in_comments", 1, reasoning_in_comments, CommentParameters),
)
