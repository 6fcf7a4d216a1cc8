"""Refused lines are kept with their reason, and can be sent again."""

import hashlib
import json
from pathlib import Path

import pytest
import sqlalchemy as sa

from penstock.ingest import gateway
from penstock.ingest.ledger import read_ledger
from penstock.ingest.rejected_lines import list_rejected, read_rejected, replay_rejected
from penstock.ingest.tables import rejected
from tests.support.lakes import HandLake, hand_lake, make_event

pytestmark = pytest.mark.usefixtures("each_database")

BAD = b'{"session_id": "s", "source": "ide", "ts": 1, "type": "user_message"}'


def mend(lake: HandLake, *number: int) -> None:
    """As if a newer Penstock accepted what this one refuses: kept lines become an event."""
    raw = json.dumps(make_event("mended", 1)).encode()
    with lake.lake.store.create(name := "rejected/mended.lines") as file:
        file.write(raw)
    with lake.lake.database.write() as connection:
        place = {"file": name, "start": 0, "length": len(raw)}
        place["sha256"] = hashlib.sha256(raw).hexdigest()
        change = sa.update(rejected).values(**place)
        connection.execute(change.where(rejected.c.line.in_(number)) if number else change)


def test_a_refused_line_is_kept_whole_with_its_reason_place_and_source(lake: HandLake) -> None:
    good = json.dumps(make_event("s", 1)).encode()
    lake.store(b"\n".join([good, BAD, b"not json", good]), "acme")
    newest, oldest = list_rejected(lake.lake, limit=10)
    assert (oldest.tenant, oldest.source, oldest.line, oldest.raw) == ("acme", "ide", 2, BAD)
    assert oldest.received_at == lake.clock.now_us()
    assert "payload" in oldest.reason
    assert (newest.line, newest.raw, newest.truncated) == (3, b"not json", False)
    assert read_rejected(lake.lake, oldest.id) == oldest
    assert list_rejected(lake.lake, limit=1) == [newest]


def test_replay_takes_what_is_accepted_now_and_refuses_the_rest_again(lake: HandLake) -> None:
    lake.store(b"\n".join([BAD, BAD]), "acme")
    mend(lake, 1)
    again, mended = list_rejected(lake.lake, limit=10)
    outcome = replay_rejected(lake.lake, lake.clock)
    assert outcome.accepted == 1
    assert list(outcome.refused) == [again.id]
    lake.store()
    assert lake.stored() == {("acme", "mended", "e1"): 1}
    assert list_rejected(lake.lake, limit=10) == [again]
    assert [e.id for e in list_rejected(lake.lake, 10, replayed=True)] == [again.id, mended.id]
    assert read_ledger(lake.lake).discrepancies == []


def test_a_replay_that_was_killed_before_it_was_noted_adds_nothing_when_repeated(
    lake: HandLake,
) -> None:
    lake.store(BAD)
    mend(lake, 1)
    replay_rejected(lake.lake, lake.clock)
    with lake.lake.database.write() as connection:
        connection.execute(sa.update(rejected).values(replayed_at=None))
    assert replay_rejected(lake.lake, lake.clock).accepted == 1
    lake.store()
    assert set(lake.stored().values()) == {1}


def test_of_a_long_line_only_the_beginning_is_kept_and_it_is_not_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "REJECTED_LINE_BYTES_MAX", 100)
    with hand_lake(tmp_path) as lake:
        lake.store(BAD + b" " * 1000)
        [entry] = list_rejected(lake.lake, limit=10)
        assert (len(entry.raw), entry.truncated) == (100, True)
        assert replay_rejected(lake.lake, lake.clock).refused == {
            entry.id: "only its beginning was stored"
        }


def test_more_lines_than_one_batch_are_all_sent_again(lake: HandLake) -> None:
    lake.store(b"\n".join([BAD] * 1200))
    mend(lake)
    assert replay_rejected(lake.lake, lake.clock).accepted == 1200
    lake.store()
    assert lake.stored() == {("default", "mended", "e1"): 1}
    assert list_rejected(lake.lake, limit=10) == []


def test_a_flood_of_refused_lines_is_flushed_by_size_as_events_are(tmp_path: Path) -> None:
    """What waits to be rejected is held in memory too, and so it is bounded the same way."""
    limits = {"flush_bytes_max": 100_000, "rejected_ratio_max": 1.0}
    with hand_lake(tmp_path, **limits) as lake:
        for _ in range(20):
            lake.send(b"\n".join([b"x" * 1000] * 50))
        flushes: list[str] = []
        lake.writer(flushes.append).drain()
        assert flushes.count("committed") >= 10
        assert len(list_rejected(lake.lake, limit=2000)) == 1000
