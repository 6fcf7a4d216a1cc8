"""The live metric `dissatisfied`: judged, and corrected by labels of each arm's own sessions."""

import pytest

from penstock.backends.execution.calls import InlineExecutor
from penstock.core.errors import InvalidInput
from penstock.registry.gate.policy import LiveRequirement
from penstock_jobs.loop.canary.live_metrics import (
    MetricMeasurement,
    find_metric,
    measure,
    read_traffic,
)
from penstock_jobs.loop.canary.look import judge_metric, situation_of
from penstock_jobs.rewards.due_sessions import definition_known_as
from penstock_jobs.rewards.followups.labels import (
    GivenLabel,
    StoredLabel,
    add_label,
    draw,
    read_follow_ups,
)
from penstock_jobs.rewards.runs import RunRequest, run
from tests.support.canary_traffic import (
    CHANNEL,
    HOUR,
    MINUTE,
    NEW,
    OLD,
    begin_canary,
    reward,
    store,
)
from tests.support.checkpoint_factory import TENANT
from tests.support.lakes import Event, HandLake, make_event
from tests.support.rewards.followups.judged_lakes import DEFINITION

SESSIONS = 60
REQUIRED = LiveRequirement(
    metric="dissatisfied", margin=0.25, definition="judged", direction="min", min_sessions=30
)


def talk(name: str, at_us: int, checkpoint: str) -> list[Event]:
    """A message, an answer, a message, and the end."""
    told = [
        ("user_message", {"text": "add b"}),
        ("model_call", {"text": "Done."}),
        ("user_message", {"text": f"hm, about {name}"}),
        ("session_end", {"reason": "completed"}),
    ]
    return [
        make_event(
            name, number, kind, ts=at_us + number, payload=payload, checkpoint=checkpoint, user=name
        )
        for number, (kind, payload) in enumerate(told)
    ]


def begin(lake: HandLake) -> int:
    began = begin_canary(lake)
    events: list[Event] = []
    for checkpoint in (OLD, NEW):
        for number in range(SESSIONS):
            name = f"{checkpoint}-{number:02}"
            events += talk(name, began + 2 * MINUTE + number * MINUTE // 10, checkpoint)
    store(lake, events)
    run(lake.lake, InlineExecutor(), RunRequest(DEFINITION), now_us=began + HOUR)
    return began


def give(lake: HandLake, rates: dict[str, float], count: int) -> None:
    """Labels of the first that chance draws of each arm, so that a share is dissatisfied."""
    version = definition_known_as(lake.lake.database, "judged").version
    found = read_follow_ups(lake.lake, version, TENANT)
    until_us = max(each.last_us for each in found)
    for checkpoint, rate in rates.items():
        own = [each for each in found if each.checkpoint == checkpoint]
        own = sorted(own, key=lambda each: draw(TENANT, each.place))[:count]
        for number, each in enumerate(own):
            label: GivenLabel = "corrects" if number < rate * count else "accepts"
            stored = StoredLabel(*each.place, "", label, True, until_us, "ann", False, 0)
            add_label(lake.lake.database, TENANT, stored, version)


def measured(lake: HandLake, at_us: int) -> MetricMeasurement:
    trial = situation_of(lake.lake, TENANT, CHANNEL, at_us).trial
    assert trial is not None
    metric = find_metric(lake.lake.database, REQUIRED)
    return measure(lake.lake, trial, read_traffic(lake.lake, trial, at_us), metric)


def outcome(lake: HandLake, at_us: int) -> tuple[str, str]:
    metric = find_metric(lake.lake.database, REQUIRED)
    look = judge_metric(REQUIRED, (metric, measured(lake, at_us)), metrics=1)
    return look.outcome, look.why


def test_without_labels_it_does_not_pass_and_says_what_to_do(lake: HandLake) -> None:
    began = begin(lake)
    verdict, why = outcome(lake, began + HOUR)
    assert verdict == "undecided"
    assert "fewer than 30 drawn requests" in why
    assert "penstock rewards label" in why
    assert measured(lake, began + HOUR).pending == {"canary": SESSIONS, "current": SESSIONS}


def test_each_arm_is_corrected_by_its_own_labels(lake: HandLake) -> None:
    began = begin(lake)
    give(lake, {OLD: 0.1, NEW: 0.5}, 40)
    found = measured(lake, began + HOUR)
    assert found.labels == {"canary": 40, "current": 40}
    assert found.means["current"] == pytest.approx(0.1, abs=0.01)
    assert found.means["canary"] == pytest.approx(0.5, abs=0.01)
    assert found.bounds is not None
    least, greatest = found.bounds
    assert least < 0
    assert greatest > 1


def test_a_canary_that_displeases_is_a_breach(lake: HandLake) -> None:
    began = begin(lake)
    give(lake, {OLD: 0.0, NEW: 1.0}, SESSIONS)
    assert outcome(lake, began + HOUR)[0] == "breach"


def test_a_definition_without_judged_messages_is_refused(lake: HandLake) -> None:
    began = begin(lake)
    reward(lake, began + HOUR)
    required = LiveRequirement(metric="dissatisfied", margin=0.1, definition="live")
    with pytest.raises(InvalidInput, match="judged_follow_up"):
        find_metric(lake.lake.database, required)


@pytest.mark.parametrize("name", ["dissatisfied_follow_up", "judged_follow_up"])
def test_a_judge_alone_takes_nothing_back(lake: HandLake, name: str) -> None:
    begin(lake)
    required = LiveRequirement(metric=name, margin=0.1)
    with pytest.raises(InvalidInput, match="dissatisfied is its rate, corrected by labels"):
        find_metric(lake.lake.database, required)
