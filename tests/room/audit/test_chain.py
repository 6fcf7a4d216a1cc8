"""The audit's chain: each change, removal, insertion and exchange of an entry is found."""

import hashlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from penstock.backends.audit.chain import (
    DeedTally,
    append,
    audit_entry,
    check_audit,
    count_aged,
    cut_aged,
    entries_of,
    heads_of,
    record,
)
from penstock.backends.audit.entry import Deed, Head, person_digest
from penstock.backends.audit.hash_chain import chain_head
from penstock.backends.database.engine import Database
from penstock.core.lake_keys import SIGNING_KEY_NAME, SigningKey
from penstock.core.settings import Settings, load_settings
from penstock.lake.lake import open_or_make

ENTRIES = 7


@pytest.fixture
def database(each_database: None, tmp_path: Path) -> Iterator[Database]:
    # Heads in a database on a server are signed only where the operator names a key.
    SigningKey.of(Settings(data=tmp_path)).sign({})
    named = {"PENSTOCK_SIGNING_KEY_FILE": str(tmp_path / SIGNING_KEY_NAME)}
    with open_or_make(load_settings(tmp_path, environment=named)) as lake:
        yield lake.database


def deed(number: int = 0, tenant: str = "acme") -> Deed:
    facts: dict[str, str | int | None] = {"number": number, "none": None}
    return Deed(tenant, "key 1", "read", "sessions", facts)


@pytest.fixture
def chain(database: Database) -> Database:
    for number in range(ENTRIES):
        record(database, deed(number))
    record(database, deed(tenant="bolt"))
    assert flawed(database) == set()
    return database


def flaw_of(database: Database, kept: Head | None = None, tenant: str = "acme") -> int | None:
    [(_, _, flaw)] = check_audit(database, tenant, kept)
    return flaw.number if flaw else None


def heads(database: Database) -> list[tuple[str, Head]]:
    with database.read() as connection:
        return heads_of(connection)


def flawed(database: Database) -> set[str]:
    return {tenant for tenant, _, flaw in check_audit(database) if flaw}


def change(database: Database, *statements: Any) -> None:
    with database.write() as connection:
        for statement in statements:
            connection.execute(statement)


def own(number: int) -> Any:
    return (audit_entry.c.tenant == "acme") & (audit_entry.c.number == number)


OTHER: dict[str, object] = {
    "at": 1, "actor": "key 2", "action": "erase", "subject": "another", "facts": "{}",
    "previous_hash": "1" * 64, "hash": "0" * 64,
}  # fmt: skip


def test_a_change_of_any_column_is_found(chain: Database) -> None:
    for entry in entries_of(chain, "acme"):
        for column, other in OTHER.items():
            update = sa.update(audit_entry).where(own(entry.number))
            change(chain, update.values({column: other}))
            assert flaw_of(chain) == entry.number, (entry.number, column)
            change(chain, update.values({column: getattr(entry, column)}))
    assert flaw_of(chain) is None


def test_each_removed_entry_is_found(chain: Database) -> None:
    for entry in entries_of(chain, "acme"):
        change(chain, sa.delete(audit_entry).where(own(entry.number)))
        assert flaw_of(chain) == entry.number
        change(chain, sa.insert(audit_entry).values(entry._asdict()))
    assert flaw_of(chain) is None


def test_an_entry_of_another_tenant_is_found(chain: Database) -> None:
    moved = sa.update(audit_entry).where(own(ENTRIES)).values(tenant="cord", number=1)
    change(chain, moved)
    assert flaw_of(chain) == ENTRIES
    assert flaw_of(chain, tenant="cord") == 1
    assert flawed(chain) == {"acme", "cord"}


def renumbered(before: int, after: int) -> Any:
    return sa.update(audit_entry).where(own(before)).values(number=after)


@pytest.mark.parametrize(
    ("statements", "number"),
    [
        ([renumbered(3, 99), renumbered(4, 3), renumbered(99, 4)], 3),
        ([sa.delete(audit_entry).where(own(6) | own(7))], 6),
        ([sa.delete(chain_head).where(chain_head.c.tenant == "acme")], ENTRIES + 1),
    ],
    ids=["exchanged", "cut", "no head"],
)
def test_entries_that_are_not_where_they_were_are_found(
    chain: Database, statements: list[Any], number: int
) -> None:
    change(chain, *statements)
    assert flaw_of(chain) == number
    assert flawed(chain) == {"acme"}


def make_anew(database: Database, chained: Callable[[int], Deed], entries: int) -> None:
    """What somebody can do who writes into the database and knows how it is chained."""
    change(
        database,
        sa.delete(audit_entry).where(audit_entry.c.tenant == "acme"),
        sa.delete(chain_head).where(chain_head.c.tenant == "acme"),
    )
    for number in range(entries):
        record(database, chained(number))


@pytest.mark.parametrize("entries", [ENTRIES - 2, ENTRIES, ENTRIES + 2])
def test_a_chain_that_was_made_anew_is_found_by_a_noted_head(chain: Database, entries: int) -> None:
    [(_, noted), _] = heads(chain)
    record(chain, deed(ENTRIES))
    assert flaw_of(chain, noted) is None
    make_anew(chain, lambda number: deed(number + (number == 2)), entries)
    assert flaw_of(chain) is None
    assert flaw_of(chain, noted) == min(entries + 1, ENTRIES)


def test_an_entry_stands_if_its_deed_does(database: Database) -> None:
    def do_and_fail() -> None:
        with database.write() as connection:
            append(connection, deed())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        do_and_fail()
    assert heads(database) == []


def test_processes_append_to_one_chain(database: Database) -> None:
    def work(tenant: str, other: str) -> None:
        for number in range(20):
            record(database, deed(number, tenant), deed(number, other))

    pairs = [("acme", "bolt"), ("bolt", "acme")] * 2
    threads = [threading.Thread(target=work, args=pair) for pair in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(tenant, head.number) for tenant, head in heads(database)] == [
        ("acme", 80), ("bolt", 80),
    ]  # fmt: skip
    assert flawed(database) == set()


def test_entries_are_hashed_as_documented(chain: Database) -> None:
    [entry] = entries_of(chain, "acme", limit=1)
    columns = entry._asdict()
    claimed = columns.pop("hash")
    text = msgspec.json.encode(dict(sorted(columns.items())))
    assert hashlib.sha256(text).hexdigest() == claimed


def test_pages_hold_each_entry_once(chain: Database) -> None:
    seen: list[tuple[str, int]] = []
    while page := entries_of(chain, None, limit=3, before=seen[-1] if seen else None):
        seen += [(entry.tenant, entry.number) for entry in page]
    assert seen == [*(("acme", number) for number in range(ENTRIES, 0, -1)), ("bolt", 1)]


@pytest.mark.parametrize("text", ["\0", "\ud800", "é\u202e", "x" * 10_000])
def test_any_text_can_be_noted(database: Database, text: str) -> None:
    record(database, Deed("acme", text, "read", text))
    assert flaw_of(database) is None


def test_what_is_counted_is_noted_once(database: Database) -> None:
    tally = DeedTally()
    for _ in range(3):
        tally.count("acme", "key 1", "ingest", accepted=5, rejected=1)
    tally.count("bolt", "key 2", "ingest", accepted=1, rejected=0)
    tally.flush(database)
    tally.flush(database)
    facts = [msgspec.json.decode(entry.facts) for entry in entries_of(database, None)]
    assert facts == [
        {"accepted": 15, "rejected": 3, "times": 3}, {"accepted": 1, "rejected": 0, "times": 1},
    ]  # fmt: skip


def test_digests_of_people_tell_tenants_apart() -> None:
    digests = {
        person_digest(tenant, kind, "s-1") for tenant in ("a", "b") for kind in ("session", "user")
    }
    assert len(digests) == 4


def test_a_chain_that_retention_cut_is_verified_from_there_on(chain: Database) -> None:
    at = {entry.number: (entry.at, entry.hash) for entry in entries_of(chain, "acme")}
    assert count_aged(chain, "acme", at[4][0]) >= 4
    for entry, other in ((3, 2**60), (6, 1)):  # so that less or more seems to be old
        change(chain, sa.update(audit_entry).where(own(entry)).values(at=other))
        assert cut_aged(chain, "acme", at[4][0]) == 0
        change(chain, sa.update(audit_entry).where(own(entry)).values(at=at[entry][0]))
    removed = cut_aged(chain, "acme", at[4][0])
    left = [entry.number for entry in entries_of(chain, "acme")]
    assert len(left) == ENTRIES - removed
    assert flaw_of(chain) is None
    assert flaw_of(chain, tenant="bolt") is None
    record(chain, deed(99))
    assert flaw_of(chain) is None
    cut = removed
    assert flaw_of(chain, Head(cut, at[cut][1])) is None
    assert flaw_of(chain, Head(cut, "1" * 64)) == cut
    cut_aged(chain, "acme", 2**60)  # the newest entry always stays
    assert len(entries_of(chain, "acme")) == 1
    assert flaw_of(chain) is None


def test_whoever_cuts_a_chain_by_hand_is_found(chain: Database) -> None:
    [third] = [entry for entry in entries_of(chain, "acme") if entry.number == 3]
    cut = {"cut_number": 3, "cut_hash": third.hash}
    gone = sa.delete(audit_entry).where(
        audit_entry.c.tenant == "acme", audit_entry.c.number <= third.number
    )
    change(chain, gone, sa.update(chain_head).where(chain_head.c.tenant == "acme").values(**cut))
    assert flaw_of(chain) == ENTRIES
