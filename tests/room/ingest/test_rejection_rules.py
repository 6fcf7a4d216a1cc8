"""What is stored of rejected lines, and which fuses trip: alone, then in the running writer."""

from collections import Counter
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import InvalidInput
from penstock.core.metrics import Metrics
from penstock.doors.server.service import Service
from penstock.ingest import rejection_rules
from penstock.ingest.ledger import read_ledger
from penstock.ingest.rejected_lines import (
    FOLDER,
    list_fuses,
    list_rejected,
    release_fuse,
    remove_old_lines,
    replay_rejected,
)
from penstock.ingest.rejection_rules import (
    RejectedRow,
    RejectionFuses,
    Source,
    SourceLines,
    StoredRejections,
    plan_rejections,
)
from penstock.ingest.tables import rejected
from penstock.lake.rows import DecodedEvents
from penstock.lake.upkeep.rounds import collect
from tests.support.lakes import HandLake, hand_lake, make_event

BAD = b'{"type": "user_message", "source": "ide"}\n'
IDE = Source("acme", "ide")


def row(reason: str = "why", source: str = "ide", **fields: object) -> RejectedRow:
    values = {"received_at": 1, "line": 1, "raw": b"x" * 10, "truncated": False} | fields
    return RejectedRow(tenant="acme", source=source, reason=reason, **values)  # type: ignore[arg-type]


# Bounds


def test_beyond_its_rows_a_tenant_has_the_first_of_each_kind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rejection_rules, "ROWS_MAX", 3)
    rows = [row(f"unknown type 'x{n}' at {n}") for n in range(5)] + [row("too long")] * 4
    plan = plan_rejections(rows, StoredRejections())
    assert [(lines.first.reason, lines.lines) for lines in plan.stored] == [
        ("unknown type 'x0' at 0", 1),
        ("unknown type 'x1' at 1", 1),
        ("unknown type 'x2' at 2", 3),
        ("too long", 4),
    ]


def test_lines_of_a_stored_kind_are_counted_at_its_row() -> None:
    full = StoredRejections(rows=rejection_rules.ROWS_MAX, newest={row().kind: 17})
    plan = plan_rejections([row()] * 1000, full)
    assert (plan.stored, plan.counted) == ([], Counter({17: 1000}))


def test_bytes_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rejection_rules, "BYTES_MAX", 100)
    plan = plan_rejections([row(raw=b"x" * 60)] * 3, StoredRejections())
    assert [lines.lines for lines in plan.stored] == [3]


def test_kinds_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rejection_rules, "ROWS_MAX", 0)
    monkeypatch.setattr(rejection_rules, "KINDS_MAX", 3)
    rows = [row(source=f"source-{number}") for number in range(100)]
    plan = plan_rejections(rows, StoredRejections())
    assert [lines.kind.source for lines in plan.stored] == [
        "source-0", "source-1", "source-2", "",
    ]  # fmt: skip
    assert sum(lines.lines for lines in plan.stored) == 100


def test_acknowledged_lines_are_always_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rejection_rules, "ROWS_MAX", 0)
    rows = [row(raw=b"%d" % number, acknowledged=True) for number in range(5)]
    [lines] = plan_rejections(rows, StoredRejections(tripped={"ide"})).stored
    assert (lines.lines, lines.content) == (5, b"0\n1\n2\n3\n4")


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from(["why", "how"]), st.booleans()),
        max_size=60,
    ),
    st.integers(0, 20),
)
def test_each_line_is_stored_or_counted_once(
    drawn: list[tuple[str, str, bool]], rows_before: int
) -> None:
    rows = [row(reason, source, acknowledged=flag) for source, reason, flag in drawn]
    known = {row("why", "a").kind: 1}
    stored = StoredRejections(rows=rejection_rules.ROWS_MAX - rows_before, newest=dict(known))
    plan = plan_rejections(rows, stored)
    whole = sum(lines.lines for lines in plan.stored)
    assert whole + plan.counted.total() == len(rows)


# Fuses


def bad(seen: float, rejected_lines: float) -> dict[Source, SourceLines]:
    return {IDE: SourceLines(seen, rejected_lines, "why")}


@pytest.mark.parametrize(
    ("share", "window_lines", "flushes"),
    [
        (0.5, 100, [bad(1, 1)] * 50),  # a few on a quiet day
        (0.5, 100, [bad(40, 40), bad(100, 0)] * 20),  # good ones make up for bad ones
        (1.0, 1, [bad(1000, 1000)] * 100),  # a share of one
    ],
)
def test_what_trips_nothing(
    share: float, window_lines: int, flushes: list[dict[Source, SourceLines]]
) -> None:
    fuses = RejectionFuses(share, window_lines=window_lines)
    for lines in flushes:
        assert fuses.trips(lines) == {}
        fuses.add(lines)


def test_a_flush_that_is_tried_again_counts_once() -> None:
    """An outage of the database repeats a flush: that must not look like a bad deploy."""
    fuses = RejectionFuses(0.5, window_lines=100)
    for _ in range(1000):
        assert fuses.trips(bad(50, 50)) == {}
    fuses.add(bad(50, 50))
    assert fuses.trips(bad(1, 1)) == {IDE: SourceLines(51, 51, "why")}


def test_sources_do_not_answer_for_each_other() -> None:
    fuses = RejectionFuses(0.5, window_lines=100)
    flush = bad(60, 60) | {Source("honest", "ide"): SourceLines(60, 1, "typo")}
    assert list(fuses.trips(flush)) == [IDE]


def test_a_tripped_fuse_begins_anew() -> None:
    fuses = RejectionFuses(0.5, window_lines=100)
    fuses.add(bad(60, 60))
    assert fuses.trips(bad(1, 1)) == {}


def test_what_is_remembered_of_sources_is_bounded() -> None:
    fuses = RejectionFuses(0.5, window_lines=100, sources_max=10)
    for number in range(1000):
        fuses.add({Source("acme", f"s{number}"): SourceLines(1, 1, "why")})
    assert len(fuses._windows) == 10


# In the writer


@pytest.mark.usefixtures("each_database")
def test_what_trips_a_fuse_is_counted_and_all_else_flows(tmp_path: Path) -> None:
    with hand_lake(tmp_path, rejected_ratio_max=0.001) as lake:
        for number in (1, 2):
            lake.send(BAD * 50, "hostile")
            lake.send([make_event("s", number)], "honest")
            lake.send([make_event("h", number, source="ide")], "hostile")
            lake.store()
        assert {key[0]: count for key, count in lake.stored().items()} == {
            "honest": 1, "hostile": 1,
        }  # fmt: skip
        assert sum(lake.stored().values()) == 4
        [fuse] = list_fuses(lake.lake.database)
        assert (fuse.tenant, fuse.source, fuse.rejected) == ("hostile", "ide", 50)
        entries = list_rejected(lake.lake, limit=1000)
        assert (len(entries), sum(entry.lines for entry in entries)) == (50, 100)
        assert read_ledger(lake.lake).discrepancies == []
        assert sum(counts.rejected for counts in read_ledger(lake.lake).rows) == 100
        release_fuse(lake.lake.database, "hostile", "ide")
        with pytest.raises(InvalidInput, match="has not tripped"):
            release_fuse(lake.lake.database, "hostile", "ide")
        lake.store(BAD, "hostile")
        assert len(list_rejected(lake.lake, limit=1000)) == 51


@pytest.mark.usefixtures("each_database")
def test_a_flood_of_lines_adds_little_to_the_database(lake: HandLake) -> None:
    """A body of 230 bytes, compressed, may hold 100,000 of them."""
    lake.store(b"x\n" * 20_000)
    with lake.lake.database.read() as connection:
        rows = connection.scalar(sa.select(sa.func.count()).select_from(rejected))
    assert rows == rejection_rules.ROWS_MAX
    assert sum(entry.lines for entry in list_rejected(lake.lake, 10_000)) == 20_000
    [counted] = [entry for entry in list_rejected(lake.lake, 10_000) if entry.lines > 1]
    outcome = replay_rejected(lake.lake, lake.clock, [counted.id])
    assert "of which only this one was kept" in outcome.refused[counted.id]


def test_acknowledged_lines_that_cannot_be_stored_are_set_aside_and_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a bad deploy of Penstock itself: nothing that was acknowledged is lost."""
    monkeypatch.setattr(rejection_rules, "ROWS_MAX", 0)
    to_tables = DecodedEvents.to_tables

    def broken(self: DecodedEvents, *arguments: object) -> object:
        if any(event.session_id == "unfit" for event in self.events):
            raise ValueError("no table holds it")
        return to_tables(self, *arguments)  # type: ignore[arg-type]

    with hand_lake(tmp_path) as lake:
        with monkeypatch.context() as patched:
            patched.setattr(DecodedEvents, "to_tables", broken)
            lake.send([make_event("unfit", number) for number in range(5)])
            lake.store([make_event("s", 1)])
        assert sum(lake.stored().values()) == 1
        [entry] = list_rejected(lake.lake, limit=10)
        assert (entry.lines, entry.acknowledged) == (5, True)
        assert "no table holds it" in entry.reason
        assert replay_rejected(lake.lake, lake.clock).accepted == 5
        lake.store()
        assert sum(lake.stored().values()) == 6


@pytest.mark.usefixtures("each_database")
def test_old_lines_go_with_their_files(lake: HandLake) -> None:
    lake.store(BAD)
    assert remove_old_lines(lake.lake, Metrics()) is None
    with lake.lake.database.write() as connection:
        connection.execute(sa.update(rejected).values(received_at=0))
    lake.store(BAD)
    assert len(list(lake.lake.store.list(FOLDER))) == 2
    report = remove_old_lines(lake.lake, Metrics())
    assert report == "removed 1 rejected lines older than 30 days"
    collect(lake.lake, grace_s=0)
    assert len(list(lake.lake.store.list(FOLDER))) == 1
    assert [entry.raw for entry in list_rejected(lake.lake, 10)] == [BAD.strip()]


def test_the_service_stays_ready_and_says_it(tmp_path: Path) -> None:
    with hand_lake(tmp_path, rejected_ratio_max=0.001) as lake:
        lake.store(BAD * 40)
        service = Service(lake.lake.settings)
        service._refresh_warnings()
        [warning] = service.warnings()
        assert warning.startswith("Most lines of 1 source are rejected; other lines")
        assert list(service.problems()) == []
        service.stop()
