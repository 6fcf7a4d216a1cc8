"""The ledger adds up at any moment, and says so when it does not."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from penstock.backends.eventlog import log as eventlog
from penstock.ingest.ledger import LedgerRow, read_ledger
from penstock.lake.catalog import current
from penstock.lake.tables import ledger, log_partition, segment
from penstock.lake.upkeep.merges import merge
from tests.support.commands import penstock
from tests.support.lakes import HandLake, hand_lake, make_event

pytestmark = pytest.mark.usefixtures("each_database")

HOUR_US = 3_600_000_000
LONG = "x" * 600
BAD = b'{"type": "user_message", "source": "by-hand"}\n'


def totals(lake: HandLake) -> LedgerRow:
    report = read_ledger(lake.lake)
    assert report.discrepancies == []
    total = LedgerRow("", "", 0, 0, 0, 0, 0, 0)
    for row in report.rows:
        names = ("accepted", "stored", "duplicate", "rejected", "waiting")
        total = replace(total, **{n: getattr(total, n) + getattr(row, n) for n in names})
    return total


def test_adds_up_at_every_step_of_a_flush(tmp_path: Path) -> None:
    seen: dict[str, LedgerRow] = {}
    with hand_lake(tmp_path) as lake:
        lake.store([make_event("s", 0)])
        lake.send([make_event("s", number) for number in range(5)])
        lake.send(BAD)
        before = totals(lake)
        lake.writer(lambda point: seen.update({point: totals(lake)})).drain()
        after = totals(lake)
    assert before == LedgerRow("", "", 0, 6, 1, 0, 1, 5)
    assert after == LedgerRow("", "", 0, 6, 5, 1, 1, 0)
    assert seen == {
        "intent written": before,
        "file half written": before,
        "file written": before,
        "committed": after,
    }


def test_counts_what_is_read_once_when_a_flush_comes_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is read after the database: what was stored in between must not count twice."""
    monkeypatch.setattr(eventlog, "FILE_BYTES_MAX", 1000)
    with hand_lake(tmp_path) as lake:
        lake.store([make_event("s", 0)])
        lake.send([make_event("s", 1)])
        log = lake.lake.log
        read = log.read

        def flush_first(*arguments: Any) -> Any:
            log.read = read  # type: ignore[method-assign]
            for number in range(10, 20):  # each in a file of its own
                lake.send([make_event("s", number, payload={"text": LONG})])
            lake.writer().drain()
            return read(*arguments)

        log.read = flush_first  # type: ignore[method-assign, assignment]
        total = totals(lake)
        assert (total.accepted, total.stored, total.waiting) == (12, 12, 0)


def test_rows_are_by_tenant_source_and_hour_of_arrival(lake: HandLake) -> None:
    first_hour = lake.clock.now_us() - lake.clock.now_us() % HOUR_US
    lake.store([make_event("s", 1, source="a"), make_event("s", 2, source=None)])
    lake.clock.advance(3600)
    lake.store([make_event("s", 3, source="a")], "umbrella")
    rows = read_ledger(lake.lake).rows
    assert [(row.tenant, row.source, row.hour - first_hour, row.stored) for row in rows] == [
        ("default", "", 0, 1),
        ("default", "a", 0, 1),
        ("umbrella", "a", HOUR_US, 1),
    ]
    late = read_ledger(lake.lake, first_hour + HOUR_US + 5)
    assert [row.tenant for row in late.rows] == ["umbrella"]
    assert late.discrepancies == []


def test_compaction_changes_nothing(lake: HandLake) -> None:
    for number in range(4):
        lake.store([make_event("s", number), make_event("s", 0)])
    before = totals(lake)
    merge(lake.lake, current(lake.lake.database).segments)
    assert totals(lake) == before


@pytest.mark.parametrize("tampering", ["ledger", "segment", "deleted"])
def test_a_row_that_was_tampered_with_is_found_and_the_command_exits_1(
    tmp_path: Path, tampering: str
) -> None:
    with hand_lake(tmp_path) as lake:
        lake.store([make_event("s", number) for number in range(5)])
        change = {
            "ledger": sa.update(ledger).values(stored=ledger.c.stored - 1),
            "segment": sa.update(segment).values(rows=segment.c.rows + 1),
            "deleted": sa.delete(segment),
        }[tampering]
        with lake.lake.database.write() as connection:
            connection.execute(change)
        assert read_ledger(lake.lake).discrepancies
    done = penstock("ledger", "--json", "--data", str(tmp_path))
    assert done.returncode == 1
    assert json.loads(done.stdout)["discrepancies"]


def test_a_gap_counts_until_somebody_accepts_it(tmp_path: Path) -> None:
    def ask(*arguments: str) -> tuple[int, Any]:
        done = penstock("ledger", "--json", "--data", str(tmp_path), *arguments)
        return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr

    with hand_lake(tmp_path) as lake:
        lake.store([make_event("s", 0)])
    (tmp_path / "log").rename(tmp_path / "old")
    with hand_lake(tmp_path) as lake:
        lake.store([make_event("s", 1)])
    status, found = ask()
    assert (status, len(found["discrepancies"])) == (1, 1)
    assert ask("--accept-gap", "1")[0] == 2
    assert ask("--accept-gap", "2", "--reason", "it was a test")[0] == 2
    status, found = ask("--accept-gap", "1", "--reason", "it was a test")
    assert (status, found["discrepancies"]) == (0, [])
    assert found["gaps"][0]["accepted_why"] == "it was a test"
    assert ask()[0] == 0


def test_what_waits_is_told_with_since_when_and_why(tmp_path: Path) -> None:
    with hand_lake(tmp_path) as lake:
        lake.store([make_event("s", 0)])
        assert read_ledger(lake.lake).waiting is None
        since = lake.clock.now_us()
        lake.send([make_event("s", 1), make_event("s", 2)])
        lake.clock.advance(60)
        lake.send([make_event("s", 3)])
        waiting = read_ledger(lake.lake, tenant="default").waiting
        assert waiting is not None
        assert (waiting.events, waiting.since_at) == (3, since)
        assert waiting.why.startswith("no writer is running")
        assert read_ledger(lake.lake, tenant="umbrella").waiting is None
        held = sa.update(log_partition).values(owner="w", lease_until=2**62)
        with lake.lake.database.write() as connection:
            connection.execute(held)
        held_up = read_ledger(lake.lake).waiting
        assert held_up is not None
        assert not held_up.why.startswith("no writer")
    done = penstock("ledger", "--data", str(tmp_path))
    assert "3 events wait in the log since 20" in done.stderr
