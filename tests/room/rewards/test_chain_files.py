"""A chain is one life: what became of an edit is seen in whatever session goes on. And what a fork
repeats counts once, where it happened."""

import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.lake.buckets import SessionId
from penstock_jobs.rewards.definition import find_definition, parse_definition
from penstock_jobs.rewards.history.session_chains import gather_chain, parents_of
from penstock_jobs.rewards.measures.turns import facts_by_session
from tests.support.lakes import START_US, Event, HandLake, hand_lake, make_event
from tests.support.reward_events import DAY_US, answered, edited, said
from tests.support.reward_runs import CURRENT, run_at, started, thumbs, whole

OF_EDITS = """
    name = "edits"
    [parameters]
    horizons_s = [0, 300]
    [[reward]]
    name = "edit_persistence"
    weight = 1.0
    horizon_s = 300
    [[reward]]
    name = "self_rework"
    [[reward]]
    name = "dissatisfied_follow_up"
    [[reward]]
    name = "explicit_feedback"
    [[reward]]
    name = "invalid_tool_calls"
    """
DEFINITION = parse_definition(OF_EDITS, "edits")
LINES = [f"def step_{n}(value):\n    return compute(value, {n * 37})\n\n" for n in range(4)]
EMPTY, TEXT, HALF = "import compute\n", "import compute\n" + "".join(LINES), "".join(LINES[:2])


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[HandLake]:
    """A bucket for every session, unless a chain keeps them together."""
    with hand_lake(tmp_path, bucket_bytes_target=8) as lake:
        yield lake


def worked(session: str, at: int = 0, path: str = "a.py", text: str = TEXT) -> list[Event]:
    return [
        said(at, f"please write {path}", session),
        answered(at + 1, session, text=f"I wrote {path}."),
        edited(at + 2, path, EMPTY, text, session),
    ]


def seen(session: str, at: int, text: str, path: str = "a.py") -> Event:
    return make_event(session, at, "file_observed", payload={"path": path, "text": text})


def reward(
    lake: HandLake, name: str, session: str, kind: str = "edit", horizon_s: int | None = 300
) -> list[tuple[str, float | None, str | None]]:
    """Target, value and reason of each row."""
    rows = lake.rows(
        f"""select target_id, round(value, 1) as value, reason from ({CURRENT})
        where name = '{name}' and session_id = '{session}' and target_kind = '{kind}'
        and horizon_s is not distinct from {horizon_s or "null"} order by target_id"""
    )
    return [(row["target_id"], row["value"], row["reason"]) for row in rows]


# Chains


def test_what_a_compaction_shows_of_an_edit_of_before(lake: HandLake) -> None:
    lake.store(worked("a"))
    run_at(lake, 86_400, DEFINITION)
    assert reward(lake, "edit_persistence", "a") == [("e2", None, "unobserved")]
    lake.store([started("b", "a", "compaction", 10), seen("b", 303, EMPTY + HALF)])
    assert run_at(lake, 86_500, DEFINITION).sessions == 2
    assert reward(lake, "edit_persistence", "a") == [("e2", 0.5, None)]
    assert reward(lake, "edit_persistence", "b") == []


def test_an_agent_that_replaces_its_work_after_a_compaction_has_done_it_again(
    lake: HandLake,
) -> None:
    """The edit after the compaction has the same id, and stays the edit of its session."""
    lake.store([*worked("a"), started("b", "a", "compaction", 10)])
    lake.store([edited(2, "a.py", TEXT, EMPTY + HALF, "b") | {"ts": START_US + 20_000_000}])
    lake.store([seen("b", 325, EMPTY + HALF)])
    run_at(lake, 86_400, DEFINITION)
    assert reward(lake, "self_rework", "a") == [("e2", 0.5, None)]
    assert reward(lake, "edit_persistence", "a") == [("e2", 1.0, None)]
    assert reward(lake, "edit_persistence", "b") == [("e2", 1.0, None)]
    assert reward(lake, "edit_persistence", "a", "turn") == [("1", 1.0, None)]
    assert reward(lake, "edit_persistence", "b", "turn") == [("0", 1.0, None)]


def test_the_first_message_after_a_compaction_is_about_the_work_before(lake: HandLake) -> None:
    lake.store(worked("a"))
    run_at(lake, 86_400, DEFINITION)
    assert reward(lake, "dissatisfied_follow_up", "a", "request", None) == [("1", None, "silence")]
    summary = "This session is being continued from a previous conversation. It went wrong."
    lake.store([started("b", "a", "compaction", 10), said(11, summary, "b")])
    lake.store([said(12, "No, this is wrong, it crashes. Undo it.", "b")])
    run_at(lake, 86_500, DEFINITION)
    [(request, value, _)] = reward(lake, "dissatisfied_follow_up", "a", "request", None)
    assert request == "1"
    assert value is not None
    assert value < -0.5
    assert reward(lake, "dissatisfied_follow_up", "b", "request", None) == []


def test_what_a_subagent_is_told_next_is_no_follow_up(lake: HandLake) -> None:
    """Whoever sends its instructions as messages of the user."""
    lake.store([*worked("a"), started("helper", "a", "subagent", 10)])
    told = [said(11, "List all of the reports of visits.", "helper"), answered(12, "helper")]
    again = [said(13, "Wrong. List all of the reports of visits.", "helper")]
    lake.store([*told, *again, answered(14, "helper", text="Yes.")])
    run_at(lake, 86_400, find_definition())
    for name in ("dissatisfied_follow_up", "asked_again", "judged_follow_up"):
        kind = "turn" if name == "judged_follow_up" else "request"
        values = [value for _, value, _ in reward(lake, name, "helper", kind, None)]
        assert not any(value is not None for value in values), name


def test_a_chain_is_over_when_its_last_session_is(lake: HandLake) -> None:
    over = make_event("a", 9, "session_end", payload={"reason": "completed"})
    lake.store([*worked("a"), over, started("b", "a", "compaction", 10), said(11, "go on", "b")])
    run_at(lake, 86_400, DEFINITION)
    assert reward(lake, "edit_persistence", "a") == [("e2", None, "unobserved")]
    lake.store([make_event("b", 12, "session_end", payload={"reason": "completed"})])
    run_at(lake, 86_500, DEFINITION)
    assert reward(lake, "edit_persistence", "a") == [("e2", None, "workspace_gone")]


# Forks


COMPLAINT = "No, this is wrong, it crashes. Undo it."


def complained(session: str) -> list[Event]:
    """A turn that went wrong in every way that there is."""
    return [
        *worked(session),
        thumbs(session, 4, "down"),
        said(5, COMPLAINT, session),
        answered(6, session, text="I am sorry."),
        seen(session, 303, EMPTY),
    ]


def own_turn(session: str) -> list[Event]:
    return [
        *worked(session, 1000, "b.py"),
        thumbs(session, 1010),
        seen(session, 1303, TEXT, "b.py"),
    ]


def as_sent(session: str, event: Event) -> Event:
    return event | {"session_id": session}


def with_keys(session: str, event: Event) -> Event:
    """New ids and new times: the source's own key stays."""
    return event | {"session_id": session, "event_id": f"{session}-{event['event_id']}"}


def only_words(session: str, event: Event) -> Event:
    """Nothing but what was said and done tells that it was there before."""
    again = as_sent(session, event) | {"event_id": f"{session}-{event['event_id']}"}
    return {name: value for name, value in again.items() if name != "source_key"}


@pytest.mark.parametrize("copy", [as_sent, with_keys, only_words])
def test_a_fork_is_worth_what_it_did_itself(lake: HandLake, copy: Any) -> None:
    default = find_definition()
    told = [event | {"source_key": f"k{n}"} for n, event in enumerate(complained("a"))]
    repeated = [copy("fork", event) for event in told]
    lake.store([*told, started("fork", "a", "fork"), *repeated, *own_turn("fork")])
    lake.store(own_turn("alone"))
    lake.store([started("again", "a", "resume"), *(copy("again", event) for event in told)])
    run_at(lake, 86_400, default)
    worth = whole(lake)
    assert worth["fork"] == worth["alone"] != worth["a"]
    assert worth["again"] == ("censored", None)
    rows = lake.rows(
        """select session_id, outcome, reason, requests, edited_requests from outcomes
        where superseded_at is null order by session_id"""
    )
    assert [tuple(row.values()) for row in rows if row["session_id"] != "a"] == [
        ("again", "excluded", "copy", 0, 0),
        ("alone", "scored", None, 1, 1),
        ("fork", "scored", None, 1, 1),
    ]
    # Its turn has the number that it has in the session as it was sent.
    turns = lake.rows("select turn from turns where session_id = 'fork' and text like '%b.py%'")
    found = reward(lake, "asked_instead", "fork", "turn", None)
    assert [int(turn) for turn, *_ in found] == [row["turn"] for row in turns] == [3]
    assert reward(lake, "edit_persistence", "fork", "edit", 600) != []


def test_what_was_said_alike_after_the_ways_parted_is_no_copy(lake: HandLake) -> None:
    lake.store([*worked("a"), said(5, "go on", "a"), answered(6, "a", text="Done.")])
    fork = [only_words("fork", event) for event in worked("a")]
    fork += [
        said(5, "stop here", "fork"),
        said(7, "go on", "fork"),
        answered(8, "fork", text="Done."),
    ]
    lake.store([started("fork", "a", "fork"), *fork])
    run_at(lake, 86_400, DEFINITION)
    bucket = gather_chain(lake.lake, SessionId("default", "fork"), START_US + DAY_US)
    asked = [turn["turn"] for turn in dict(facts_by_session(bucket))["fork"] if turn["asked"]]
    assert asked == [2, 3]


def test_a_look_of_a_fork_that_equals_one_of_its_parents_is_no_copy(lake: HandLake) -> None:
    """The user took the edit back before the fork went on."""
    told = [*worked("a"), seen("a", 303, EMPTY)]
    fork = [started("fork", "a", "fork"), *(only_words("fork", event) for event in told)]
    lake.store([*told, *fork, seen("fork", 900, EMPTY), *own_turn("fork")])
    run_at(lake, 86_400, DEFINITION)  # which finds the parent
    bucket = gather_chain(lake.lake, SessionId("default", "fork"), START_US + DAY_US)
    looks = bucket.observations.sort_by("ts")["ts"].cast(pa.int64()).to_pylist()
    assert [ts - START_US for ts in looks] == [900_000_000, 1_303_000_000]


def test_an_answer_that_was_regenerated_is_the_forks_own(lake: HandLake) -> None:
    lake.store([*worked("a"), seen("a", 303, EMPTY)])
    lake.store([started("fork", "a", "fork"), only_words("fork", worked("a")[0])])
    lake.store([answered(1, "fork", text="Another way.", event_id="f1")])
    lake.store([edited(2, "a.py", EMPTY, "other = 1\n", "fork"), seen("fork", 303, "other = 1\n")])
    run_at(lake, 86_400, DEFINITION)
    assert reward(lake, "edit_persistence", "fork", "turn") == [("1", 1.0, None)]
    assert reward(lake, "edit_persistence", "a", "turn") == [("1", 0.0, None)]


@pytest.mark.usefixtures("each_database")
def test_what_comes_late_to_a_parent_opens_its_forks(lake: HandLake) -> None:
    """As long as the parent does not hold it, it is the fork's own."""
    told = complained("a")
    fork = [as_sent("fork", event) for event in told]
    lake.store([*told[:1], started("fork", "a", "fork"), *fork, *own_turn("fork")])
    run_at(lake, 86_400, DEFINITION)
    first = whole(lake)["fork"]
    lake.store(told[1:])
    assert run_at(lake, 86_500, DEFINITION).sessions == 2
    assert whole(lake)["fork"] == ("scored", 1.0) != first
    assert run_at(lake, 86_600, DEFINITION).sessions == 0
    lake.store([thumbs("fork", 2000)])
    assert run_at(lake, 86_700, DEFINITION).sessions == 1, "a fork opens nobody"


def test_forks_in_a_ring_count_once(lake: HandLake) -> None:
    told = own_turn("b")
    lake.store([started("b", "a", "fork"), started("a", "b", "fork"), *told])
    lake.store([as_sent("a", event) for event in told])
    lake.store([started("self", "self", "resume"), *(as_sent("self", event) for event in told)])
    run_at(lake, 86_400, DEFINITION)
    assert whole(lake) == {"a": ("scored", 1.0), "b": ("censored", None), "self": ("scored", 1.0)}
    links = parents_of(lake.lake.database, {SessionId("default", name) for name in ("a", "b")})
    assert [session.session_id for session in links] == ["b"]


# However it comes


def family(seed: int, sessions: int) -> list[Event]:
    """A root with compactions, subagents, forks, and forks of these, in random order."""
    dice = random.Random(seed)
    told: dict[str, list[Event]] = {}
    starts: list[Event] = []
    for number in range(sessions):
        name, begin = f"s{number}", number * 400
        told[name] = []
        if number:
            parent = f"s{dice.randrange(number)}"
            link = dice.choice(["compaction", "subagent", "fork", "resume"])
            starts.append(started(name, parent, link, begin))
            if link in ("fork", "resume"):
                copy = dice.choice([as_sent, with_keys, only_words])
                kept = told[parent][: dice.randint(0, len(told[parent]))]
                told[name] = [copy(name, event) for event in kept]
                if dice.random() < 0.2:
                    continue
        path = dice.choice(["a.py", "b.py"])
        own = [
            *worked(name, begin + 10, path, dice.choice([TEXT, EMPTY + HALF])),
            thumbs(name, begin + 14, dice.choice(["up", "down"])),
            said(begin + 15, dice.choice([COMPLAINT, "Thanks, now the next."]), name),
            seen(name, begin + 313, dice.choice([TEXT, EMPTY + HALF, EMPTY]), path),
        ]
        told[name] += [event | {"source_key": f"{name}-{n}"} for n, event in enumerate(own)]
    events = [*starts, *(event for own in told.values() for event in own)]
    dice.shuffle(events)
    return events


def assert_piece_by_piece_is_as_all_at_once(
    directory: Path, seed: int, sessions: int, pieces: int, bucket_bytes: int
) -> None:
    events, dice = family(seed, sessions), random.Random(seed)
    rows = f"select * exclude (computed_at) from ({CURRENT}) order by all"
    outcomes = """select * exclude (computed_at, superseded_at) from outcomes
        where superseded_at is null order by all"""
    with hand_lake(directory / "all") as lake:
        lake.store(events)
        run_at(lake, 86_400, DEFINITION)
        expected = lake.rows(rows), lake.rows(outcomes)
    assert len(expected[1]) == sessions
    cuts = [0, *sorted(dice.sample(range(1, len(events)), pieces - 1)), len(events)]
    with hand_lake(directory / "pieces", bucket_bytes_target=bucket_bytes) as lake:
        for number, (start, end) in enumerate(pairwise(cuts)):
            lake.store(events[start:end])
            run_at(lake, 80_000 + number, DEFINITION)
        assert (lake.rows(rows), lake.rows(outcomes)) == expected


def test_piece_by_piece_is_as_all_at_once(tmp_path: Path) -> None:
    assert_piece_by_piece_is_as_all_at_once(tmp_path, 5, 4, 3, 8)
