"""PENSTOCK_NO_TRAIN=refuse at the gateway: its answer says what it knows, and the writer still
decides and counts."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from penstock.ingest.gateway import Acceptance, Acceptor
from penstock.ingest.ledger import read_ledger
from penstock.ingest.refused_events import REASON
from penstock.ingest.rejected_lines import list_fuses
from penstock.ingest.rejection_rules import WINDOW_LINES
from penstock.ingest.standing_refusals import StandingRefusals
from penstock.privacy.consents import decide_consent
from penstock.privacy.tables import consent_decision
from tests.support.lakes import Event, HandLake, body_of, hand_lake, make_event

pytestmark = pytest.mark.usefixtures("each_database")


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[HandLake]:
    with hand_lake(tmp_path, no_train="refuse") as opened:
        yield opened


@pytest.fixture
def refusals(lake: HandLake) -> StandingRefusals:
    standing = StandingRefusals.of(lake.lake.database, lake.lake.settings, lake.clock)
    assert standing is not None
    return standing


def send(
    lake: HandLake, refusals: StandingRefusals, events: list[Event] | bytes, tenant: str = "default"
) -> Acceptance:
    body = events if isinstance(events, bytes) else body_of(events)
    acceptor = Acceptor.of(
        tenant, lake.lake.settings, lake.lake.log, lake.lake.redactor, refusals=refusals
    )
    whole = Acceptance()
    for piece in acceptor.accept([body], lake.clock.now_us()):
        whole.add(piece)
    if whole.values:
        lake.lake.log.append(whole.values)
    return whole


def start(session: str, number: int, consent: str) -> Event:
    return make_event(session, number, "session_start", payload={"consent": consent})


def deny(
    lake: HandLake, refusals: StandingRefusals, kind: str, subject: str, consent: str = "no_train"
) -> None:
    whose = (lake.lake.database, "default", kind, subject, consent)
    decide_consent(*whose, reason="", by="tester")  # type: ignore[arg-type]
    refusals.refresh()


def refused_lines(answer: Acceptance) -> list[int]:
    assert {rejection.reason for rejection in answer.rejections} <= {REASON}
    assert {rejection.raw for rejection in answer.rejections} <= {b""}
    return sorted(rejection.line for rejection in answer.rejections)


def check(lake: HandLake, stored: int, refused: int) -> None:
    """What the writer made of it, and that its ledger adds up."""
    lake.writer().drain()
    report = read_ledger(lake.lake)
    assert report.discrepancies == []
    assert sum(row.stored for row in report.rows) == lake.stored().total() == stored
    assert sum(row.rejected for row in report.rows) == refused


def test_the_answer_says_what_a_session_says_of_itself(
    lake: HandLake, refusals: StandingRefusals
) -> None:
    answer = send(
        lake,
        refusals,
        [make_event("s", 1), start("s", 2, "no_train"), make_event("t", 1), make_event("s", 3)],
    )
    assert (answer.accepted, refused_lines(answer)) == (1, [1, 2, 4])
    check(lake, stored=1, refused=3)
    refusals.refresh()
    again = send(lake, refusals, [make_event("s", 4), make_event("t", 2)])
    assert (again.accepted, refused_lines(again)) == (1, [1])
    check(lake, stored=2, refused=4)


def test_the_writer_refuses_the_session_also_before_the_gateway_knows(
    lake: HandLake, refusals: StandingRefusals
) -> None:
    """Another gateway took the start, and this one has not looked since."""
    send(lake, refusals, [start("s", 1, "no_train")])
    later = send(lake, refusals, [make_event("s", 2)])
    assert later.accepted == 1
    check(lake, stored=0, refused=2)


def test_decisions_on_users_and_projects_are_in_the_answer(
    lake: HandLake, refusals: StandingRefusals
) -> None:
    deny(lake, refusals, "user", "u-1")
    deny(lake, refusals, "project", "p-1")
    answer = send(
        lake,
        refusals,
        [
            make_event("a", 1),
            make_event("a", 2, user="u-1"),
            make_event("b", 1, project="p-1"),
            make_event("c", 1, user="u-2"),
        ],
    )
    assert (answer.accepted, refused_lines(answer)) == (1, [1, 2, 3])
    check(lake, stored=1, refused=3)
    deny(lake, refusals, "user", "u-1", "unknown")
    answer = send(lake, refusals, [make_event("a", 3), make_event("d", 1, user="u-1")])
    assert (answer.accepted, refused_lines(answer)) == (1, [1]), "a refused session stays so"
    check(lake, stored=2, refused=4)
    deny(lake, refusals, "session", "a", "unknown")
    assert send(lake, refusals, [make_event("a", 4)]).accepted == 1
    check(lake, stored=3, refused=4)


def test_lines_keep_their_numbers_among_blank_and_broken_ones(
    lake: HandLake, refusals: StandingRefusals
) -> None:
    body = b"\n".join([b"", b"{broken", body_of([start("s", 1, "no_train")]), b"[]"])
    answer = send(lake, refusals, body + b"\n" + body_of([make_event("s", 2), make_event("t", 1)]))
    refused = [each.line for each in answer.rejections if each.reason == REASON]
    assert (answer.accepted, sorted(refused)) == (1, [3, 6])
    check(lake, stored=1, refused=4)


def test_refusals_trip_no_fuse_and_tell_nothing_to_other_tenants(
    lake: HandLake, refusals: StandingRefusals
) -> None:
    deny(lake, refusals, "session", "s")
    events = [make_event("s", number) for number in range(WINDOW_LINES)]
    assert send(lake, refusals, events).accepted == 0
    check(lake, stored=0, refused=WINDOW_LINES)
    assert send(lake, refusals, [make_event("s", 1)], tenant="other").accepted == 1
    lake.writer().drain()
    assert list_fuses(lake.lake.database) == []


def test_a_decision_that_an_erasure_deleted_holds_no_more(
    lake: HandLake, refusals: StandingRefusals
) -> None:
    deny(lake, refusals, "user", "u-1")
    with lake.lake.database.write() as connection:
        connection.execute(sa.delete(consent_decision))
    lake.clock.advance(61)
    refusals.refresh()
    assert send(lake, refusals, [make_event("s", 1, user="u-1")]).accepted == 1


def test_where_such_sessions_are_kept_nothing_is_read(tmp_path: Path) -> None:
    with hand_lake(tmp_path / "kept") as lake:
        assert StandingRefusals.of(lake.lake.database, lake.lake.settings, lake.clock) is None
