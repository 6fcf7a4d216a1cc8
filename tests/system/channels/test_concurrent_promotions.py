"""T24: many processes change channels at once. What they saw is one history."""

import sqlalchemy as sa

from penstock.backends.database.engine import Database
from penstock.registry.channels.channel import list_channels
from penstock.registry.checkpoints.tables import checkpoint, checkpoint_move
from tests.support.channels.contending import SWAPS, at_once, check, contend
from tests.support.checkpoint_factory import TENANT, add

PROCESSES = 3


def test_what_many_processes_do_at_once_is_one_history(
    database: Database, database_url: str
) -> None:
    add(database, *(f"c{number}" for number in range(8)))
    add(database, *(f"s{number}-{turn}" for number in range(PROCESSES) for turn in range(SWAPS)))
    calls = at_once(contend, database_url, PROCESSES)
    assert check(database, calls) == []
    assert states_fit(database) == []
    swaps = [call.outcome for name, call in calls if name == "swaps"]
    assert swaps.count("done") == SWAPS, "of those that expect the same one wins"
    assert swaps.count("conflict") == SWAPS * (PROCESSES - 1)
    assert {call.kind for _, call in calls if call.outcome == "done"} >= {"promote", "rollback"}


def states_fit(database: Database) -> list[str]:
    """Checkpoints serve where channels are at them, and each move begins where one ended."""
    serving = set()
    for one in list_channels(database, TENANT):
        serving |= {one.checkpoint, one.canary} - {None}
    with database.read() as connection:
        rows = connection.execute(sa.select(checkpoint.c.name, checkpoint.c.state)).all()
        moves = connection.execute(sa.select(checkpoint_move).order_by(checkpoint_move.c.id)).all()
    wrong = [row.name for row in rows if (row.state == "serving") != (row.name in serving)]
    at: dict[str, str | None] = {}
    for row in moves:
        if row.from_state != at.get(row.checkpoint):
            wrong.append(f"{row.checkpoint} moved from {row.from_state}")
        at[row.checkpoint] = row.to_state
    return wrong + [row.name for row in rows if at[row.name] != row.state]
