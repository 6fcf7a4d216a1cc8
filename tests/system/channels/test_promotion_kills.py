"""A change of a channel by a process that is killed before every statement, from the first one that
writes on, and before every commit: all of it happened, or none."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy import event

from penstock.backends.database import DatabaseLimits
from penstock.backends.database.engine import Database
from penstock.registry.channels.channel import list_channels
from penstock.registry.channels.history import verify_history
from penstock.registry.channels.tables import channel, channel_change
from penstock.registry.checkpoints.registration import withdraw
from penstock.registry.checkpoints.tables import checkpoint, checkpoint_move
from penstock.registry.gate.tables import gate_policy, verdict
from tests.support.checkpoint_factory import (
    TENANT,
    add,
    promote,
    release,
    rollback,
    says,
    set_policy,
)
from tests.support.repository import ROOT

_TABLES = (channel, channel_change, checkpoint, checkpoint_move, gate_policy, verdict)
_POINTS_MAX = 200
_PATIENT = DatabaseLimits(lock_seconds_max=30)

Facts = dict[str, list[tuple[Any, ...]]]

#: One after another: each begins where the one before has ended.
ACTIONS: dict[str, Callable[[Database], object]] = {
    "register": lambda database: add(database, "d"),
    "policy": set_policy,
    "first": lambda database: promote(database, "a"),
    "promote": lambda database: promote(database, "b"),
    "canary": lambda database: promote(database, "c", share=0.1),
    "end of the canary": rollback,
    "rollback": rollback,
    "override": lambda database: promote(database, "d", says("FAIL"), override=True),
    "release": release,
    "withdraw": lambda database: withdraw(
        database, tenant=TENANT, name="b", reason="no use", actor="dan"
    ),
}


def test_a_change_that_is_killed_anywhere_happened_as_a_whole_or_not_at_all(
    database_url: str,
) -> None:
    command = [sys.executable, "-m", "tests.system.channels.test_promotion_kills", database_url]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    killed = msgspec.json.decode(done.stdout)
    assert killed.keys() == ACTIONS.keys()
    assert min(killed.values()) >= 4, killed
    assert min(killed[name] for name in ("promote", "canary", "rollback")) >= 8, killed


def kill(url: str) -> None:
    """In a process of its own: it forks, so it has no threads."""
    database = Database(url, _PATIENT)
    add(database, "a", "b", "c")
    found = {name: kill_at_each_point(database, action) for name, action in ACTIONS.items()}
    database.close()
    sys.stdout.write(msgspec.json.encode(found).decode())


def kill_at_each_point(database: Database, action: Callable[[Database], object]) -> int:
    """How often it was killed with nothing done, before all of it was."""
    before = facts(database)
    for point in range(1, _POINTS_MAX):
        killed = in_a_child(database, action, point)
        now = facts(database)
        if now != before:
            check_whole(database, before, now)
            return point - 1
        assert killed, f"it ended well at point {point} and did nothing"
    raise AssertionError("it never came to an end")


def in_a_child(database: Database, action: Callable[[Database], object], point: int) -> bool:
    """Whether it was killed on its way. It opens connections of its own, and never lets go of those
    that it has inherited."""
    child = os.fork()
    if child == 0:
        mine = Database(database.url.render_as_string(hide_password=False), _PATIENT)
        die_at(mine, point, action)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0
    return False


def die_at(database: Database, point: int, action: Callable[[Database], object]) -> None:
    passed = 0

    def look(statement: str) -> None:
        nonlocal passed
        if passed or statement.startswith(("INSERT", "UPDATE")):
            passed += 1
        if passed == point:
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(
        database.engine,
        "before_cursor_execute",
        lambda _connection, _cursor, statement, *_more: look(statement),
    )
    event.listen(database.engine, "commit", lambda _connection: look("COMMIT"))
    action(database)


def check_whole(database: Database, before: Facts, now: Facts) -> None:
    """All of it happened: the change, what the gate said, the moves."""
    for name in _TABLES:
        if name.name not in ("channel", "checkpoint"):
            assert set(now[name.name]) >= set(before[name.name])

    known = {row[1]: row[6] for row in now["checkpoint"]}
    moved = {row[2]: row[4] for row in sorted(now["checkpoint_move"])}
    assert known == moved
    serving: set[str | None] = set()
    for at in list_channels(database, TENANT):
        assert verify_history(database, TENANT, at.channel) is None
        serving |= {at.checkpoint, at.canary} - {None}
    assert {name for name, state in moved.items() if state == "serving"} == serving
    versions = [row[2] for row in now["channel_change"]]
    assert versions == list(range(1, len(versions) + 1))


def facts(database: Database) -> Facts:
    found = {}
    with database.read() as connection:
        for table in _TABLES:
            rows = connection.execute(sa.select(table)).all()
            found[table.name] = sorted(tuple(row) for row in rows)
    return found


if __name__ == "__main__":
    kill(sys.argv[1])
