"""PENSTOCK_NO_TRAIN=refuse: what may not be trained on is rejected, and nothing of it is kept."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from penstock.ingest.ledger import read_ledger
from penstock.ingest.refused_events import REASON
from penstock.ingest.tables import rejected
from penstock.privacy.consents import decide_consent
from tests.support.lakes import Event, HandLake, hand_lake, make_event

pytestmark = pytest.mark.usefixtures("each_database")
MARKER = "what-nobody-may-keep"


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[HandLake]:
    with hand_lake(tmp_path, no_train="refuse") as opened:
        yield opened


def said(session: str, number: int) -> Event:
    return make_event(session, number, payload={"text": MARKER})


def start(session: str, number: int, consent: str) -> Event:
    return make_event(session, number, "session_start", payload={"consent": consent})


def sessions(lake: HandLake) -> set[str]:
    return {session for _, session, _ in lake.stored()}


def deny(lake: HandLake, kind: str, subject: str, consent: str = "no_train") -> None:
    whose = (lake.lake.database, "default", kind, subject, consent)
    decide_consent(*whose, reason="", by="tester")  # type: ignore[arg-type]


def check_ledger(lake: HandLake, stored: int, refused: int) -> None:
    report = read_ledger(lake.lake)
    assert report.discrepancies == []
    assert sum(row.stored for row in report.rows) == stored
    assert sum(row.rejected for row in report.rows) == refused
    with lake.lake.database.read() as connection:
        rows = connection.execute(sa.select(rejected.c.reason)).all()
    assert {row.reason for row in rows} == ({REASON} if refused else set())


def test_a_session_that_says_no_train_is_refused_as_a_whole(lake: HandLake, tmp_path: Path) -> None:
    lake.store([said("s", 1), start("s", 2, "no_train"), said("s", 3), make_event("t", 1)])
    assert sessions(lake) == {"t"}
    lake.store([said("s", 4), make_event("t", 2)])  # its start is not there to be read again
    assert sessions(lake) == {"t"}
    check_ledger(lake, stored=2, refused=4)
    for file in (path for path in tmp_path.rglob("*") if path.is_file()):
        assert MARKER.encode() not in file.read_bytes(), file


def test_users_and_projects_that_were_denied_are_refused_in_all_their_sessions(
    lake: HandLake,
) -> None:
    deny(lake, "user", "u-1")
    deny(lake, "project", "p-1")
    lake.store([make_event("a", 1, user="u-1"), make_event("a", 2), make_event("c", 1, user="u-2")])
    lake.store([make_event("b", 1, project="p-1"), make_event("a", 3)])
    assert sessions(lake) == {"c"}
    check_ledger(lake, stored=1, refused=4)
    deny(lake, "user", "u-1", "unknown")
    lake.store([make_event("d", 1, user="u-1"), make_event("a", 4)])
    assert sessions(lake) == {"c", "d"}, "the session that was refused stays so"


def test_what_was_stored_before_stays_and_nothing_is_added(lake: HandLake) -> None:
    lake.store([make_event("s", 1)])
    lake.store([start("s", 2, "no_train"), make_event("s", 3)])
    assert lake.stored().total() == 1
    check_ledger(lake, stored=1, refused=2)


def test_another_tenants_decisions_refuse_nothing(lake: HandLake) -> None:
    deny(lake, "user", "u-1")
    lake.store([make_event("s", 1, user="u-1")], tenant="other")
    assert lake.stored().total() == 1


def test_what_is_kept_is_stored(tmp_path: Path) -> None:
    with hand_lake(tmp_path / "kept") as lake:
        deny(lake, "user", "u-1")
        lake.store([make_event("s", 1, user="u-1"), start("t", 1, "no_train")])
        assert sessions(lake) == {"s", "t"}
