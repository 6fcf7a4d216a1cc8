"""How often users come back dissatisfied: judged, labelled, corrected, compared."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from penstock.events.event import TENANT_DEFAULT
from penstock_jobs.rewards.due_sessions import definition_known_as
from penstock_jobs.rewards.followups.dissatisfaction import (
    Dissatisfaction,
    dissatisfaction,
    read_dissatisfaction,
)
from penstock_jobs.rewards.followups.judge import Message
from penstock_jobs.rewards.followups.labels import (
    GivenLabel,
    JudgedFollowUp,
    JudgedFollowUps,
    LabelRepeats,
    StoredLabel,
    add_label,
    digest_of,
    draw,
    read_follow_ups,
)
from penstock_jobs.rewards.rates import (
    CheckpointRates,
    checkpoint_pair,
    rate_changes,
    read_rates,
    served_pair,
)
from tests.support.checkpoint_factory import add, promote
from tests.support.commands import penstock
from tests.support.lakes import HandLake, hand_lake
from tests.support.reward_events import answered, said
from tests.support.reward_runs import run_at
from tests.support.rewards.followups.judged_lakes import DEFINITION, HOUR, judged_message

SESSIONS = 160
UNTIL = 1_000


def follow_ups(checkpoint: str, judged: float, count: int = SESSIONS) -> list[JudgedFollowUp]:
    return [
        judged_message(f"{checkpoint}{number:03}", judged, checkpoint, last_us=10)
        for number in range(count)
    ]


def labelled(
    group: list[JudgedFollowUp], rate: float, count: int, *, model: bool = False
) -> list[StoredLabel]:
    """In the order of chance, so that a share is dissatisfied."""
    drawn = sorted(group, key=lambda each: draw("t", each.place))[:count]
    return [
        StoredLabel(
            *each.place, "", "corrects" if number < rate * count else "accepts", True, UNTIL,
            "m" if model else "ann", model, 0,
        )
        for number, each in enumerate(drawn)
    ]  # fmt: skip


def described(
    groups: dict[str, list[JudgedFollowUp]], labels: list[StoredLabel]
) -> dict[str, Dissatisfaction]:
    columns = {name: JudgedFollowUps.of("t", group) for name, group in groups.items()}
    return dissatisfaction(columns, labels, LabelRepeats(0, 0))


def test_a_judge_that_flatters_one_checkpoint_moves_nothing() -> None:
    groups = {"a": follow_ups("a", 0.6), "b": follow_ups("b", 0.1)}
    labels = [each for group in groups.values() for each in labelled(group, 0.3, 80)]
    found = described(groups, labels)
    assert [found[name].rate.value for name in "ab"] == pytest.approx([0.3, 0.3])
    assert found["a"].truth_by == "people"
    for name in "ab":
        low, high = found[name].interval() or (1.0, 0.0)
        assert low < 0.3 < high


def test_models_labels_count_where_people_gave_too_few() -> None:
    group = follow_ups("a", 0.5)
    people = labelled(group, 0.5, 10)
    models = labelled(group, 0.1, 100, model=True)
    found = described({"a": group}, [*models, *people])["a"]
    # People's word outranks the model's where both labelled.
    assert (found.truth_by, found.rate.requests) == ("models", 100)
    assert found.rate.value == pytest.approx((5 + 0) / 100)
    enough = described({"a": group}, [*models, *labelled(group, 0.5, 40)])["a"]
    assert (enough.truth_by, enough.rate.requests) == ("people", 40)


def test_sessions_after_the_labels_are_not_in_the_rate() -> None:
    group = follow_ups("a", 0.5)
    later = [
        each._replace(session_id=f"z{n}", chain=f"z{n}", last_us=UNTIL + 1)
        for n, each in enumerate(group)
    ]
    found = described({"a": [*group, *later]}, labelled(group, 0.2, 50))["a"]
    assert (len(found.sessions), found.later) == (SESSIONS, SESSIONS)
    assert found.rate.requests == 50


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HandLake]:
    """Users of c1 are displeased in half of the sessions, those of c2 in all; the judge is told
    nothing that would help it."""
    with hand_lake(tmp_path_factory.mktemp("rates")) as lake:
        events = []
        for checkpoint in ("c1", "c2"):
            for number in range(60):
                session = f"{checkpoint}-{number:02}"
                own = [
                    said(1, "add b", session),
                    answered(2, session, text="Done."),
                    said(3, f"about {number}", session),
                ]
                events += [{**event, "checkpoint": checkpoint} for event in own]
        lake.store(events)
        run_at(lake, HOUR, DEFINITION)
        version = definition_known_as(lake.lake.database, "judged").version
        found = read_follow_ups(lake.lake, version, TENANT_DEFAULT)
        last_us = max(each.last_us for each in found)
        for each in found:
            displeased = each.checkpoint == "c2" or int(each.session_id[3:]) % 2 == 0
            said_so: GivenLabel = "corrects" if displeased else "moves_on"
            label = StoredLabel(*each.place, "", said_so, True, last_us, "ann", False, 0)
            add_label(lake.lake.database, TENANT_DEFAULT, label, version)
        yield lake


def test_rates_and_their_alarm(lake: HandLake) -> None:
    version = definition_known_as(lake.lake.database, "judged").version
    before, after = read_rates(lake.lake, version, TENANT_DEFAULT)
    change = rate_changes(before, after)[-1]
    assert (change.rate, change.verdict) == ("dissatisfied", "moved")
    assert change.before == pytest.approx(0.5)
    assert change.after == pytest.approx(1.0)
    groups = {"c1": read_follow_ups(lake.lake, version, TENANT_DEFAULT)}
    whole = read_dissatisfaction(lake.lake, TENANT_DEFAULT, groups)["c1"]
    assert np.isclose(whole.rate.values.mean(), 0.75)


def test_rates_as_a_person_reads_them(lake: HandLake) -> None:
    data = str(lake.lake.settings.data)
    shown = penstock("rewards", "rates", "--definition", "judged", "--data", data)
    assert shown.returncode == 1, shown.stderr
    assert "ALARM dissatisfied: moved, from 0.500 to 1.000" in shown.stderr
    assert "people" in shown.stdout
    told = penstock("rewards", "rates", "--definition", "judged", "--data", data, "--json")
    [first, second] = json.loads(told.stdout)["checkpoints"]
    assert first["dissatisfied"]["truth_by"] == "people"
    assert second["dissatisfied"]["requests_drawn"] == 60


def test_what_serves_is_compared_with_what_served_before(tmp_path: Path) -> None:
    """Not the names that came last: those may be of other channels."""
    named = [CheckpointRates(name, 1, {}, {}) for name in ("a", "b", "c", "d")]
    with hand_lake(tmp_path) as lake:
        database = lake.lake.database
        assert served_pair(database, "default") == ("", "")
        assert _pair(named, ("", "")) == ("c", "d")
        add(database, "a", "b")
        for name in ("a", "b"):
            promote(database, name)
        assert served_pair(database, "default") == ("a", "b")
    assert _pair(named, ("a", "b")) == ("a", "b")
    assert _pair(named, ("a", "without sessions")) == ("c", "d")
    assert _pair(named, ("a", "b"), after="c") == ("b", "c")


def _pair(
    rates: list[CheckpointRates], served: tuple[str, str], *, before: str = "", after: str = ""
) -> tuple[str | None, str | None]:
    found = checkpoint_pair(rates, before, after, served)
    assert found is not None
    return found[0].checkpoint, found[1].checkpoint


def test_without_labels_it_is_unknown(tmp_path: Path) -> None:
    with hand_lake(tmp_path) as lake:
        for checkpoint in ("c1", "c2"):
            events = [
                said(1, "add b", checkpoint),
                answered(2, checkpoint, text="Done."),
                said(3, "hm", checkpoint),
            ]
            for event in events:
                event["checkpoint"] = checkpoint
            lake.store(events)
        run_at(lake, HOUR, DEFINITION)
        version = definition_known_as(lake.lake.database, "judged").version
        before, after = read_rates(lake.lake, version, TENANT_DEFAULT)
    change = rate_changes(before, after)[-1]
    assert change.sentence() == "dissatisfied: unknown, too few labels"


def test_judge_on_the_teams_labels(tmp_path: Path) -> None:
    with hand_lake(tmp_path) as lake:
        lake.store([said(1, "fix it"), answered(2, text="Done."), said(3, "perfect, merge it")])
        run_at(lake, HOUR, DEFINITION)
        version = definition_known_as(lake.lake.database, "judged").version
        digest = digest_of(Message(text="perfect, merge it"))
        label = StoredLabel("s", 2, digest, "moves_on", True, 1, "ann", False, 0)
        add_label(lake.lake.database, TENANT_DEFAULT, label, version)
    told = penstock("rewards", "judge", "--data", str(tmp_path), "--json")
    assert told.returncode == 0, told.stderr
    results = json.loads(told.stdout)
    assert len(results) == 1
    assert all(result["examples"] == 1 for result in results.values())
    shown = penstock("rewards", "judge", "--data", str(tmp_path))
    assert "labels drawn by chance: 1 messages" in shown.stdout
