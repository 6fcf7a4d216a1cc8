"""The order in which things happened in a session, and what its edits are called."""

from collections.abc import Iterable, Iterator
from typing import Any

Row = dict[str, Any]

#: An event without a number comes after those that have one, at the same moment.
_SEQ_LAST = 2**63
_TIES = (
    "event_id",
    "path",
    "edit_id",
    "text",
    "after",
    "before",
    "deleted",
    "branch_changed",
    "payload",
)


def in_order(*kinds: Iterable[Row]) -> list[tuple[int, int, Row]]:
    """Rows as (ts, number of the kind, row), by (ts, seq, kind), whatever the order that they came
    in; the same row twice is there once. Times are in microseconds."""
    events: dict[tuple[int, int, int], list[Row]] = {}
    for kind, rows in enumerate(kinds):
        for row in rows:
            seq = row["seq"]
            place = (row["ts"], _SEQ_LAST if seq is None else seq, kind)
            events.setdefault(place, []).append(row)
    return [
        (ts, kind, row)
        for ts, seq, kind in sorted(events)
        for row in _untied(events[ts, seq, kind])
    ]


def _untied(rows: list[Row]) -> list[Row]:
    """Rows of one moment without a number have to stand in some order: any, but the same."""
    if len(rows) == 1:
        return rows
    ties = {tuple(str(row.get(column) or "") for column in _TIES): row for row in rows}
    return [ties[tie] for tie in sorted(ties)]


class EditNames:
    """Of one session; edits are asked for in their order."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}

    def of(self, edit: Row) -> str:
        """The id that was sent, or its time; one that comes again is numbered."""
        seq = edit["seq"]
        name = edit["edit_id"] or edit["event_id"]
        name = name or f"{edit['ts']}:{'' if seq is None else seq}"
        self._seen[name] = count = self._seen.get(name, 0) + 1
        return name if count == 1 else f"{name}#{count}"


def named(edits: Iterable[Row]) -> Iterator[tuple[str, Row]]:
    """The edits of one session, in their order."""
    names = EditNames()
    for _, _, edit in in_order(edits):
        yield names.of(edit), edit
