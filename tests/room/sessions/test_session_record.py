"""A session as a document, where its rewards lie in one of many files."""

from pathlib import Path
from typing import Any

import pytest

from penstock.core.endpoint import Caller
from penstock_jobs.rewards.definition import parse_definition
from penstock_jobs.sessions.edit_fates import SHOW_HISTORY
from penstock_jobs.sessions.reading import SessionRecord, SessionRequest, read_session
from tests.support.lakes import HandLake, hand_lake, make_event
from tests.support.reward_events import said
from tests.support.reward_runs import run_at, seen, thumbs, worked

LIKED = parse_definition(
    'name = "liked"\n[[reward]]\nname = "explicit_feedback"\nweight = 1.0\n', "liked"
)


def record_of(lake: HandLake, session: str, **asked: Any) -> SessionRecord:
    question = SessionRequest(session_id=session, limit=100, **asked)
    return read_session(lake.lake, Caller("default", "ann"), question)


def current(lake: HandLake, session: str, definition: str) -> list[tuple[Any, ...]]:
    rows = lake.rows(
        f"""select target_kind, target_id, name, horizon_s, value, state from rewards
        where superseded_at is null and session_id = '{session}' and definition = '{definition}'"""
    )
    return sorted((tuple(row.values()) for row in rows), key=repr)


def recorded(record: SessionRecord) -> list[tuple[Any, ...]]:
    names = ("target_kind", "target_id", "name", "horizon_s", "value", "state")
    return sorted((tuple(row[name] for name in names) for row in record.rewards), key=repr)


@pytest.mark.parametrize("segments_min", [2, 100], ids=["merged", "apart"])
def test_rewards_are_those_that_are_current_whichever_file_they_are_in(
    tmp_path: Path, segments_min: int
) -> None:
    """Five runs: one after the first event of each of two sessions, one as the second continued the
    first, one of another definition, and one as somebody liked it."""
    with hand_lake(tmp_path, compaction_segments_min=segments_min) as lake:
        for number, session in enumerate(("a", "alone")):
            lake.store([*worked(session), seen(session, 303)])
            run_at(lake, 86_400 + number)
        start = {"parent_session": "a", "link": "compaction"}
        lake.store([make_event("b", 310, "session_start", payload=start), *worked("b", 311)])
        run_at(lake, 86_410)
        run_at(lake, 86_411, LIKED)
        lake.store([thumbs("b", 400)])
        run_at(lake, 86_420)
        for session, chain in (("a", {"a", "b"}), ("b", {"a", "b"}), ("alone", {"alone"})):
            for definition in ("small", "liked"):
                record = record_of(lake, session, definition=definition)
                assert recorded(record) == current(lake, session, definition)
                assert record.explanation is not None
                assert {member.session_id for member in record.explanation.chain} == chain
        assert (
            record_of(lake, "a").explanation == record_of(lake, "a", definition="small").explanation
        ), "the definition that ran last of this session"


def test_without_a_run_there_are_no_rewards(tmp_path: Path) -> None:
    with hand_lake(tmp_path) as lake:
        lake.store(worked("s"))
        record = record_of(lake, "s")
    assert (record.explanation, record.rewards, len(record.events)) == (None, [], 3)


def test_a_page_brings_what_tells_about_its_edits(tmp_path: Path) -> None:
    """Edits of the page, and looks at them; nothing of a page without edits."""
    with hand_lake(tmp_path) as lake:
        lake.store([*worked("s"), seen("s", 303), said(5_000, "and now?", "s"), said(0, "hi", "t")])
        caller = Caller("default", "test")
        shown, without = (
            SHOW_HISTORY.work(lake.lake, caller, SessionRequest(session_id=session, limit=50))
            for session in ("s", "t")
        )
        assert shown.record == record_of(lake, "s")
    assert [row["type"] for row in shown.rows] == ["user_message", "edit", "file_observed"]
    assert without.rows == []
