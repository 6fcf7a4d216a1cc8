"""What is compared with what, of the history of a channel alone."""

from dataclasses import replace
from typing import Any

from penstock.registry.channels.change import Change
from penstock_jobs.loop.canary.trial import Period, Trial, trial_of

SECOND = 1_000_000
SETTLE_S, WATCH_S = 60.0, 3_600.0
FIRST = Change(
    tenant="default", channel="production", version=1, action="promote", checkpoint="a",
    actor="ann", reason="the first", at=1_000 * SECOND,
)  # fmt: skip


def history(*changes: dict[str, Any]) -> list[Change]:
    """Each change an hour after the one before, and as it but for what is said."""
    found = [FIRST]
    for one in changes:
        at = found[-1].at + 3_600 * SECOND
        found.append(replace(found[-1], version=found[-1].version + 1, **{"at": at} | one))
    return found


def trial(changes: list[Change], after_s: float = 10.0) -> Trial | None:
    now_us = changes[-1].at + round(after_s * SECOND)
    return trial_of(changes, now_us=now_us, settle_s=SETTLE_S, watch_s=WATCH_S)


CANARY = {"action": "canary", "canary": "b", "canary_share": 0.1}
PROMOTED = {
    "action": "promote", "checkpoint": "b", "previous": "a", "canary": None, "canary_share": None,
}  # fmt: skip


def test_nothing_is_compared_with_the_first_or_after_a_rollback() -> None:
    assert trial_of([], now_us=0, settle_s=0, watch_s=0) is None
    assert trial(history()) is None
    back = {"action": "rollback", "canary": None, "canary_share": None, "pinned": True}
    assert trial(history(CANARY, back)) is None
    assert trial(history(CANARY, back, {"action": "release", "pinned": False})) is None


def test_a_canary_has_a_period_for_each_share_after_the_fleet_has_heard() -> None:
    changes = history(CANARY, CANARY | {"canary_share": 0.5})
    found = trial(changes)
    assert found is not None
    first, second = changes[1].at, changes[2].at
    assert found.candidate_periods == (
        Period(first + 60 * SECOND, second, 0.1),
        Period(second + 60 * SECOND, None, 0.5),
    )
    assert found.incumbent_periods == found.candidate_periods
    assert (found.candidate, found.incumbent, found.since_version) == ("b", "a", 2)
    assert (found.version, found.share, found.step_us) == (3, 0.5, second)


def test_a_new_policy_is_no_new_period_and_another_canary_a_new_trial() -> None:
    policy = {"action": "policy", "policy": "sha256:1"}
    found = trial(history(CANARY, policy))
    assert found is not None
    assert (len(found.candidate_periods), found.since_version, found.version) == (1, 2, 3)
    other = trial(history(CANARY, CANARY | {"canary": "c"}))
    assert other is not None
    assert (other.candidate, other.since_version) == ("c", 3)


def test_a_share_that_lasted_no_longer_than_the_fleet_needs_says_nothing() -> None:
    changes = history(CANARY)
    quick = CANARY | {"canary_share": 0.2, "at": changes[-1].at + 30 * SECOND}
    found = trial(history(CANARY, quick))
    assert found is not None
    assert [one.share for one in found.candidate_periods] == [0.2]
    assert len(found.split_us) == 2


def test_what_was_promoted_is_watched_for_a_time() -> None:
    changes = history(CANARY, PROMOTED, {"action": "policy", "policy": "sha256:1", "at": None})
    changes[-1] = replace(changes[-1], at=changes[-2].at)
    found = trial(changes)
    assert found is not None
    at = changes[-2].at
    assert (found.kind, found.candidate, found.incumbent) == ("watch", "b", "a")
    assert (found.since_version, found.version) == (3, 4)
    assert found.candidate_periods == (Period(at + 60 * SECOND, at + 3_600 * SECOND),)
    assert found.incumbent_periods == (Period(at - 3_600 * SECOND, at),)
    assert trial(changes, after_s=WATCH_S) is None
