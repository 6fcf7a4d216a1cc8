"""The checker of histories finds what is wrong with one: otherwise it would prove nothing."""

from dataclasses import replace

import pytest

from penstock.channels.change import Change
from tests.support.channels.linearizability import Call, Told, problems
from tests.support.checkpoint_factory import TENANT


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
