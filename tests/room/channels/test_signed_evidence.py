"""Whoever writes to the database can make all hashes anew, and is found by the signatures."""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.backends.audit.chain import audit_chain, audit_entry, flaws_of
from penstock.backends.audit.entry import NO_HASH, hash_of
from penstock.backends.audit.signed_heads import signed_head
from penstock.backends.database.engine import Database
from penstock.core.lake_keys import OLD_KEYS_SUFFIX, HeadKeys, SigningKey
from penstock.core.settings import load_settings
from penstock.registry.channels.change import HistoryDamaged
from penstock.registry.channels.history import change_of, verify_history
from penstock.registry.channels.promotion import judge
from penstock.registry.channels.tables import channel, channel_change
from penstock.registry.checkpoints.tables import benchmark_attempt, benchmark_journal
from tests.room.channels.test_bound_evidence import prepared
from tests.support.checkpoint_factory import TENANT, promote
from tests.support.lakes import open_by_hand


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with open_by_hand(tmp_path).lake as lake:
        yield lake.database


def by_hand(connection: Connection) -> None:
    """Without the triggers that keep evidence."""
    triggers = sa.text("SELECT name FROM sqlite_master WHERE type = 'trigger'")
    for name in connection.execute(triggers).scalars().all():
        connection.exec_driver_sql(f"DROP TRIGGER {name}")


def forge_journal(connection: Connection) -> None:
    """All scores are 1, in the rows and in the journal, with the hashes that belong to them."""
    connection.execute(sa.update(benchmark_attempt).values(score=1.0))
    columns, before = benchmark_journal.c, NO_HASH
    query = sa.select(benchmark_journal).where(columns.checkpoint == "two").order_by(columns.number)
    for row in connection.execute(query).mappings().all():
        document = json.loads(row["document"])
        for values in document.get("rows", ()):
            values[document["fields"].index("score")] = 1.0
        entry = dict(row) | {"document": json.dumps(document, separators=(",", ":"))}
        entry["hash"] = hash_of(entry | {"previous_hash": before})
        mine = sa.and_(columns.checkpoint == "two", columns.number == row["number"])
        connection.execute(sa.update(benchmark_journal).where(mine).values(**entry))
        before = entry["hash"]


def forge_history(connection: Connection) -> None:
    """Somebody else did it all."""
    before = NO_HASH
    rows = connection.execute(sa.select(channel_change).order_by(channel_change.c.version))
    for change in map(change_of, rows.all()):
        forged = replace(change, actor="nobody", previous_hash=before, hash="").sealed()
        mine = channel_change.c.version == change.version
        connection.execute(sa.update(channel_change).where(mine).values(**asdict(forged)))
        before = forged.hash
    connection.execute(sa.update(channel).values(hash=before))


def forge_audit(connection: Connection) -> None:
    before, columns = NO_HASH, audit_entry.c
    mine = columns.tenant == TENANT
    query = sa.select(audit_entry).where(mine).order_by(columns.number)
    for row in connection.execute(query).mappings().all():
        entry = dict(row) | {"actor": "nobody", "previous_hash": before}
        entry["hash"] = before = hash_of(entry)
        own = mine & (columns.number == row["number"])
        connection.execute(sa.update(audit_entry).where(own).values(**entry))
    own = audit_chain.c.tenant == TENANT
    connection.execute(sa.update(audit_chain).where(own).values(hash=before))


def test_a_verdict_that_was_forged_with_all_its_hashes_is_an_error(database: Database) -> None:
    prepared(database)
    assert judge(database, TENANT, "production", "two").outcome == "FAIL"
    with database.write() as connection:
        by_hand(connection)
        forge_journal(connection)
    verdict = judge(database, TENANT, "production", "two")
    assert verdict.outcome == "ERROR"
    assert "as it was signed" in str(verdict.document)


def test_a_history_that_was_forged_takes_no_promotion(database: Database) -> None:
    prepared(database)
    assert verify_history(database, TENANT, "production") is None
    with database.write() as connection:
        by_hand(connection)
        forge_history(connection)
    found = verify_history(database, TENANT, "production")
    assert found is not None
    assert "was signed" in found.why
    with pytest.raises(HistoryDamaged):
        promote(database, "two")


def test_an_audit_that_was_forged_is_found(database: Database) -> None:
    prepared(database)
    assert flaws_of(database, TENANT)[1] == []
    with database.write() as connection:
        by_hand(connection)
        forge_audit(connection)
    [flaw] = flaws_of(database, TENANT)[1]
    assert "was signed" in flaw.why


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda c: c.execute(sa.delete(signed_head)), "is not signed"),
        (lambda c: c.execute(sa.update(signed_head).values(hash="0" * 64)), "not by a key"),
    ],
)
def test_a_head_without_its_signature_is_none(
    database: Database, change: Callable[[Connection], object], why: str
) -> None:
    prepared(database)
    with database.write() as connection:
        change(connection)
    [flaw] = flaws_of(database, TENANT)[1]
    assert why in flaw.why


def test_after_a_rotation_the_old_key_counts_while_its_public_half_is_kept(tmp_path: Path) -> None:
    settings = load_settings(tmp_path, environment={})
    key = SigningKey.of(settings)
    signed = key.sign({"number": 1})
    key.file.unlink()
    assert not HeadKeys(SigningKey.of(settings)).have_signed(signed)
    old = key.file.with_name(key.file.name + OLD_KEYS_SUFFIX)
    old.write_text(SigningKey(tmp_path / "another.key").public.pem + key.public.pem)
    rotated = HeadKeys(SigningKey.of(settings))
    assert rotated.have_signed(signed)
    assert not rotated.have_signed(signed | {"number": 2})
