"""Which sessions changed: from the summaries beside the segments, never from events.

A merge brings nothing new. So a merged segment says of each session which commit brought its
newest event; one of the writer's came with a commit of its own.
"""

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from penstock.lake.catalog import Pin, Segment
from penstock.lake.segments import open_segment, sessions_name
from penstock.storage import ObjectStore

_COLUMNS = ["tenant", "session_id", "changed_snap", "last_ts", "project", "parent_session", "link"]
#: A session that changed, with what the changed segments say of it: when it was heard of last, its
#: project, and with whose work it goes on.
CHANGES = pa.schema(
    [
        pa.field("tenant", pa.string(), nullable=False),
        pa.field("session_id", pa.string(), nullable=False),
        pa.field("changed_snap", pa.int64(), nullable=False),
        pa.field("last_ts", pa.int64(), nullable=False),
        pa.field("project", pa.string()),
        pa.field("parent_session", pa.string()),
        pa.field("link", pa.string()),
    ]
)
_GROUPED = [
    ("changed_snap", "max"),
    ("last_ts", "max"),
    ("project", "max"),
    ("parent_session", "max"),
    ("link", "max"),
]


def read_changes(store: ObjectStore, pin: Pin, after: int) -> pa.Table:
    """A row of CHANGES for each session of which an event came with a commit after `after`, in
    the order of segments. Reads only what changed, and the summaries of merges with it. Raises
    LakeDamaged, what the store raises."""
    tables = [_read(store, one, after) for one in pin.segments if one.changed_at > after]
    parts = pa.concat_tables([CHANGES.empty_table(), *tables])
    found = parts.group_by(["tenant", "session_id"]).aggregate(_GROUPED)
    named = found.rename_columns([name.removesuffix("_max") for name in found.column_names])
    return (
        named.select(CHANGES.names)
        .cast(CHANGES)
        .sort_by([("tenant", "ascending"), ("session_id", "ascending")])
    )


def read_changed(store: ObjectStore, segments: Iterable[Segment]) -> dict[tuple[str, str], int]:
    """The newest commit that brought an event of each session of these segments. Raises
    LakeDamaged, what the store raises."""
    found: dict[tuple[str, str], int] = {}
    for one in segments:
        rows = _read(store, one, -1)
        columns = (rows[name].to_pylist() for name in ("tenant", "session_id", "changed_snap"))
        for tenant, session, snap in zip(*columns, strict=True):
            found[tenant, session] = max(found.get((tenant, session), snap), snap)
    return found


def _read(store: ObjectStore, one: Segment, after: int) -> pa.Table:
    with open_segment(store, sessions_name(one.name)) as file:
        rows = file.read(_COLUMNS)
    snaps = pc.fill_null(rows["changed_snap"], one.added_snap)
    rows = rows.set_column(_COLUMNS.index("changed_snap"), CHANGES.field("changed_snap"), snaps)
    times = rows["last_ts"].cast(pa.int64())
    rows = rows.set_column(_COLUMNS.index("last_ts"), CHANGES.field("last_ts"), times)
    return rows.filter(pc.greater(rows["changed_snap"], after)).cast(CHANGES)
