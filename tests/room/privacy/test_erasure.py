"""What is erased is gone from every file, and does not come back."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from penstock.access.privacy import erasure
from penstock.access.privacy.erasure import (
    carry_out,
    count_reach,
    list_erasures,
    open_erasures,
    order_erasure,
)
from penstock.access.privacy.orders import ErasureScope
from penstock.access.privacy.reach import find_sessions
from penstock.backends.database.engine import clock_us
from penstock.core.lake_keys import PublicKey, SigningKey
from penstock.events.redaction import SourceRule
from penstock.ingest.ledger import read_ledger
from penstock.ingest.rejected_lines import list_rejected
from penstock.lake import LakeDamaged, QueryFailed
from penstock.lake.catalog import create_snapshot, current
from penstock.lake.tables import reader_lease
from penstock.lake.tenant_redaction import read_redaction_counts
from penstock.lake.upkeep.merges import merge
from penstock.lake.upkeep.verification import verify
from tests.support.cut_off import CutOff, ended_after
from tests.support.lakes import START_US, Event, HandLake, hand_lake, make_event
from tests.support.marker_search import places_with
from tests.support.waiting import eventually

MARKER = "planted-marker-7f3a"
#: Where it matters in which place the lake has its log, its objects and its metadata.
everywhere = pytest.mark.usefixtures("each_place")
UNTIL_US = START_US + 10**12
USER = ErasureScope("default", "user", f"user-{MARKER}", UNTIL_US)


def erase(lake: HandLake, scope: ErasureScope) -> dict[str, Any]:
    id_ = order_erasure(lake.lake, scope, reason="asked for", by="tester")
    return carry_out(lake.lake, id_)


def marked(session: str, number: int, **fields: Any) -> Event:
    text = {"text": f"{MARKER} {number}"}
    return make_event(session, number, payload=text, **fields)


def is_nowhere(lake: HandLake) -> bool:
    """Of the bytes on the disks of brokers and databases the report says what becomes."""
    return places_with(lake.lake, MARKER) == []


@everywhere
def test_all_sessions_of_a_user_are_gone_and_the_others_are_as_they_were(lake: HandLake) -> None:
    lake.store(
        [
            *(marked(f"{MARKER}-a", n, user=USER.value) for n in range(20)),
            # Tools' events name nobody, and the newest user of the session is another one.
            marked("shared", 1, user=USER.value),
            marked("shared", 2, user="other"),
            *(make_event("kept", n, user="other") for n in range(20)),
        ]
    )
    lake.store(make_event("kept", n) for n in range(20, 30))
    create_snapshot(lake.lake.database, "before")
    assert count_reach(lake.lake, USER) == 2
    assert not is_nowhere(lake)
    report = erase(lake, USER)
    assert report["sessions"] == 2
    assert report["removed"]["events"] == 22
    assert ("bucket" in str(report["notes"])) is not lake.lake.store.local
    assert {session for _, session, _ in lake.stored()} == {"kept"}
    assert lake.rows("select count(*) as n from events") == [{"n": 30}]
    assert lake.rows("select count(*) as n from events", as_of="before") == [{"n": 30}]
    assert lake.rows("select session_id from sessions") == [{"session_id": "kept"}]
    assert verify(lake.lake).findings == []
    ledger = read_ledger(lake.lake)
    assert ledger.discrepancies == []
    assert sum(row.erased for row in ledger.rows) == 22
    assert is_nowhere(lake)


@everywhere
def test_nothing_erased_comes_back_by_a_retry_or_an_import(lake: HandLake) -> None:
    events = [marked("s", n, user=USER.value if n == 0 else None) for n in range(5)]
    lake.store(events)
    erase(lake, USER)
    # The same again; one more of the session; an older session that was never here.
    lake.store([*events, marked("s", 9), marked("older", 1, user=USER.value)])
    assert lake.stored() == {}
    ledger = read_ledger(lake.lake)
    assert ledger.discrepancies == []
    assert sum(row.erased for row in ledger.rows) == 12
    assert sum(row.accepted for row in ledger.rows) == 12
    assert is_nowhere(lake)
    # Whoever goes on is recorded again.
    later = "2026-12-04T00:00:00Z"
    lake.store([make_event("new", 1, ts=later, user=USER.value)])
    assert len(lake.stored()) == 1


def store(lake: HandLake, *events: Event) -> None:
    """In a request of its own, a second after the one before."""
    lake.clock.advance(1)
    lake.store(events)


def session_of_another(lake: HandLake) -> set[str | None]:
    return {event for _, session, event in lake.stored() if session == "theirs"}


@everywhere
def test_a_name_of_the_erased_takes_no_event_of_others_with_it(tmp_path: Path) -> None:
    """Whoever may send events names the user in a session of somebody else: before the order, with
    a time before the session began, by a link, in what waits in the log, and afterwards."""
    link = {"parent_session": "s", "link": "fork"}
    with hand_lake(tmp_path) as lake:
        store(lake, marked("s", 1, user=USER.value), marked("s", 2))
        store(lake, make_event("theirs", 1, user="other"), make_event("theirs", 2))
        store(lake, marked("theirs", 3, user=USER.value, ts="2026-01-01T00:00:00Z"))
        store(lake, make_event("theirs", 4, type="session_start", payload=link))
        create_snapshot(lake.lake.database, "before")
        merge(lake.lake, current(lake.lake.database).segments)
        lake.clock.advance(1)
        lake.send([marked("theirs", 5, user=USER.value)])
        report = erase(lake, USER)
        assert (report["sessions"], report["sessions_in_part"]) == (1, 1)
        assert session_of_another(lake) == {"e1", "e2", "e4"}
        store(lake, marked("theirs", 6, user=USER.value), make_event("theirs", 7))
        store(lake, make_event("theirs", 8, user="other"), marked("s", 9))
        assert session_of_another(lake) == {"e1", "e2", "e4", "e7", "e8"}
        assert len(lake.stored()) == 5
        ledger = read_ledger(lake.lake)
        assert ledger.discrepancies == []
        assert sum(row.erased for row in ledger.rows) == 6  # s: 1, 2, 9; theirs: 3, 5, 6
        assert verify(lake.lake).findings == []
        assert is_nowhere(lake)


def test_a_session_that_the_erased_began_goes_whole(tmp_path: Path) -> None:
    below = {"parent_session": "s", "link": "subagent"}
    ahead = "2026-12-31T00:00:00Z"  # by a clock that is ahead of the order
    with hand_lake(tmp_path) as lake:
        store(lake, marked("s", 1, user=USER.value), marked("s", 2))
        store(lake, make_event("s", 3, user="other", ts="2026-01-01T00:00:00Z"))
        # Nobody is named in a subagent; a fork by somebody else is theirs, and what is below it.
        store(lake, make_event("agent", 1, type="session_start", payload=below))
        store(lake, make_event("theirs", 1, type="session_start", payload=below, user="other"))
        below = {"parent_session": "theirs", "link": "subagent"}
        store(lake, make_event("their agent", 1, type="session_start", payload=below))
        # Of what waits it is known whose it is, before any of it is dropped.
        lake.clock.advance(1)
        lake.send([marked("waits", 1, user=USER.value), marked("waits", 2, ts=ahead)])
        report = erase(lake, USER)
        assert (report["sessions"], report["sessions_in_part"]) == (3, 0)
        assert {session for _, session, _ in lake.stored()} == {"theirs", "their agent"}
        store(lake, marked("waits", 2, ts=ahead))
        assert is_nowhere(lake)
        # The session goes on: what is new in it is recorded again.
        store(lake, make_event("s", 5, ts=ahead))
        assert len(lake.stored()) == 3


def test_what_an_erasure_knew_of_a_session_before_it_was_killed_stays(lake: HandLake) -> None:
    """Behind the segments it finds no name of the erased in the other's session again."""
    store(lake, make_event("theirs", 1), make_event("theirs", 2, user="other"))
    store(lake, marked("theirs", 3, user=USER.value))
    id_ = order_erasure(lake.lake, USER, reason="", by="tester")
    killed = 0
    while open_erasures(lake.lake):
        with suppress(CutOff), ended_after(lake, killed):
            carry_out(lake.lake, id_)
        killed += 1
    assert session_of_another(lake) == {"e1", "e2"}
    assert is_nowhere(lake)


@pytest.mark.parametrize("time", ["", ', "ts": "2026-11-21T10:00:00Z"', ', "ts": 1700000000000000'])
def test_rejected_lines_of_the_erased_do_not_come_back(tmp_path: Path, time: str) -> None:
    broken = f'{{"session_id": "s", "user": "{USER.value}"{time}, "text": "{MARKER}"'.encode()
    other = b'{"session_id": "s", "user": "other"'
    with hand_lake(tmp_path) as lake:
        lake.store(broken)
        erase(lake, USER)
        escaped = b'{"us\\u0065r": "%b", "type": 7}' % USER.value.encode()
        lake.store(b"\n".join([broken, other, escaped]))
        assert [entry.raw for entry in list_rejected(lake.lake, limit=9)] == [other, b""]
        assert is_nowhere(lake)
        later = b'{"user": "%b", "ts": "2026-12-04T00:00:00Z"' % USER.value.encode()
        lake.store(later)
        assert later in [entry.raw for entry in list_rejected(lake.lake, limit=9)]


def test_what_is_sent_again_is_not_shown_while_it_waits_for_the_writer(lake: HandLake) -> None:
    sent = [*(marked("s", n, user=USER.value) for n in range(3)), make_event("kept", 1)]
    lake.send(sent)
    ask = "select session_id from events order by 1"
    kept = [{"session_id": "kept"}]
    assert len(lake.rows(ask)) == 4
    erase(lake, USER)
    assert lake.rows(ask) == kept
    lake.send(sent)
    assert lake.rows(ask) == kept
    assert lake.rows("select session_id from sessions") == kept


@everywhere
def test_what_waits_in_the_log_and_among_rejected_lines_goes_too(lake: HandLake) -> None:
    broken = f'{{"session_id": "{MARKER}", "user": "{USER.value}"'.encode()
    lake.store(b"\n".join([broken, b"not json at all"]))
    lake.send([marked("waits", 1, user=USER.value), make_event("stays", 1)])
    report = erase(lake, USER)
    assert report["removed"]["rejected lines"] == 1
    assert [entry.raw for entry in list_rejected(lake.lake, limit=9)] == [b"not json at all"]
    assert {session for _, session, _ in lake.stored()} == {"stays"}
    assert is_nowhere(lake)


def test_a_service_that_has_stored_everything_is_not_waited_for(tmp_path: Path) -> None:
    """Nothing comes in that would take its writer beyond what it has stored."""
    with hand_lake(tmp_path) as service, hand_lake(tmp_path) as lake:
        service.store([marked("gone", 1, user=USER.value), make_event("stays", 1)])
        assert not lake.writer().drain()
        erase(lake, USER)
        assert {session for _, session, _ in lake.stored()} == {"stays"}


@everywhere
def test_a_segment_that_was_merged_is_rewritten_in_every_state_that_a_snapshot_sees(
    lake: HandLake,
) -> None:
    for at in range(3):
        lake.store([marked(f"u{at}", 1, user=USER.value), make_event(f"k{at}", 1)])
    create_snapshot(lake.lake.database, "before")
    merge(lake.lake, current(lake.lake.database).segments)
    erase(lake, USER)
    kept = [{"session_id": f"k{at}"} for at in range(3)]
    sql = "select session_id from events order by 1"
    assert lake.rows(sql) == lake.rows(sql, as_of="before") == kept
    assert verify(lake.lake).findings == []
    assert is_nowhere(lake)


def test_a_session_a_project_and_a_tenant_can_be_erased(lake: HandLake) -> None:
    lake.store([make_event("a", 1, project="p"), make_event("b", 1), make_event("c", 1)])
    lake.store([make_event("a", 1), make_event("d", 1)], tenant="acme")
    erase(lake, ErasureScope("default", "session", "b", UNTIL_US))
    assert {session[:2] for session in lake.stored()} == {
        ("default", "a"), ("default", "c"), ("acme", "a"), ("acme", "d"),
    }  # fmt: skip
    erase(lake, ErasureScope("default", "project", "p", UNTIL_US))
    erase(lake, ErasureScope("acme", "tenant", "acme", UNTIL_US))
    assert {session[:2] for session in lake.stored()} == {("default", "c")}
    assert verify(lake.lake).findings == []


@everywhere
def test_erasing_a_tenant_leaves_its_counts_without_names_of_sources(lake: HandLake) -> None:
    for tenant in ("acme", "default"):
        for source in ("laptop-of-anna", "ci"):
            lake.store([make_event(source, 1, source=source)], tenant=tenant)
            matches = {SourceRule(source, "aws_key"): 2}
            lake.lake.redaction_tally.count(tenant, START_US, matches)
    lake.lake.redaction_tally.flush(lake.lake.database)
    before = read_ledger(lake.lake, tenant="default").rows
    report = erase(lake, ErasureScope("acme", "tenant", "acme", UNTIL_US))
    assert report["removed"]["counts of sources"] == 4
    [row] = read_ledger(lake.lake, tenant="acme").rows
    assert (row.source, row.accepted, row.stored, row.erased) == ("", 2, 0, 2)
    [count] = read_redaction_counts(lake.lake.database, "acme")
    assert (count.source, count.matches) == ("", 4)
    assert read_ledger(lake.lake, tenant="default").rows == before
    assert len(read_redaction_counts(lake.lake.database, "default")) == 2
    assert read_ledger(lake.lake).discrepancies == []


def test_the_report_is_signed_and_names_nobody(lake: HandLake) -> None:
    lake.store([marked("s", 1, user=USER.value)])
    report = erase(lake, USER)
    # Whoever has the public key alone can check it, and write none.
    assert report["signature"]["algorithm"] == "ed25519"
    public = SigningKey.of(lake.lake.settings).public
    assert PublicKey.of_pem(public.pem.encode(), "").has_signed(report)
    assert not public.has_signed(report | {"sessions": 0})
    assert USER.value not in str(report)
    assert [each.report for each in list_erasures(lake.lake)] == [report]


def test_who_was_killed_while_it_looked_for_sessions_is_not_waited_for_long(tmp_path: Path) -> None:
    with hand_lake(tmp_path, lease_seconds=5) as lake:
        lake.store([marked("s", 1, user=USER.value)])
        looking = find_sessions(lake.lake, USER)
        assert next(looking) == [("default", "s")]
        with lake.lake.database.read() as connection:
            left_us = sa.func.max(reader_lease.c.until) - clock_us(connection)
            assert 0 < int(connection.scalar(sa.select(left_us)) or 0) <= 5_000_000
        looking.close()


def fill_for_readers(lake: HandLake) -> None:
    for at in range(4):
        users = [marked(f"u{at}", n, user=USER.value) for n in range(50)]
        lake.store([*users, *(make_event(f"k{at}", n) for n in range(50))])


@everywhere
def test_a_query_that_began_before_an_erasure_is_waited_for(tmp_path: Path) -> None:
    with hand_lake(tmp_path) as lake, ThreadPoolExecutor(1) as others:
        fill_for_readers(lake)
        with lake.lake.query("select * from events").run() as answer:
            erasing = others.submit(erase, lake, USER)
            eventually(lambda: current(lake.lake.database).snap > answer.snap + 3)
            assert answer.batches.read_all().num_rows == 400
            assert not erasing.done()
        assert erasing.result()["removed"]["events"] == 200
        assert is_nowhere(lake)


def test_a_query_that_takes_longer_than_an_erasure_waits_says_what_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erasure, "READERS_SECONDS_MAX", 0)
    with hand_lake(tmp_path) as lake:
        fill_for_readers(lake)
        with lake.lake.query("select * from events").run() as answer:
            erase(lake, USER)
            # It ends well where the engine has read what it needs already.
            with suppress(QueryFailed, LakeDamaged):
                assert answer.batches.read_all().num_rows == 400
        assert lake.rows("select count(*) as n from events") == [{"n": 200}]
        assert is_nowhere(lake)


@everywhere
def test_an_erasure_that_was_killed_before_any_of_its_transactions_ends_well(
    lake: HandLake,
) -> None:
    """Killed again and again, each time a little later, and at the end not at all."""
    for at in range(3):
        lake.store([marked(f"u{at}", 1, user=USER.value), make_event(f"k{at}", 1)])
    create_snapshot(lake.lake.database, "before")
    merge(lake.lake, current(lake.lake.database).segments)
    lake.send([marked("waits", 1, user=USER.value)])
    id_ = order_erasure(lake.lake, USER, reason="", by="tester")
    killed = 0
    while open_erasures(lake.lake):
        with suppress(CutOff), ended_after(lake, killed):
            carry_out(lake.lake, id_)
        killed += 1
    assert killed > 10
    assert lake.rows("select count(*) as n from events") == [{"n": 3}]
    assert lake.rows("select count(*) as n from events", as_of="before") == [{"n": 3}]
    assert verify(lake.lake).findings == []
    assert read_ledger(lake.lake).discrepancies == []
    assert is_nowhere(lake)
