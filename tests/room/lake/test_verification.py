"""Each kind of damage is found, named, and nothing else is."""

from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

from penstock.backends.audit.chain import audit_entry, record
from penstock.backends.audit.entry import Deed
from penstock.backends.audit.hash_chain import chain_head
from penstock.lake.catalog import current
from penstock.lake.segments import make_filter, sessions_name
from penstock.lake.tables import ledger, segment
from penstock.lake.upkeep.merges import merge
from penstock.lake.upkeep.rounds import collect
from penstock.lake.upkeep.verification import verify
from penstock.registry.channels.tables import channel_change
from penstock.registry.checkpoints.tables import benchmark_journal
from penstock.registry.gate.tables import verdict
from tests.support.channels.forged_evidence import by_hand, prepared
from tests.support.lakes import HandLake, hand_lake, make_event

pytestmark = pytest.mark.usefixtures("each_database")


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 4
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def unreadable(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("which", ["events", "sessions"])
@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (flip, "its checksum does not match"),
        (cut, "bytes, the database says"),
        (Path.unlink, "missing"),
        (unreadable, "cannot be read"),
    ],
)
def test_a_damaged_file_is_found_among_whole_ones(
    lake: HandLake, tmp_path: Path, which: str, damage: Callable[[Path], None], problem: str
) -> None:
    for number in range(3):
        lake.store([make_event("s", number)])
    lake.summarise()
    assert verify(lake.lake).findings == []
    name = current(lake.lake.database).segments[1].name
    name = name if which == "events" else sessions_name(name)
    damage(tmp_path / "lake" / name)
    [finding] = verify(lake.lake).findings
    assert finding.name == name
    assert problem in finding.problem


@pytest.mark.parametrize("name", ["events/p-0000/who.parquet", "events/elsewhere/who.txt"])
def test_a_file_that_nobody_made_is_an_orphan_and_is_left_alone(
    lake: HandLake, tmp_path: Path, name: str
) -> None:
    lake.store([make_event("s", 1)])
    path = tmp_path / "lake" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"?")
    [finding] = verify(lake.lake).findings
    assert (finding.name, finding.problem[:6]) == (name, "orphan")
    collect(lake.lake, grace_s=0)
    assert path.exists()


@pytest.mark.parametrize(
    "tampering",
    [
        sa.update(segment).values(rows=segment.c.rows + 1),
        sa.update(segment).values(ts_min=segment.c.ts_min + 256),
        sa.update(segment).values(session_filter=make_filter(["none"])),
        sa.update(ledger).values(stored=ledger.c.stored + 1),
        sa.delete(segment),
    ],
    ids=["rows", "times", "sessions", "ledger", "deleted"],
)
def test_a_row_that_was_tampered_with_is_found(lake: HandLake, tampering: sa.Executable) -> None:
    lake.store([make_event("s", number) for number in range(5)])
    with lake.lake.database.write() as connection:
        connection.execute(tampering)
    assert verify(lake.lake).findings


def test_replaced_segments_are_checked_as_long_as_they_are_kept(
    lake: HandLake, tmp_path: Path
) -> None:
    for number in range(2):
        lake.store([make_event("s", number)])
    replaced = current(lake.lake.database).segments
    merge(lake.lake, replaced)
    assert verify(lake.lake).segments == 3
    flip(tmp_path / "lake" / replaced[0].name)
    assert [finding.name for finding in verify(lake.lake).findings] == [replaced[0].name]


def test_what_others_do_meanwhile_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flush, a merge and a collection between any two looks."""
    with hand_lake(tmp_path) as lake, hand_lake(tmp_path) as other:
        other.store([make_event("s", 0)])
        store, written = lake.lake.store, [1]

        def meanwhile() -> None:
            number = written[0] = written[0] + 1
            other.store([make_event("s", number)])
            merge(other.lake, current(other.lake.database).segments)
            collect(other.lake, grace_s=0)

        listed, opened = store.list, store.open

        def list_late(prefix: str = "") -> object:
            found = list(listed(prefix))
            meanwhile()
            return iter(found)

        def open_late(name: str) -> object:
            if written[0] < 6 and not name.endswith(".sessions.parquet"):
                monkeypatch.setattr(store, "open", opened)
                meanwhile()
                monkeypatch.setattr(store, "open", open_late)
            return opened(name)

        monkeypatch.setattr(store, "list", list_late)
        monkeypatch.setattr(store, "open", open_late)
        assert verify(lake.lake).findings == []
        assert written[0] > 3


def altered(column: sa.Column[str]) -> sa.Executable:
    return sa.update(column.table).values({column: column + " "})


@pytest.mark.parametrize(
    ("statement", "where"),
    [
        (altered(channel_change.c.reason), "the channel production of default, version 1"),
        (altered(verdict.c.document), "the channel production of default, version 2"),
        (altered(benchmark_journal.c.document), "the journal of one on core, entry 1"),
        (sa.delete(chain_head), "the channel production of default, version 3"),
        (sa.delete(benchmark_journal), "the journal of one on core, entry 1"),
    ],
    ids=["change", "verdict", "journal", "no heads", "no journal"],
)
def test_altered_evidence_is_found(lake: HandLake, statement: sa.Executable, where: str) -> None:
    prepared(lake.lake.database)
    assert verify(lake.lake).findings == []
    with by_hand(lake.lake.database) as connection:
        connection.execute(statement)
    assert where in [finding.name for finding in verify(lake.lake).findings]


def test_the_log_the_rejected_lines_and_the_audit_are_looked_at_too(
    lake: HandLake, tmp_path: Path
) -> None:
    lake.store(b"not json")
    record(lake.lake.database, Deed("default", "ann", "promote"))
    lake.send([make_event("s", 1)])
    lake.send([make_event("s", 2)])
    assert verify(lake.lake).findings == []
    [log_file, *_] = sorted((tmp_path / "log").rglob("*.log"), key=lambda p: -p.stat().st_size)
    content = bytearray(log_file.read_bytes())
    content[-10] ^= 1
    log_file.write_bytes(content)
    [rejected_file] = (tmp_path / "lake").rglob("*.lines")
    rejected_file.write_bytes(b"n")
    with lake.lake.database.write() as connection:
        connection.execute(sa.update(audit_entry).values(actor="bob"))
    findings = verify(lake.lake).findings
    assert len(findings) == 3
    problems = "\n".join(f"{finding.name}: {finding.problem}" for finding in findings)
    assert "bytes of the event log could not be read" in problems
    assert "1 of its 1 rejected lines are not as they were stored; the first is 1" in problems
    assert "the audit of tenant default, entry 1" in problems
    lake.store()
    assert {event for _, _, event in lake.stored()} == {"e1"}
