"""Rewards and judges follow what was decided on consent by user, project and session."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.core.endpoint import Caller
from penstock.lake.client import perform
from penstock_jobs.rewards.explanation import computed_rewards
from penstock_jobs.rewards.followups.labels import MessagePlace
from penstock_jobs.rewards.followups.questions import follow_up_at
from penstock_jobs.shards.consents import DECIDE_CONSENT, DecideRequest
from tests.support.lakes import Event, HandLake, hand_lake, make_event
from tests.support.reward_runs import DEFINITION, run_at, seen, worked

OUTCOMES = """select session_id, outcome, reason from outcomes
    where superseded_at is null and definition_version = '{version}' order by session_id"""


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[HandLake]:
    """`a` names a user, `b` a project, `c` nobody; `a2` is a subagent's of `a`."""
    with hand_lake(tmp_path) as opened:
        opened.send([*session("a", user="u-1"), *session("b", project="p-1"), *session("c")])
        link = {"parent_session": "a", "link": "subagent"}
        opened.store([make_event("a2", 0, "session_start", payload=link), *worked("a2", 1)])
        yield opened


def session(name: str, **labels: str) -> list[Event]:
    events = [*worked(name), seen(name, 303), make_event(name, 304)]
    events[0] |= labels
    return events


def decide(lake: HandLake, kind: Any, subject: str, consent: Any = "no_train") -> None:
    caller = Caller("default", "tester", is_local=True)
    question = DecideRequest(kind=kind, subject=subject, consent=consent)
    perform(DECIDE_CONSENT, lake.lake, caller, question)


def excluded(lake: HandLake) -> set[str]:
    rows = lake.rows(OUTCOMES.format(version=DEFINITION.version))
    return {row["session_id"] for row in rows if row["reason"] == "no_train"}


def test_a_run_excludes_whom_a_user_or_a_project_denies(lake: HandLake) -> None:
    decide(lake, "user", "u-1")
    decide(lake, "project", "p-1")
    run_at(lake, 86_400)
    assert excluded(lake) == {"a", "a2", "b"}
    assert run_at(lake, 86_500).sessions == 0


@pytest.mark.usefixtures("each_database")
def test_a_later_decision_has_its_sessions_computed_again_and_no_others(lake: HandLake) -> None:
    run_at(lake, 86_400)
    assert excluded(lake) == set()
    decide(lake, "user", "u-1")
    assert run_at(lake, 86_500).sessions == 2, "the session and its subagent's"
    assert excluded(lake) == {"a", "a2"}
    decide(lake, "session", "c")
    assert run_at(lake, 86_600).sessions == 1
    assert excluded(lake) == {"a", "a2", "c"}
    decide(lake, "user", "u-1", "unknown")
    assert run_at(lake, 86_700).sessions == 2
    assert excluded(lake) == {"c"}
    assert run_at(lake, 86_800).sessions == 0


@pytest.mark.parametrize("said", ["by the session itself", "by its user", "late"])
def test_forks_and_resumes_of_a_denied_session_are_excluded_too(lake: HandLake, said: str) -> None:
    first = session("f", user="u-9")
    if said == "by the session itself":
        first = [make_event("f", 0, "session_start", payload={"consent": "no_train"}), *first[1:]]
    lake.store(first)
    for name, parent, link in [
        ("f2", "f", "fork"),
        ("f3", "f2", "resume"),
        ("f4", "f3", "subagent"),
    ]:
        start = {"parent_session": parent, "link": link}
        lake.store([make_event(name, 1, "session_start", payload=start), *worked(name, 2)])
    if said != "by the session itself":
        assert run_at(lake, 86_400).sessions
        assert excluded(lake) == set()
    if said == "by its user":
        decide(lake, "user", "u-9")
    if said == "late":
        late = {"consent": "no_train"}
        lake.store([make_event("f", 900, "session_start", payload=late)])
    run_at(lake, 86_500)
    assert excluded(lake) == {"f", "f2", "f3", "f4"}
    assert follow_up_at(lake.lake, "default", MessagePlace("f3", 3)) is None
    assert run_at(lake, 86_600).sessions == 0


@pytest.mark.usefixtures("each_database")
def test_a_decision_of_another_tenant_says_nothing_here(lake: HandLake) -> None:
    lake.store(session("a", user="u-1"), tenant="other")
    decide(lake, "user", "u-1")
    run_at(lake, 86_400)
    rows = lake.rows(OUTCOMES.format(version=DEFINITION.version), tenant="other")
    assert [row["reason"] for row in rows] != ["no_train"]


def test_nobody_is_shown_the_messages_of_a_denied_session(lake: HandLake) -> None:
    run_at(lake, 86_400)
    places = [MessagePlace(name, 2) for name in ("a", "b", "c")]
    assert all(follow_up_at(lake.lake, "default", place) for place in places)
    decide(lake, "user", "u-1")
    shown = [follow_up_at(lake.lake, "default", place) is not None for place in places]
    assert shown == [False, True, True]


def test_what_is_computed_for_one_session_follows_too(lake: HandLake) -> None:
    decide(lake, "project", "p-1")
    told = computed_rewards(lake.lake, "b", "default", DEFINITION).explanation
    assert (told.outcome, told.reason) == ("excluded", "no_train")
