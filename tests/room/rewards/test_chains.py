"""Credit along chains: compactions and subagents share what their work was worth."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.lake.buckets import SessionId, read_changes
from penstock.lake.catalog import current
from penstock_jobs.rewards.definition import parse_definition, together
from penstock_jobs.rewards.history.session_chains import chains_of, remember_links
from penstock_jobs.rewards.rows import Standing, State
from tests.support.lakes import Event, HandLake, hand_lake
from tests.support.reward_events import answered, said, tool
from tests.support.reward_runs import run_at, started, thumbs, whole

LIKED = parse_definition(
    'name = "liked"\n[[reward]]\nname = "explicit_feedback"\nweight = 1.0\n', "liked"
)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[HandLake]:
    """A bucket for every session, unless a chain keeps them together."""
    with hand_lake(tmp_path, bucket_bytes_target=8) as lake:
        yield lake


def worked(session: str, at: int = 0) -> list[Event]:
    return [said(at, "go", session), answered(at + 1, session, call_id=f"call-{session}")]


CALLS = """select session_id, target_id, state, value from rewards
    where superseded_at is null and target_kind = 'model_call' order by session_id"""


def test_every_call_of_a_chain_gets_what_the_chain_was_worth(lake: HandLake) -> None:
    """`a` was compacted into `b`, which asked `helper`, and only there did the user say anything;
    `alone` has no part in it."""
    lake.store([*worked("a"), *worked("alone"), thumbs("alone", 9, "down")])
    lake.store([started("b", "a", "compaction", 10), *worked("b", 11), thumbs("b", 20)])
    lake.store([started("helper", "b", "subagent", 12), *worked("helper", 13)])
    assert run_at(lake, 86_400, LIKED).sessions == 4
    assert {row["target_id"]: row["value"] for row in lake.rows(CALLS)} == {
        "call-a": 1.0,
        "call-b": 1.0,
        "call-helper": 1.0,
        "call-alone": -1.0,
    }
    chains = lake.rows("select session_id, chain from outcomes order by all")
    assert [row["chain"] for row in chains] == ["a", "alone", "a", "a"]


@pytest.mark.usefixtures("each_database")
def test_a_late_event_in_one_session_opens_its_whole_chain(lake: HandLake) -> None:
    lake.store([*worked("a"), started("b", "a", "compaction", 10), *worked("b", 11)])
    lake.store(worked("alone"))
    run_at(lake, 86_400, LIKED)
    assert whole(lake)["a"] == ("censored", None)
    lake.store([thumbs("b", 400, "down")])
    again = run_at(lake, 86_500, LIKED)
    assert (again.sessions, again.changed) == (2, 1)
    assert whole(lake)["a"] == whole(lake)["b"] == ("scored", -1.0)


def test_a_subagent_that_broke_its_calls_is_negative_alone(lake: HandLake) -> None:
    broken = {"ok": False, "error_class": "invalid_arguments"}
    lake.store([*worked("a"), thumbs("a", 5)])
    lake.store(
        [
            started("helper", "a", "subagent", 2),
            said(3, "look", "helper"),
            *tool(4, "grep", "helper", **broken),
        ]
    )
    run_at(lake, 86_400, LIKED)
    assert whole(lake) == {"a": ("scored", 1.0), "helper": ("scored", -1.0)}


def test_a_continuation_that_broke_its_calls_makes_the_chain_negative(lake: HandLake) -> None:
    broken = {"ok": False, "error_class": "invalid_arguments"}
    lake.store([*worked("a"), thumbs("a", 5)])
    lake.store([started("b", "a", "compaction", 8), said(9, "go on", "b")])
    lake.store(tool(10, "grep", "b", **broken))
    run_at(lake, 86_400, LIKED)
    assert whole(lake) == {"a": ("scored", -1.0), "b": ("scored", -1.0)}
    [outcome] = lake.rows("select distinct outcome, reason from outcomes")
    assert outcome == {"outcome": "negative_by_rule", "reason": "invalid_tool_calls"}


def test_who_must_not_be_learned_from_excludes_the_chain(lake: HandLake) -> None:
    lake.store([*worked("a"), thumbs("a", 5)])
    start = started("b", "a", "compaction", 8)
    start["payload"]["consent"] = "no_train"
    lake.store([start, *worked("b", 9)])
    run_at(lake, 86_400, LIKED)
    assert whole(lake) == {"a": ("censored", None), "b": ("censored", None)}


@pytest.mark.usefixtures("each_database")
@pytest.mark.parametrize(
    ("links", "asked", "chains"),
    [
        ([], "x", [["x"]]),
        ([("b", "a"), ("c", "b")], "b", [["a", "b", "c"]]),
        ([("b", "a"), ("c", "a")], "c", [["a", "b", "c"]]),
        ([("b", "a")], "ab", [["a", "b"]]),
        ([("b", "a"), ("y", "x")], "by", [["a", "b"], ["x", "y"]]),
        ([("b", "a"), ("y", "x")], "b", [["a", "b"]]),
        ([("b", "a"), ("a", "b")], "a", [["a", "b"]]),
        ([("a", "a")], "a", [["a"]]),
        ([("b", "a"), ("c", "b"), ("b2", "c"), ("a", "c")], "c", [["a", "b", "b2", "c"]]),
    ],
    ids=["none", "line", "fork", "both", "two", "other", "ring", "itself", "ring-with-tail"],
)
def test_chains_are_found_whole(
    lake: HandLake, links: list[tuple[str, str]], asked: str, chains: list[list[str]]
) -> None:
    for child, parent in links:
        lake.store([started(child, parent, "compaction")])
    remember_links(lake.lake.database, all_changes(lake))
    found, places = chains_of(lake.lake.database, {SessionId("default", one) for one in asked})
    assert found == [tuple(SessionId("default", one) for one in chain) for chain in chains]
    roots = {places[one].chain for chain in found for one in chain if one in places}
    assert roots <= {one.session_id for chain in found for one in chain}
    for chain in found:
        assert len({places[one].chain for one in chain if one in places}) <= 1


def all_changes(lake: HandLake) -> Any:
    return read_changes(lake.lake.store, current(lake.lake.database), -1)


# By hand


def row(value: float | None, weight: float = 1.0, **facts: Any) -> Standing:
    state: State = "censored" if value is None else "scored"
    return Standing(state, value, None, weight)._replace(**facts)


def test_parts_are_weighed_as_turns_are() -> None:
    # (1 · 3 + 0 · 1) / (3 + 1)
    assert together([row(1.0, 3.0), row(0.0, 1.0), row(None, 9.0)]).value == 0.75
    assert together([row(1.0, 0.0), row(0.0, 0.0)]).value == 0.5
    waiting = [row(1.0), row(None, state="pending", due_us=5), row(None, state="pending", due_us=9)]
    assert (together(waiting).state, together(waiting).due_us) == ("pending", 9)
    waiting.append(row(None, state="pending"))
    assert together(waiting).due_us is None, "one of them waits for an event"
    silent = [row(None, reason="b"), row(None, reason="a"), row(None, reason="a")]
    assert (together(silent).state, together(silent).reason) == ("censored", "a")
