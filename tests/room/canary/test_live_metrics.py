"""What is read of a lake: which sessions count, and what each metric is of them."""

from typing import Any

import pytest

from penstock.core.errors import InvalidInput
from penstock.registry.gate.policy import LESS_IS_BETTER, LiveRequirement
from penstock_jobs.loop.canary.live_metrics import (
    COLUMNS,
    MetricMeasurement,
    TrialTraffic,
    find_metric,
    measure,
    read_traffic,
)
from penstock_jobs.loop.canary.look import situation_of
from penstock_jobs.loop.canary.trial import Trial
from penstock_jobs.rewards.definition import all_rewards
from penstock_jobs.rewards.followups.dissatisfaction import RATE as DISSATISFIED
from penstock_jobs.rewards.rates import RATES
from tests.support.canary_traffic import (
    CHANNEL,
    HOUR,
    MINUTE,
    NEW,
    begin_canary,
    reward,
    session,
    store,
)
from tests.support.checkpoint_factory import TENANT
from tests.support.lakes import Event, HandLake, make_event


def read(lake: HandLake, at_us: int) -> tuple[Trial, TrialTraffic]:
    trial = situation_of(lake.lake, TENANT, CHANNEL, at_us).trial
    assert trial is not None
    return trial, read_traffic(lake.lake, trial, at_us)


def counted(lake: HandLake, at_us: int) -> set[str]:
    _, traffic = read(lake, at_us)
    names = traffic.rows["session_id"].to_pylist()
    return {names[row] for row in traffic.counted}


def of(lake: HandLake, at_us: int, metric: str, **facts: Any) -> MetricMeasurement:
    trial, traffic = read(lake, at_us)
    found = find_metric(lake.lake.database, LiveRequirement(metric=metric, margin=0.1, **facts))
    return measure(lake.lake, trial, traffic, found)


def test_which_sessions_count(lake: HandLake) -> None:
    began = begin_canary(lake)
    at = began + 2 * MINUTE
    mixed = session("mixed", at)
    mixed[2]["checkpoint"] = NEW
    store(
        lake,
        [
            *session("old", at),
            *session("new", at, checkpoint=NEW),
            *mixed,
            *session("before", began - MINUTE),
            *session("soon", began + 30_000_000),
            *session("fork", at, start={"link": "fork", "parent_session": "old"}),
            *session("compacted", at, start={"link": "compaction", "parent_session": "old"}),
            *session("test", at, start={"task_id": "t-1"}),
            *session("lost", at, start={"arm": "canary"}),
            *session("told", at, checkpoint=NEW, start={"arm": "canary"}),
            *session("other", at, checkpoint="ckpt-9"),
            *session("none", at, checkpoint=None),
            *session("future", began + 5 * HOUR),
        ],
    )
    assert counted(lake, began + HOUR) == {"old", "new", "compacted", "told"}
    _, traffic = read(lake, began + HOUR)
    assert traffic.left_out == {
        "copy": {"canary": 0, "current": 1},
        "mixed": {"canary": 1, "current": 0},
        "on_purpose": {"canary": 0, "current": 1},
        "other_arm": {"canary": 0, "current": 1},
    }


def test_the_user_is_the_cluster_and_without_one_the_session(lake: HandLake) -> None:
    began = begin_canary(lake)
    at = began + 2 * MINUTE
    store(
        lake,
        [
            *session("a", at, user="ann"),
            *session("b", at, user="ann"),
            *session("c", at, user=None),
            *session("d", at, user=None, start={"link": "subagent", "parent_session": "c"}),
            *session("e", at, user=None),
        ],
    )
    cells = of(lake, began + HOUR, "latency_ms").cells
    assert {(one.cluster, one.count) for one in cells} == {
        ("user ann", 2), ("session c", 2), ("session e", 1),
    }  # fmt: skip


def test_columns_are_of_sessions_that_are_over(lake: HandLake) -> None:
    began = begin_canary(lake)
    at = began + 2 * MINUTE
    store(lake, [*session("a", at), *session("open", at, checkpoint=NEW, ended=False)])
    waiting = of(lake, began + 10 * MINUTE, "user_messages")
    assert (waiting.scored["canary"], waiting.pending["canary"]) == (0, 1)
    quiet = of(lake, began + 2 * HOUR, "user_messages")
    assert (quiet.scored["canary"], quiet.means) == (1, {"canary": 1.0, "current": 1.0})


def test_calls_have_a_mean_and_what_nobody_measured_is_unknown(lake: HandLake) -> None:
    began = begin_canary(lake)
    at = began + 2 * MINUTE
    more = make_event(
        "a", 9, "model_call", ts=at + 50, checkpoint="ckpt-1", payload={"latency_ms": 3_000}
    )
    store(
        lake,
        [
            *session("a", at, latency_ms=1_000),
            more,
            *session("b", at, checkpoint=NEW, latency_ms=None),
            *session("c", at, checkpoint=NEW, latency_ms=-5.0),
        ],
    )
    found = of(lake, began + HOUR, "latency_ms")
    assert found.means == {"canary": None, "current": 2_000.0}
    assert found.unknown == {"canary": 2, "current": 0}


def test_what_agents_report_is_compared_by_sessions_and_an_editors_own_has_nothing_else(
    lake: HandLake,
) -> None:
    began = begin_canary(lake)
    at = began + 2 * MINUTE

    def told(number: int, total: float, count: float, series: str) -> Event:
        payload = {"name": "reported_acceptance", "total": total, "count": count, "series": series}
        return make_event(
            "window", number, "x_metric", ts=at + number, checkpoint=NEW, payload=payload
        )

    store(lake, [*session("a", at), told(1, 1.0, 4.0, "one"), told(2, 3.0, 6.0, "one"),
                 told(3, 0.0, 2.0, "two")])  # fmt: skip
    found = of(lake, began + 2 * HOUR, "reported_acceptance")
    assert found.means == {"canary": 3 / 8, "current": None}
    assert found.unknown == {"canary": 0, "current": 1}
    messages = of(lake, began + 2 * HOUR, "user_messages")
    assert messages.unknown == {"canary": 1, "current": 0}


def tools(name: str, at_us: int, oks: list[bool]) -> list[Event]:
    results = [
        make_event(
            name, 20 + at, "tool_result", ts=at_us + 60 + at, checkpoint="ckpt-1",
            payload={"call_id": f"t{at}", "tool": "read", "ok": ok},
        )
        for at, ok in enumerate(oks)
    ]  # fmt: skip
    return [*session(name, at_us), *results]


def test_shares_of_tool_calls_and_whether_there_was_any(lake: HandLake) -> None:
    began = begin_canary(lake)
    at = began + 2 * MINUTE
    wrong = make_event("b", 30, "error", ts=at + 70, checkpoint="ckpt-1")
    store(lake, [*tools("a", at, [True, False, False, False]), *tools("b", at, []), wrong])
    failed = of(lake, began + HOUR, "failed_tool_calls")
    assert (failed.means["current"], failed.scored["current"]) == (0.75, 1)
    assert failed.unknown["current"] == 1, "no calls, no share"
    assert of(lake, began + HOUR, "errors").means["current"] == 0.5


def test_rewards_and_rates_of_a_definition(lake: HandLake) -> None:
    began = begin_canary(lake)
    at = began + 2 * MINUTE
    store(
        lake,
        [
            *session("a", at, pleased=True),
            *session("b", at, checkpoint=NEW, pleased=False),
            *session("c", at, checkpoint=NEW, pleased=None),
        ],
    )
    reward(lake, began + HOUR)
    store(lake, session("late", at, checkpoint=NEW))
    facts = {"definition": "live"}
    found = of(lake, began + HOUR, "explicit_feedback", **facts)
    assert found.means == {"canary": -1.0, "current": 1.0}
    assert (found.unknown["canary"], found.pending["canary"]) == (1, 1)
    whole = of(lake, began + HOUR, "reward", **facts)
    assert whole.means == {"canary": -1.0, "current": 1.0}
    censored = of(lake, began + HOUR, "censored", **facts)
    assert (censored.means, censored.pending["canary"]) == ({"canary": 0.5, "current": 0.0}, 1)


def test_a_reward_that_was_computed_again_counts_as_it_is_now(lake: HandLake) -> None:
    began = begin_canary(lake)
    at = began + 2 * MINUTE
    store(lake, session("a", at, pleased=True))
    reward(lake, began + HOUR)
    down = make_event(
        "a", 9, "feedback", ts=at + 70, checkpoint="ckpt-1",
        payload={"kind": "thumbs", "value": "down"},
    )  # fmt: skip
    store(lake, [down])
    reward(lake, began + 2 * HOUR)
    found = of(lake, began + 2 * HOUR, "explicit_feedback", definition="live")
    assert found.means["current"] == 0.0


@pytest.mark.parametrize(
    ("metric", "facts", "why"),
    [
        ("explicit_feedbak", {"definition": "live"}, "did you mean explicit_feedback"),
        ("explicit_feedback", {"definition": "live", "horizon_s": 5}, "it has no horizons"),
        ("explicit_feedback", {}, "it has not run"),
        ("latency_ms", {"horizon_s": 5}, "only rewards have a horizon"),
    ],
)
def test_a_metric_that_nobody_can_compute_is_refused_by_name(
    lake: HandLake, metric: str, facts: dict[str, Any], why: str
) -> None:
    reward(lake, HOUR)
    with pytest.raises(InvalidInput, match=why):
        find_metric(lake.lake.database, LiveRequirement(metric=metric, margin=0.1, **facts))


def test_the_policy_knows_of_which_metrics_less_is_better() -> None:
    assert {*COLUMNS, *RATES, DISSATISFIED, *all_rewards()} >= LESS_IS_BETTER
