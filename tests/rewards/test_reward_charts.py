"""What the page of rewards draws, from the rows of its queries."""

from typing import Any

from penstock_jobs.rewards.pages import reward_charts, state_bars


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


def test_rewards_that_are_all_the_same_have_a_histogram() -> None:
    [(_, facts, chart)] = reward_charts([_row("reward", None, low=1.0, high=1.0)])
    assert facts["sessions"] == 5
    assert "1.00 to 1.01: 5" in chart


def test_states_are_parts_of_a_whole() -> None:
    rows = [
        {"name": "reward", "state": "scored", "rewards": 3},
        {"name": "reward", "state": "pending", "rewards": 1},
    ]
    [(name, counts, bar)] = state_bars(rows)
    assert (name, counts) == ("reward", {"scored": 3, "pending": 1})
    assert "scored: 3 (75.0 %)" in bar
