"""Sessions written by hand: edits, and what the files held when somebody looked again."""

from typing import Any

import pyarrow as pa

from penstock_jobs.rewards.bucket import Bucket

Row = dict[str, Any]

SECOND = 1_000_000
START_US = 1_795_000_000 * SECOND
LATER_US = START_US + 86_400 * SECOND

_BASE = {
    "session_id": pa.string(),
    "ts": pa.timestamp("us", tz="UTC"),
    "seq": pa.int64(),
    "checkpoint": pa.string(),
    "event_id": pa.string(),
}
_COLUMNS: dict[str, dict[str, pa.DataType]] = {
    "edits": {**dict.fromkeys(("edit_id", "path", "before", "after"), pa.string())},
    "observations": {
        "path": pa.string(),
        "text": pa.string(),
        "deleted": pa.bool_(),
        "branch_changed": pa.bool_(),
    },
    "turns": {
        "turn": pa.int64(),
        "text": pa.string(),
        **dict.fromkeys(("model_calls", "tool_calls", "edits"), pa.int64()),
    },
    "model_calls": {"text": pa.string()},
    "feedback": {"positive": pa.bool_()},
    "events": {"type": pa.string(), "payload": pa.string()},
}


class Story:
    """Events of one session, in seconds after its start."""

    def __init__(self, session: str = "s-1") -> None:
        self.session = session
        self.rows: dict[str, list[Row]] = {name: [] for name in _COLUMNS}
        self._seq = 0

    def edit(
        self, at: float, before: str | None, after: str | None, path: str = "a.py", **more: Any
    ) -> "Story":
        name = f"e-{len(self.rows['edits']) + 1}"
        row = {"edit_id": name, "path": path, "before": before, "after": after, **more}
        return self._add("edits", at, row)

    def look(self, at: float, text: str | None, path: str = "a.py", **more: Any) -> "Story":
        row = {"path": path, "text": text, "deleted": text is None, **more}
        return self._add("observations", at, row)

    def turn(self, at: float, text: str | None = None) -> "Story":
        row = {"turn": len(self.rows["turns"]) + 1, "text": text, "model_calls": 1}
        return self._add("turns", at, row)

    def event(self, at: float, kind: str, payload: str = "{}") -> "Story":
        return self._add("events", at, {"type": kind, "payload": payload})

    def _add(self, view: str, at: float, row: Row) -> "Story":
        self._seq += 1
        base = {
            "session_id": self.session,
            "ts": START_US + round(at * SECOND),
            "seq": self._seq,
            "event_id": f"{view}-{self._seq}",
        }
        self.rows[view].append({**base, **row})
        return self


def bucket(*stories: Story, as_of_us: int = LATER_US) -> Bucket:
    tables = {}
    for story in stories:
        if not story.rows["turns"]:
            story.rows["turns"].append(
                {"session_id": story.session, "ts": START_US - SECOND, "seq": 0, "turn": 0}
            )
    for view, columns in _COLUMNS.items():
        rows = [row for story in stories for row in story.rows[view]]
        schema = pa.schema({**_BASE, **columns})
        tables[view] = pa.Table.from_pylist(rows, schema=schema)
    empty = pa.table({})
    return Bucket(as_of_us=as_of_us, user_messages=empty, tool_calls=empty, **tables)


def found(rows: pa.Table, target: str, horizon_s: int, kind: str = "edit") -> Row:
    """The one row about a target at a horizon."""
    (row,) = [
        row
        for row in rows.to_pylist()
        if (row["target_kind"], row["target_id"], row["horizon_s"]) == (kind, target, horizon_s)
    ]
    return dict(row)
