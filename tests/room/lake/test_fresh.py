"""What is in the log only is read with what is stored: each event once."""

from pathlib import Path
from typing import Any

import pytest

from penstock.backends.eventlog import log as eventlog
from penstock.backends.eventlog.log import Entry, EventLog
from penstock.events.event import TENANT_DEFAULT
from penstock.lake.catalog import Pin, current
from penstock.lake.query.fresh_events import FreshEvents, read_fresh
from penstock.lake.query.waiting_index import WaitingIndex
from tests.support.lakes import HandLake, hand_lake, make_event

LONG = "x" * 600


def fresh_of(lake: HandLake, pin: Pin | None = None, bytes_max: int = 10**6) -> FreshEvents:
    pin = current(lake.lake.database) if pin is None else pin
    return read_fresh(lake.lake, pin, TENANT_DEFAULT, bytes_max)


def test_an_event_that_is_stored_and_in_the_log_again_is_seen_once(lake: HandLake) -> None:
    lake.store([make_event("s", number) for number in range(3)])
    lake.send([make_event("s", number) for number in range(5)])
    lake.send([make_event("s", 4)])
    assert lake.rows("select seq from events order by seq") == [{"seq": n} for n in range(5)]
    assert lake.rows("select events from sessions") == [{"events": 5}]


def test_as_of_now_leaves_out_what_is_in_the_log_only(lake: HandLake) -> None:
    lake.store([make_event("s", 0)])
    lake.send([make_event("s", 1)])
    count = "select count(*) as n from events"
    assert lake.rows(count, as_of="2099-01-01T00:00:00Z") == [{"n": 1}]
    assert lake.rows(count, as_of="latest") == [{"n": 2}]


def test_more_than_may_be_read_is_cut_off_and_that_is_said(lake: HandLake) -> None:
    for number in range(50):
        lake.send([make_event("s", number, payload={"text": LONG})])
    found = fresh_of(lake, bytes_max=10_000)
    assert found.cut_off
    assert 0 < found.rows.num_rows < 50
    assert not fresh_of(lake).cut_off


def test_what_others_sent_neither_counts_nor_cuts_off(lake: HandLake) -> None:
    for number in range(20):
        lake.send([make_event("s", number, payload={"text": LONG})], tenant="other")
    lake.send([make_event("s", 0)])
    found = fresh_of(lake, bytes_max=10_000)
    assert (found.rows.num_rows, found.cut_off) == (1, False)


def test_a_reader_notices_that_the_log_let_go_of_what_it_came_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in a segment that came after the pin: the query pins the lake again."""
    monkeypatch.setattr(eventlog, "FILE_BYTES_MAX", 1000)
    with hand_lake(tmp_path) as lake:
        lake.store([make_event("s", 0)])
        for number in range(1, 6):
            lake.send([make_event("s", number, payload={"text": LONG})])
        pin = current(lake.lake.database)

        before = fresh_of(lake, pin)
        assert (before.rows.num_rows, before.overtaken) == (5, False)
        lake.store()
        after = fresh_of(lake, pin)
        assert (after.rows.num_rows, after.overtaken) == (1, True)


def test_a_log_that_an_erasure_emptied_cuts_no_query_off(lake: HandLake) -> None:
    lake.store([make_event("s", 0)])
    log = lake.lake.log
    assert log.forget(0, log.set_apart(0))
    assert log.bounds(0).first > current(lake.lake.database).next_offsets[0].next_offset
    for sent in (0, 1):
        rows, answer = lake.lake.query("select count(*) as n from events").written("members")
        assert (b'{"n":%d}' % (1 + sent) in rows, answer.cut_off) == (True, False)
        lake.send([make_event("s", 1)])


# Where each tenant's events wait


class CountedReads:
    """A log that counts the bytes which are read of it."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self.read_bytes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def read(self, *place: int) -> list[Entry]:
        entries = self._log.read(*place)
        self.read_bytes += sum(len(value) for entry in entries for value in entry.values)
        return entries


def test_a_query_reads_its_own_tenants_part_of_what_waits(lake: HandLake) -> None:
    """What is appended is looked through once; from then on another tenant's backlog costs none."""
    lake.send([make_event("mine", 1)])
    for number in range(50):
        lake.send([make_event("s", number, payload={"text": LONG})], tenant=f"t{number}")
    counted = CountedReads(lake.lake.log)
    lake.lake._log = counted  # type: ignore[assignment]
    assert fresh_of(lake).rows.num_rows == 1
    counted.read_bytes = 0
    lake.send([make_event("mine", 2)])
    assert fresh_of(lake).rows.num_rows == 2
    assert counted.read_bytes < 3 * 1_000


def test_what_is_covered_is_forgotten_and_an_earlier_pin_reads_past_the_index(
    lake: HandLake,
) -> None:
    lake.send([make_event("s", 1)])
    before = current(lake.lake.database)
    assert fresh_of(lake, before).rows.num_rows == 1
    end = lake.lake.log.ends()[0]
    known = lake.lake.waiting_index.runs(
        lake.lake.log, 0, TENANT_DEFAULT, covered=end, unread_max=10**6
    )
    assert known == ([], 0)
    assert fresh_of(lake, before).rows.num_rows == 1


def test_more_than_an_index_holds_is_looked_through(lake: HandLake) -> None:
    lake.lake.waiting_index = WaitingIndex(runs_max=5)
    for number in range(10):
        lake.send([make_event("s", number)], tenant=f"t{number}")
    lake.send([make_event("s", 1)])
    for _ in range(2):
        assert fresh_of(lake).rows.num_rows == 1


def test_the_index_is_continued_where_a_query_may_look_through_no_more(lake: HandLake) -> None:
    for number in range(50):
        lake.send([make_event("s", number, payload={"text": LONG})], tenant=f"t{number}")
    lake.send([make_event("s", 1)])
    seen = [fresh_of(lake, bytes_max=2_000) for _ in range(20)]
    assert seen[0].rows.num_rows + seen[0].cut_off >= 1
    assert (seen[-1].rows.num_rows, seen[-1].cut_off) == (1, False)
