"""What is older than a rule says goes, whole, and what is pinned stays until it is not."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from penstock.access.privacy.aged_sessions import EVENTS
from penstock.access.privacy.consents import decide_consent
from penstock.access.privacy.erasure import carry_out, list_erasures, order_erasure
from penstock.access.privacy.orders import ErasureScope
from penstock.access.privacy.retention import (
    DAY_SECONDS,
    RetentionCount,
    RetentionScope,
    keep_to_rules,
    list_rules,
    run_rules,
    set_rule,
)
from penstock.access.tables import erasure_session, retention_run
from penstock.backends.audit.chain import entries_of
from penstock.core.errors import InvalidInput
from penstock.core.metrics import Metrics
from penstock.ingest.ledger import read_ledger
from penstock.ingest.rejected_lines import list_rejected
from penstock.ingest.tables import rejected
from penstock.lake.catalog import create_snapshot, current, drop_snapshot
from penstock.lake.tables import consent_change, session_link
from penstock.lake.upkeep.merges import merge
from penstock.lake.upkeep.rounds import collect
from penstock.lake.upkeep.verification import verify
from tests.support.commands import penstock
from tests.support.cut_off import CutOff, ended_after
from tests.support.engine_lake import fill
from tests.support.lakes import START_US, Event, HandLake, hand_lake, make_event

MARKER = "planted-marker-7f3a"
#: Older than 20 years for long, and what a lake of a test is given is younger for long.
OLD, OLDER = "2001-02-01T00:00:00Z", "2001-01-01T00:00:00Z"
DAYS = 20 * 365
SESSIONS = "select session_id from sessions order by 1"


def old_event(session: str, number: int, **fields: Any) -> Event:
    return make_event(session, number, **{"ts": OLD, "payload": {"text": MARKER}, **fields})


def keep(lake: HandLake, days: int | None, kind: str = "events", **how: Any) -> None:
    age_s = None if days is None else days * DAY_SECONDS
    options: dict[str, Any] = {"tenant": "", "breaks_snapshots": False, "by": "tester", **how}
    set_rule(lake.lake, kind, age_s, **options)


def run(lake: HandLake, **how: Any) -> dict[tuple[str, str], RetentionCount]:
    return {(each.tenant, each.kind): each.count for each in run_rules(lake.lake, **how)}


def sessions(lake: HandLake, **how: Any) -> list[str]:
    return [row["session_id"] for row in lake.rows(SESSIONS, **how)]


def with_marker(data: Path) -> list[Path]:
    files = (path for path in data.rglob("*") if path.is_file())
    return [path for path in files if MARKER.encode() in path.read_bytes()]


@pytest.mark.usefixtures("each_database")
def test_a_session_goes_as_a_whole_when_its_last_event_is_older(
    lake: HandLake, tmp_path: Path
) -> None:
    lake.store([old_event("old", n) for n in range(5)])
    lake.store([old_event("goes-on", 1, ts=OLDER), make_event("new", 1)])
    lake.store([make_event("goes-on", 2), old_event("old", 7)])
    keep(lake, DAYS)
    [dry] = run(lake, dry=True).values()
    assert (dry.sessions, dry.rows) == (1, 6)
    assert dry.bytes > 0
    assert sessions(lake) == ["goes-on", "new", "old"]
    [done] = run(lake).values()
    assert done == dry
    assert sessions(lake) == ["goes-on", "new"]
    assert lake.rows("select count(*) as n from events") == [{"n": 3}]
    assert verify(lake.lake).findings == []
    ledger = read_ledger(lake.lake)
    assert ledger.discrepancies == []
    assert sum(row.erased for row in ledger.rows) == 6
    [entry] = entries_of(lake.lake.database, "default", action="retention")
    assert entry.subject == "events"
    assert [each.rows for each in run(lake).values()] == [0]
    collect(lake.lake, grace_s=0)
    assert not any(MARKER.encode() in path.read_bytes() for path in tmp_path.rglob("old*"))


def test_what_a_snapshot_sees_stays_until_it_is_dropped(lake: HandLake, tmp_path: Path) -> None:
    lake.store([old_event("old", 1), make_event("new", 1)])
    lake.store([old_event("old", 2), make_event("new", 2)])
    create_snapshot(lake.lake.database, "before")
    merge(lake.lake, current(lake.lake.database).segments)
    keep(lake, DAYS)
    count = run(lake)["default", "events"]
    assert (count.sessions, count.rows) == (1, 2)
    assert count.held.keys() == {"before"}
    assert count.held["before"] > 0
    collect(lake.lake, grace_s=0)
    assert sessions(lake) == ["new"]
    assert sessions(lake, as_of="before") == ["new", "old"]
    drop_snapshot(lake.lake.database, "before")
    collect(lake.lake, grace_s=0)
    collect(lake.lake, grace_s=0)
    assert [each.held for each in run(lake).values()] == [{}]
    assert [path.name for path in with_marker(tmp_path / "lake")] == []
    assert verify(lake.lake).findings == []


def test_a_rule_may_break_snapshots(lake: HandLake, tmp_path: Path) -> None:
    lake.store([old_event("old", 1), make_event("new", 1)])
    create_snapshot(lake.lake.database, "before")
    lake.store([make_event("new", 2)])
    merge(lake.lake, current(lake.lake.database).segments)
    keep(lake, DAYS, breaks_snapshots=True)
    assert run(lake)["default", "events"].held == {}
    assert sessions(lake) == sessions(lake, as_of="before") == ["new"]
    assert verify(lake.lake).findings == []
    assert with_marker(tmp_path / "lake") == []


def test_rewards_and_records_go_with_their_sessions(lake: HandLake) -> None:
    fill(lake)
    of_session = "select count(*) as n from rewards"
    assert lake.rows(of_session)[0]["n"] > 0
    lake.store([make_event("later", 1, ts="2026-11-22T00:00:00Z")])
    link = {"tenant": "default", "session_id": "s01", "parent_session": "s00", "link": "fork"}
    consent = {"tenant": "default", "session_id": "s01", "added_snap": 1, "consent": "train"}
    create_snapshot(lake.lake.database, "before")
    with lake.lake.database.write() as connection:
        connection.execute(sa.insert(session_link).values(**link))
        connection.execute(sa.insert(consent_change).values(**consent))
    scope = RetentionScope("default", START_US + 3_600_000_000)
    assert EVENTS.run(lake.lake, scope).sessions == 12
    assert lake.rows(of_session) == [{"n": 0}]
    assert lake.rows(of_session, as_of="before")[0]["n"] > 0

    def records() -> list[int]:
        with lake.lake.database.read() as connection:
            tables = (session_link, consent_change, erasure_session)
            counts = (sa.select(sa.func.count()).select_from(table) for table in tables)
            return [connection.execute(count).scalar_one() for count in counts]

    assert records() == [1, 1, 12]  # the snapshot's readers ask for them
    drop_snapshot(lake.lake.database, "before")
    collect(lake.lake, grace_s=0)
    EVENTS.run(lake.lake, scope)
    assert records() == [0, 0, 0]
    assert verify(lake.lake).findings == []


def test_what_was_let_go_does_not_come_back_and_what_goes_on_does(lake: HandLake) -> None:
    old = [old_event("old", n) for n in range(3)]
    lake.store(old)
    keep(lake, DAYS)
    run(lake)
    lake.store([*old, old_event("old", 9)])
    assert lake.stored() == {}
    lake.store([make_event("old", 20)])  # resumed
    assert sessions(lake) == ["old"]
    assert read_ledger(lake.lake).discrepancies == []
    # With another rule it may come back.
    keep(lake, None)
    lake.store(old)
    assert lake.rows("select count(*) as n from events") == [{"n": 4}]


def test_an_erased_session_stays_out_whatever_its_age(lake: HandLake) -> None:
    lake.store([old_event("old", 1)])
    keep(lake, DAYS)
    run(lake)
    scope = ErasureScope("default", "session", "old", START_US + 10**12)
    carry_out(lake.lake, order_erasure(lake.lake, scope, reason="", by="tester"))
    lake.store([make_event("old", 20)])
    assert lake.stored() == {}


def test_sessions_that_may_not_be_trained_on_go_at_once(tmp_path: Path) -> None:
    start = {"payload": {"consent": "no_train", "system": MARKER}}
    with hand_lake(tmp_path) as lake:
        keep(lake, 0, "no_train")
        lake.store([make_event("kept", 1), make_event("kept", 2, user="u-2")])
        assert run(lake) == {("default", "no_train"): RetentionCount()}
        said = [make_event("said", 1, "session_start", **start), make_event("said", 2)]
        lake.store([*said, make_event("named", 1, user="u-1"), make_event("named", 2)])
        decide_consent(lake.lake.database, "default", "user", "u-1", "no_train", reason="", by="t")
        assert run(lake, dry=True)["default", "no_train"].sessions == 2
        assert keep_to_rules(lake.lake, Metrics()) == "removed 4 rows by retention"
        assert sessions(lake) == ["kept"]
        lake.store([make_event("said", 3)])  # it is as old as what went
        assert keep_to_rules(lake.lake, Metrics()) is None
        assert sessions(lake) == ["kept"]
        assert read_ledger(lake.lake).discrepancies == []
        collect(lake.lake, grace_s=0)
        assert with_marker(tmp_path / "lake") == []


def test_a_tenants_own_rule_stands_before_that_of_all(lake: HandLake) -> None:
    for tenant in ("default", "acme", "bolt"):
        lake.store([old_event("old", 1)], tenant=tenant)
    keep(lake, DAYS)
    keep(lake, None, tenant="acme")
    keep(lake, 2 * DAYS, tenant="bolt")
    assert run(lake).keys() == {("default", "events"), ("bolt", "events")}
    assert {tenant for tenant, _, _ in lake.stored()} == {"acme", "bolt"}
    assert [rule.tenant for rule in list_rules(lake.lake)] == ["", "acme", "bolt"]
    for kind, age_s in (("everything", DAY_SECONDS), ("events", 60), ("events", 10**12)):
        with pytest.raises(InvalidInput):
            set_rule(lake.lake, kind, age_s, tenant="", breaks_snapshots=False, by="tester")


def test_rejected_lines_and_reports_of_erasures_go_by_their_age(lake: HandLake) -> None:
    lake.store(b"not json at all")
    scope = ErasureScope("default", "session", "other", START_US)
    carry_out(lake.lake, order_erasure(lake.lake, scope, reason="of somebody", by="tester"))
    for kind in ("rejected", "erasures"):
        keep(lake, DAYS, kind)
    assert [each.rows for each in run(lake).values()] == [0, 0]
    with lake.lake.database.write() as connection:
        connection.execute(sa.update(rejected).values(received_at=1))
        connection.execute(sa.text("update erasure set finished_at = 1"))
    assert [each.rows for each in run(lake).values()] == [1, 1]
    assert list_rejected(lake.lake, limit=9) == []
    assert list_erasures(lake.lake) == []


def test_upkeep_runs_a_rule_once_a_day(lake: HandLake) -> None:
    lake.store([old_event("a", 1)])
    keep(lake, DAYS)
    assert keep_to_rules(lake.lake, Metrics()) == "removed 1 rows by retention"
    lake.store([old_event("b", 1)])
    assert keep_to_rules(lake.lake, Metrics()) is None
    assert len(lake.stored()) == 1
    with lake.lake.database.write() as connection:
        connection.execute(sa.update(retention_run).values(ended_at=1))
    assert keep_to_rules(lake.lake, Metrics()) is not None


def test_the_commands(tmp_path: Path) -> None:
    with hand_lake(tmp_path) as lake:
        lake.store([old_event("old", 1)])
    place = ("--data", str(tmp_path), "--json")
    assert penstock("retention", "set", "events", "9000d", *place).returncode == 0
    assert penstock("retention", "set", "events", "soon", *place).returncode == 2
    [rule] = json.loads(penstock("retention", "list", *place).stdout)
    assert (rule["kind"], rule["age_s"]) == ("events", 9000 * DAY_SECONDS)
    for option, rows in (("--dry-run", 1), ("--no-dry-run", 1), ("--dry-run", 0)):
        asked = ("retention", "run", *place, *([option] if option == "--dry-run" else []))
        [outcome] = json.loads(penstock(*asked).stdout)
        assert outcome["count"]["rows"] == rows


@pytest.mark.parametrize("breaks", [True, False])
def test_a_run_that_was_killed_before_any_of_its_transactions_is_ended_by_the_next(
    lake: HandLake, *, breaks: bool
) -> None:
    for at in range(3):
        lake.store([old_event(f"o{at}", 1), make_event(f"k{at}", 1)])
    keep(lake, DAYS, breaks_snapshots=breaks)
    killed, ended = 0, False
    while not ended:
        with suppress(CutOff), ended_after(lake, killed):
            run(lake)
            ended = True
        killed += 1
    assert killed > 10
    assert sessions(lake) == ["k0", "k1", "k2"]
    assert verify(lake.lake).findings == []
    assert read_ledger(lake.lake).discrepancies == []
    run(lake)
    collect(lake.lake, grace_s=0)
    run(lake)
    with lake.lake.database.read() as connection:
        assert connection.execute(sa.select(erasure_session)).all() == []
