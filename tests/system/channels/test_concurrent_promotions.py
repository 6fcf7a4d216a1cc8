"""T24: many processes change channels at once. What they saw is one history."""

from dataclasses import replace

import pytest
import sqlalchemy as sa

from penstock.channels.change import Change
from penstock.channels.channel import list_channels
from penstock.checkpoints.tables import checkpoint, checkpoint_move
from penstock.database.engine import Database
from tests.support.channels.contending import SWAPS, at_once, check, contend
from tests.support.channels.linearizability import Call, Told, problems
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


# The checker itself


def a_history() -> tuple[list[Call], list[Change], list[Told], tuple[int, str]]:
    """a, then b; a third process lost against b; then a rollback, and one that found the pin."""
    calls = [
        Call(kind="promote", began=0, ended=10, outcome="done", checkpoint="a", version=1),
        Call(kind="promote", began=11, ended=20, outcome="done", checkpoint="b", expected="a",
             version=2),
        Call(kind="promote", began=12, ended=21, outcome="conflict", checkpoint="c", expected="a",
             version=2, found="b"),
        Call(kind="rollback", began=22, ended=30, outcome="done", version=3),
        Call(kind="promote", began=31, ended=40, outcome="pinned", checkpoint="c", expected="a"),
    ]  # fmt: skip
    changes: list[Change] = []
    for action, at, pinned in (
        ("promote", "a", False),
        ("promote", "b", False),
        ("rollback", "a", True),
    ):
        before = changes[-1].hash if changes else Change.previous_hash
        changes.append(
            Change(
                tenant=TENANT, channel="production", version=len(changes) + 1, action=action,  # type: ignore[arg-type]
                checkpoint=at, pinned=pinned, actor="ann", reason="better", at=1,
                previous_hash=before,
            ).sealed()
        )  # fmt: skip
    told = [Told(one.version, one.hash) for one in changes]
    return calls, changes, told, (3, changes[-1].hash)


def test_the_checker_takes_a_history_that_is_one() -> None:
    assert problems(*a_history()) == []


@pytest.mark.parametrize(
    ("number", "facts", "words"),
    [
        (1, {"version": 1}, "same version"),
        (1, {"outcome": "refused"}, "nobody made"),
        (1, {"expected": "c"}, "not from c"),
        (1, {"kind": "policy"}, "was made by a policy"),
        (0, {"began": 50, "ended": 60}, "begun when a later one had ended"),
        (2, {"version": 9}, "never was"),
        (2, {"found": "a"}, "which was at another"),
        (2, {"began": 100, "ended": 110}, "not the newest"),
        (2, {"version": 1, "found": "a", "began": 11, "ended": 21}, "conflicted with nothing"),
        (4, {"began": 1, "ended": 2}, "pin that was not there"),
    ],
)
def test_the_checker_finds_what_is_wrong(number: int, facts: dict[str, object], words: str) -> None:
    calls, changes, told, head = a_history()
    calls[number] = replace(calls[number], **facts)  # type: ignore[arg-type]
    assert words in " ".join(problems(calls, changes, told, head))


def test_the_checker_finds_lost_and_reordered_notices() -> None:
    calls, changes, told, head = a_history()
    for wrong in (told[:-1], told[::-1], [*told, told[-1]]):
        assert "notices" in " ".join(problems(calls, changes, wrong, head))


def test_the_checker_finds_a_promotion_of_a_pinned_channel() -> None:
    calls, changes, told, _ = a_history()
    after = replace(
        changes[-1], version=4, action="promote", checkpoint="c", previous_hash=changes[-1].hash
    ).sealed()
    calls.append(
        Call(kind="promote", began=41, ended=50, outcome="done", checkpoint="c", expected="a",
             version=4)
    )  # fmt: skip
    told.append(Told(4, after.hash))
    found = problems(calls, [*changes, after], told, (4, after.hash))
    assert found == ["version 4 promoted a channel that was pinned"]
