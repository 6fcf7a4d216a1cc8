"""What queries see of the registry, now and as of earlier."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from penstock.backends.database.engine import now_us
from penstock.lake.catalog import create_snapshot
from penstock.registry.channels.tables import channel_change
from penstock.registry.checkpoints.attempts import Attempt, begin_run, record_attempts
from penstock.registry.checkpoints.journal import AttemptScope
from penstock.registry.checkpoints.tables import checkpoint, checkpoint_move
from tests.support.lakes import HandLake, hand_lake, make_event


@pytest.fixture
def lake(tmp_path: Path, each_database: None) -> Iterator[HandLake]:
    with hand_lake(tmp_path) as lake:
        lake.store([make_event("s", 0)])
        yield lake


def add_checkpoint(lake: HandLake, name: str, tenant: str = "default") -> None:
    row = {
        "tenant": tenant, "name": name, "digest": f"sha256:{name}", "uri": "file:///x",
        "form": "whole", "state": "registered", "checked": "verified", "note": "",
        "registered_by": "ann", "registered_at": now_us(),
    }  # fmt: skip
    with lake.lake.database.write() as connection:
        connection.execute(sa.insert(checkpoint).values(row))
        move(connection, name, None, "registered", tenant)


def move(
    connection: sa.Connection, name: str, before: str | None, after: str, tenant: str = "default"
) -> None:
    row = {
        "tenant": tenant, "checkpoint": name, "from_state": before, "to_state": after,
        "actor": "ann", "reason": "", "at": now_us(),
    }  # fmt: skip
    connection.execute(sa.insert(checkpoint_move).values(row))


def rows(lake: HandLake, sql: str, as_of: str | None = None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = lake.lake.query(sql, as_of=as_of).arrow().to_pylist()
    return found


def name_this_moment(lake: HandLake) -> None:
    """What comes next is later, also by a clock that counts milliseconds."""
    made = create_snapshot(lake.lake.database, "before")
    with lake.lake.database.read() as connection:
        while connection.execute(sa.select(now_us())).scalar_one() <= made.created_at:
            pass


def test_checkpoints_are_in_the_state_of_the_moment(lake: HandLake) -> None:
    add_checkpoint(lake, "ckpt-1")
    name_this_moment(lake)
    add_checkpoint(lake, "ckpt-2")
    add_checkpoint(lake, "theirs", tenant="other")
    with lake.lake.database.write() as connection:
        move(connection, "ckpt-1", "registered", "serving")
        named = checkpoint.c.name == "ckpt-1"
        connection.execute(sa.update(checkpoint).where(named).values(state="serving"))
    ask = "select checkpoint, state, shards from checkpoints order by checkpoint"
    assert rows(lake, ask) == [
        {"checkpoint": "ckpt-1", "state": "serving", "shards": []},
        {"checkpoint": "ckpt-2", "state": "registered", "shards": []},
    ]
    then = [{"checkpoint": "ckpt-1", "state": "registered", "shards": []}]
    assert rows(lake, ask, as_of="before") == then


def test_scores_are_those_of_the_moment(lake: HandLake) -> None:
    place = AttemptScope("default", "core", "v1", "ckpt-1")
    with lake.lake.database.write() as connection:
        record_attempts(connection, place, "r1", [Attempt(task="t-1", attempt=0, score=0.5)])
    name_this_moment(lake)
    with lake.lake.database.write() as connection:
        record_attempts(connection, place, "r1", [Attempt(task="t-1", attempt=1, error="away")])
    ask = "select attempt, status, score, error from benchmark_scores order by attempt"
    first = {"attempt": 0, "status": "scored", "score": 0.5, "error": None}
    second = {"attempt": 1, "status": "error", "score": None, "error": "away"}
    assert rows(lake, ask) == [first, second]
    assert rows(lake, ask, as_of="before") == [first]


def test_each_score_says_whether_it_was_made_in_a_sandbox(lake: HandLake) -> None:
    database = lake.lake.database
    place = AttemptScope("default", "core", "v1", "ckpt-1")
    for number, isolated in enumerate((True, False)):
        agent = {"agent": '"isolated":false', "isolated": isolated}
        run = begin_run(database, place, source="agent", conditions=agent)
        with database.write() as connection:
            record_attempts(connection, place, run, [Attempt(task="t", attempt=number, score=1.0)])
    with database.write() as connection:
        record_attempts(connection, place, "import", [Attempt(task="t", attempt=2, score=1.0)])
    found = rows(lake, "select attempt, isolated from benchmark_scores order by attempt")
    assert [row["isolated"] for row in found] == [True, False, None]


def add_change(lake: HandLake, version: int) -> None:
    row = {
        "tenant": "default", "channel": "production", "version": version, "action": "promote",
        "checkpoint": f"ckpt-{version}", "pinned": False, "overridden": False, "actor": "ann",
        "reason": "", "at": now_us(), "previous_hash": "", "hash": "",
    }  # fmt: skip
    with lake.lake.database.write() as connection:
        connection.execute(sa.insert(channel_change).values(row))


def test_promotions_are_those_of_the_moment(lake: HandLake) -> None:
    add_change(lake, 1)
    name_this_moment(lake)
    add_change(lake, 2)
    ask = "select version, checkpoint from promotions order by version"
    assert [row["version"] for row in rows(lake, ask)] == [1, 2]
    assert rows(lake, ask, as_of="before") == [{"version": 1, "checkpoint": "ckpt-1"}]
