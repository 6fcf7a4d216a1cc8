"""What the page of rewards draws, from the rows of its queries."""

from typing import Any

from penstock.events.event import TENANT_DEFAULT
from penstock_jobs.rewards.due_sessions import definition_known_as
from penstock_jobs.rewards.pages import chosen_rewards, reward_charts
from tests.room.rewards.test_chains import LIKED
from tests.support.lakes import HandLake, make_event
from tests.support.reward_events import answered, said
from tests.support.reward_runs import run_at, thumbs


def _row(name: str, horizon_s: int | None, **facts: Any) -> dict[str, Any]:
    known = {"low": 0.0, "high": 1.0, "sessions": 5, "bin": 0, "in_bin": 5}
    return {"name": name, "horizon_s": horizon_s} | known | facts


def test_a_reward_is_drawn_at_the_longest_horizon_that_half_its_sessions_have() -> None:
    rows = [
        _row("reward", None),
        _row("persistence", 60, sessions=9),
        _row("persistence", 3600, sessions=5, bin=2),
        _row("persistence", 3600, sessions=5, bin=23),
        _row("persistence", 86_400, sessions=4),
    ]
    assert [label for label, _, _ in reward_charts(rows)] == ["reward", "persistence after 1 h"]
    everything = reward_charts(rows[1:], all_horizons=True)
    assert [label for label, _, _ in everything] == [
        "persistence after 1 min",
        "persistence after 1 h",
        "persistence after 1 d",
    ]


def test_sessions_are_counted_beyond_the_groups_that_are_shown(lake: HandLake) -> None:
    """Of 31 checkpoints thirty are shown; one session must not be learned from."""
    for number in range(31):
        session = f"s{number:02}"
        start = make_event(session, number, "session_start", payload={})
        if number == 0:
            start["payload"]["consent"] = "no_train"
        talk = [said(number, "go", session), answered(number + 1, session), thumbs(session, 40)]
        lake.send([event | {"checkpoint": session} for event in (start, *talk)])
    lake.store()
    run_at(lake, 86_400, LIKED)
    version = definition_known_as(lake.lake.database, "liked").version
    chosen = dict.fromkeys(("checkpoint", "project", "since_us", "name"), "")
    files = ("outcome_groups.sql", "reward_states.sql", "reward_bins.sql")
    query = chosen_rewards(chosen | {"version": version}, *files)
    ends, states, bins = lake.lake.query(query, tenant=TENANT_DEFAULT).tables()
    shown = [row for row in ends.to_pylist() if row["kind"] == "checkpoint"]
    assert (len(shown), shown[0]["label"], shown[0]["of_all"]) == (30, "s30", 31)
    counted = {(row["name"], row["state"]): row["rewards"] for row in states.to_pylist()}
    assert counted["reward", "scored"] == 30
    assert counted["reward", "excluded"] == 1
    assert {row["name"]: row["in_bin"] for row in bins.to_pylist()}["reward"] == 30
