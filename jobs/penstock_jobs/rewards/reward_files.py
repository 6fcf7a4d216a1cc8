"""Rewards as files: immutable Parquet, live from one commit on, like segments.

A file holds the rewards of some sessions by one definition as of one moment, and beside it lies a
file with one row a session: its outcome. A session that is computed again is in a later file
too; which of its rows count is decided when they are read, by `computed_at`.
"""

import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.database.engine import Database
from penstock.lake.catalog import visible_at
from penstock.lake.commits import NO_PARTITION, announce_file, next_snap, withdraw_intent
from penstock.lake.errors import CompactionConflict, FileLost
from penstock.lake.segments import ZSTD_LEVEL, DigestingFile, open_segment, sessions_name
from penstock.storage import ObjectStore
from penstock_jobs.rewards.tables import reward_file

REWARDS, MERGE_REWARDS = "rewards", "merge_rewards"
_ROW_GROUP_ROWS = 100_000
_TIME = pa.timestamp("us", tz="UTC")


def _field(name: str, kind: pa.DataType, *, nullable: bool = True) -> pa.Field:
    return pa.field(name, kind, nullable=nullable)


_COMPUTED = [
    _field("definition", pa.string(), nullable=False),
    _field("definition_version", pa.string(), nullable=False),
    _field("computed_at", _TIME, nullable=False),
]
REWARD_FILE_ROWS = pa.schema(
    [
        _field("tenant", pa.string(), nullable=False),
        _field("session_id", pa.string(), nullable=False),
        _field("target_kind", pa.string(), nullable=False),
        _field("target_id", pa.string(), nullable=False),
        _field("name", pa.string(), nullable=False),
        _field("horizon_s", pa.int32()),
        _field("value", pa.float64()),
        _field("state", pa.string(), nullable=False),
        _field("reason", pa.string()),
        _field("weight", pa.float64(), nullable=False),
        _field("due_at", _TIME),
        _field("checkpoint", pa.string()),
        *_COMPUTED,
    ]
)
OUTCOME_FILE_ROWS = pa.schema(
    [
        _field("tenant", pa.string(), nullable=False),
        _field("session_id", pa.string(), nullable=False),
        _field("outcome", pa.string(), nullable=False),
        _field("reason", pa.string()),
        _field("value", pa.float64()),
        _field("checkpoint", pa.string()),
        _field("chain", pa.string(), nullable=False),
        _field("first_ts", _TIME, nullable=False),
        _field("last_ts", _TIME, nullable=False),
        _field("turns", pa.int32(), nullable=False),
        _field("edited_turns", pa.int32(), nullable=False),
        _field("answered_turns", pa.int32(), nullable=False),
        _field("asking_turns", pa.int32(), nullable=False),
        _field("tool_calls", pa.int32(), nullable=False),
        _field("invalid_tool_calls", pa.int32(), nullable=False),
        _field("due_at", _TIME),
        *_COMPUTED,
    ]
)
_ORDERS = {
    REWARD_FILE_ROWS: [
        *("tenant", "session_id", "computed_at"),
        *("target_kind", "target_id", "name", "horizon_s"),
    ],
    OUTCOME_FILE_ROWS: ["tenant", "session_id", "computed_at"],
}


@dataclass(frozen=True)
class RewardFile:
    """What a finished file of rewards is, as the metadata database will know it."""

    name: str
    definition_version: str
    rows: int
    bytes: int
    sha256: str
    sessions: int
    sessions_bytes: int
    sessions_sha256: str
    #: The newest commit whose events its sessions were computed from.
    lake_snap: int


class MadeBy(NamedTuple):
    """A definition's version, and the newest commit that it saw."""

    version: str
    lake_snap: int


def outcomes_name(name: str) -> str:
    """The file of outcomes beside a file of rewards."""
    return sessions_name(name)


def write_rewards(
    database: Database,
    store: ObjectStore,
    made_by: MadeBy,
    *,
    rewards: pa.Table,
    outcomes: pa.Table,
) -> RewardFile:
    """Both files, sorted; no query sees them before `add_rewards`."""
    name = f"rewards/{made_by.version}/{uuid.uuid4().hex[:16]}.parquet"
    announce_file(database, name, NO_PARTITION, owner=uuid.uuid4().hex)
    written = _write(store, name, rewards, REWARD_FILE_ROWS)
    beside = _write(store, outcomes_name(name), outcomes, OUTCOME_FILE_ROWS)
    return RewardFile(
        name=name,
        definition_version=made_by.version,
        rows=rewards.num_rows,
        bytes=written.size,
        sha256=written.digest.hexdigest(),
        sessions=outcomes.num_rows,
        sessions_bytes=beside.size,
        sessions_sha256=beside.digest.hexdigest(),
        lake_snap=made_by.lake_snap,
    )


def _write(store: ObjectStore, name: str, rows: pa.Table, schema: pa.Schema) -> DigestingFile:
    order = [(column, "ascending") for column in _ORDERS[schema]]
    with store.create(name) as file:
        sink = DigestingFile(file)
        with pq.ParquetWriter(
            pa.PythonFile(sink, mode="w"),
            schema,
            compression="zstd",
            compression_level=ZSTD_LEVEL,
            write_page_index=True,
            write_page_checksum=True,
            sorting_columns=pq.SortingColumn.from_ordering(schema, order),
        ) as writer:
            writer.write_table(rows.cast(schema).sort_by(order), row_group_size=_ROW_GROUP_ROWS)
    return sink


def read_rewards(store: ObjectStore, name: str) -> pa.Table:
    """Raises LakeDamaged, FileNotFoundError."""
    with open_segment(store, name) as file:
        return file.read()


def read_outcomes(store: ObjectStore, name: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Raises LakeDamaged, FileNotFoundError."""
    with open_segment(store, outcomes_name(name)) as file:
        return file.read(columns)


def add_rewards(connection: Connection, file: RewardFile, snap: int | None = None) -> int:
    """The file is part of the lake from the end of this transaction on. Raises FileLost."""
    if not withdraw_intent(connection, file.name):
        raise FileLost(name=file.name)
    snap = next_snap(connection, REWARDS) if snap is None else snap
    connection.execute(sa.insert(reward_file).values(**asdict(file), added_snap=snap))
    return snap


def replace_rewards(connection: Connection, names: Sequence[str], merged: RewardFile) -> None:
    """Put one file in the place of others, with the same rows. Raises CompactionConflict where
    another merge was faster, FileLost."""
    snap = next_snap(connection, MERGE_REWARDS)
    live = reward_file.c.name.in_(names) & reward_file.c.removed_snap.is_(None)
    replaced = connection.execute(sa.update(reward_file).where(live).values(removed_snap=snap))
    if replaced.rowcount != len(names):
        raise CompactionConflict
    add_rewards(connection, merged, snap)


def rewards_at(database: Database, snap: int, version: str | None = None) -> list[RewardFile]:
    """The files that a reader at `snap` sees, of one definition or of all."""
    columns = [reward_file.c[name] for name in RewardFile.__dataclass_fields__]
    query = sa.select(*columns).where(visible_at(snap, reward_file)).order_by(reward_file.c.id)
    if version is not None:
        query = query.where(reward_file.c.definition_version == version)
    with database.read() as connection:
        return [RewardFile(*row) for row in connection.execute(query)]
