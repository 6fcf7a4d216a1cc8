"""Whoever writes to the database can make all hashes anew, and is found by the signatures: by
`gate check`, `promote`, `channels history`, `audit verify` and `prove`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from penstock.backends.audit.chain import check_audit, record
from penstock.backends.audit.entry import Deed
from penstock.backends.audit.hash_chain import Chain, chain_head
from penstock.backends.database.engine import Database
from penstock.core.endpoint import Caller
from penstock.core.lake_keys import OLD_KEYS_SUFFIX, HeadKeys, SigningKey
from penstock.core.settings import load_settings
from penstock.lake.lake import Lake
from penstock.registry.channels.change import HistoryDamaged
from penstock.registry.channels.history import verify_history
from penstock.registry.checkpoints.digests import text_digest
from penstock.registry.checkpoints.journal import read_journal
from penstock.registry.checkpoints.tables import checkpoint
from penstock.registry.gate.evidence import approve
from penstock.registry.gate.tables import gate_policy, verdict
from penstock.registry.proof.document import prove_checkpoint
from tests.support.channels.forged_evidence import (
    AUDIT,
    CHANNEL,
    POLICY,
    asked,
    by_hand,
    forge_actor,
    forge_scores,
    is_head_of,
    keep,
    prepared,
    put_back,
    scope_of,
    scored,
)
from tests.support.checkpoint_factory import TENANT, add, promote, set_policy
from tests.support.commands import penstock
from tests.support.lakes import open_by_hand

JOURNAL = scope_of("two").chain
NOT_A_KEY = "not by a key of this lake"


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with open_by_hand(tmp_path).lake as lake:
        prepared(lake.database)
        yield lake


@pytest.fixture
def database(lake: Lake) -> Database:
    return lake.database


def flaw_of(database: Database, chain: Chain) -> str | None:
    """By the command that checks this chain."""
    if chain is CHANNEL:
        flaw = verify_history(database, TENANT, "production")
    elif chain is AUDIT:
        [(_, _, flaw)] = check_audit(database, TENANT)
    else:
        with database.read() as connection:
            return read_journal(connection, scope_of("two")).damage
    return flaw.why if flaw is not None else None


def gaps(lake: Lake, part: str) -> list[str]:
    """What a proof of `one` cannot show of a part."""
    document = prove_checkpoint(lake, Caller(TENANT, "ann", is_admin=True), "one")
    return [gap["why"] for gap in document["gaps"] if gap["part"] == part]


def test_nothing_is_found_where_nothing_was_forged(lake: Lake) -> None:
    """Nor where a checkpoint has a name that looks like a channel in the audit."""
    add(lake.database, "channel production")
    place = {"channel": "production", "checkpoint": "channel production"}
    approve(lake.database, tenant=TENANT, actor="ann", reason="it looks good", **place)
    prove_checkpoint(lake, Caller(TENANT, "ann", is_admin=True), "channel production")
    assert asked(lake.database, "two").outcome == "FAIL"
    assert [flaw_of(lake.database, chain) for chain in (CHANNEL, AUDIT, JOURNAL)] == [None] * 3
    assert gaps(lake, "promotions") == gaps(lake, "audit") == []


def test_a_verdict_that_was_forged_with_all_its_hashes_is_an_error(database: Database) -> None:
    with by_hand(database) as connection:
        forge_scores(connection)
    judged = asked(database, "two")
    assert judged.outcome == "ERROR"
    assert NOT_A_KEY in str(judged.document["why"])


def test_an_outcome_alone_is_not_changed_unseen(lake: Lake) -> None:
    forged = sa.func.replace(verdict.c.document, '"outcome":"PASS"', '"outcome":"FAIL"')
    with by_hand(lake.database) as connection:
        connection.execute(sa.update(verdict).values(document=forged))
        [stored] = connection.execute(sa.select(verdict)).mappings()
        text = '{"outcome":"PASS","policy":"easy"}'  # and one that no change names
        added = dict(stored) | {"document": text, "id": text_digest(text)}
        connection.execute(sa.insert(verdict).values(added))
    assert "is missing or changed" in str(flaw_of(lake.database, CHANNEL))
    assert gaps(lake, "verdicts") == ["its document was changed"]
    document = prove_checkpoint(lake, Caller(TENANT, "ann", is_admin=True), "one")
    assert [shown["outcome"] for shown in document["verdicts"]] == [None]


def test_a_proof_tells_the_digest_that_was_promoted_from_another(lake: Lake) -> None:
    with lake.database.write() as connection:
        connection.execute(sa.update(checkpoint).filter_by(name="one").values(digest="sha256:0"))
    assert gaps(lake, "promotions")[0].startswith("version 2 points at sha256:")


def test_a_history_that_was_forged_opens_no_gate(lake: Lake) -> None:
    database = lake.database
    with by_hand(database) as connection:
        forge_actor(connection, CHANNEL)
    assert "when its hash was noted" in str(flaw_of(database, CHANNEL))  # by the audit
    judged = asked(database, "two")
    assert (judged.outcome, NOT_A_KEY in judged.document["why"][0]) == ("ERROR", True)
    with pytest.raises(HistoryDamaged):
        promote(database, "two")
    assert "version 2 was altered" in gaps(lake, "promotions")[0]


def test_an_easier_policy_is_not_slipped_in(database: Database) -> None:
    """Neither with all hashes, nor in the newest row alone, whose hash then is of another text."""
    easy = {"policy": set_policy(database, '[[require]]\nsuite = "core"\nmargin = 0.9\n').policy}
    set_policy(database, '[[require]]\nsuite = "core"\nmargin = 0.01\n')
    assert asked(database, "two").outcome == "FAIL"
    changes = CHANNEL.entries
    with by_hand(database) as connection:
        connection.execute(sa.update(changes).where(changes.c.version == 4).values(easy))
        assert connection.scalar(sa.select(sa.func.count()).select_from(gate_policy)) == 3
    assert asked(database, "two").outcome == "ERROR"
    with pytest.raises(HistoryDamaged, match="not the hash of its content"):
        promote(database, "two")


def test_an_audit_that_was_forged_is_found(lake: Lake) -> None:
    with by_hand(lake.database) as connection:
        forge_actor(connection, AUDIT)
    assert NOT_A_KEY in str(flaw_of(lake.database, AUDIT))
    [why] = gaps(lake, "audit")
    assert NOT_A_KEY in why


@pytest.mark.parametrize("chain", [CHANNEL, AUDIT, JOURNAL], ids=["channel", "audit", "journal"])
@pytest.mark.parametrize(
    ("change", "why"),
    [
        (sa.delete(chain_head), "the chain itself ends with 0"),
        (sa.update(chain_head).values(signature=None), "is not signed"),
        (sa.update(chain_head).values(signature="é:\0"), NOT_A_KEY),
        (sa.update(chain_head).values(at=1), NOT_A_KEY),
        (sa.update(chain_head).values(cut_number=1), "after 1 comes 1"),
    ],
    ids=["deleted", "unsigned", "garbage", "another time", "cut"],
)
def test_a_head_without_its_signature_is_none(
    database: Database, change: Any, why: str, chain: Chain
) -> None:
    with database.write() as connection:
        connection.execute(change.where(is_head_of(chain)))
    assert why in str(flaw_of(database, chain))


def append_to_each(database: Database) -> None:
    scored(database, "two", 1.0, range(1, 2))
    record(database, Deed(TENANT, "key 1", "read"))
    set_policy(database, f"{POLICY}# agreed again\n")


@pytest.mark.parametrize("chain", [CHANNEL, AUDIT, JOURNAL], ids=["channel", "audit", "journal"])
def test_what_comes_later_does_not_sign_what_was_forged(database: Database, chain: Chain) -> None:
    with by_hand(database) as connection:
        if chain is JOURNAL:
            forge_scores(connection)
        else:
            forge_actor(connection, chain)
    append_to_each(database)
    assert flaw_of(database, chain) is not None
    with database.read() as connection:
        signed = connection.scalar(sa.select(chain_head.c.signature).where(is_head_of(chain)))
    assert signed is None
    assert asked(database, "two").outcome == ("FAIL" if chain is AUDIT else "ERROR")


def test_an_older_history_that_is_put_back_is_found_by_the_audit(lake: Lake) -> None:
    database = lake.database
    kept = keep(database, CHANNEL)
    add(database, "three")
    promote(database, "three")
    with by_hand(database) as connection:
        put_back(connection, kept, CHANNEL)
    assert flaw_of(database, CHANNEL) == "the chain ends with 2, and 3 was noted"
    assert "3 was noted" in gaps(lake, "promotions")[0]


def test_an_older_journal_that_is_put_back_is_found_by_the_verdict_that_read_it(
    database: Database,
) -> None:
    kept = keep(database, scope_of("one").chain)
    scored(database, "one", 0.5, range(1, 2))
    add(database, "three")
    scored(database, "three")
    promote(database, "three", lambda _, name: asked(database, name), override=True)
    with by_hand(database) as connection:
        put_back(connection, kept, scope_of("one").chain)
    assert "of one on core" in str(flaw_of(database, CHANNEL))


def test_an_older_state_of_all_is_found_by_a_head_that_was_noted_elsewhere(
    database: Database,
) -> None:
    """No signature tells: it was signed."""
    kept = keep(database, AUDIT, CHANNEL)
    add(database, "three")
    promote(database, "three")
    [(_, noted, _)] = check_audit(database, TENANT)
    with by_hand(database) as connection:
        put_back(connection, kept, AUDIT, CHANNEL)
    assert [flaw_of(database, chain) for chain in (AUDIT, CHANNEL)] == [None, None]
    [(_, _, flaw)] = check_audit(database, TENANT, noted)
    assert flaw is not None
    assert f"{noted.number} was noted" in flaw.why


def test_a_chain_that_was_removed_whole_is_found_by_the_audit(database: Database) -> None:
    with by_hand(database) as connection:
        connection.execute(sa.delete(CHANNEL.entries))
        connection.execute(sa.delete(chain_head).where(is_head_of(CHANNEL)))
    assert flaw_of(database, CHANNEL) == "the chain ends with 0, and 2 was noted"


# Keys


COMMANDS = (
    ["gate", "check", "three"],
    ["promote", "three", "--reason", "it is as good"],
    ["channels", "history", "production"],
    ["audit", "verify"],
    ["prove", "one"],
)


def said(data: Path, command: list[str]) -> str:
    done = penstock(*command, "--data", str(data))
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.usefixtures("in_postgresql")
def test_machines_that_name_no_key_are_told_so_by_all_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_by_hand(tmp_path).lake as lake:
        prepared(lake.database)
        add(lake.database, "three", "four")
        scored(lake.database, "three")
        assert not lake.database.signs
    for command in COMMANDS:
        assert "unsigned: whoever writes to the database" in said(tmp_path, command), command
        assert "unaltered" not in said(tmp_path, ["audit", "verify"])
    # A key that is named later finds nothing signed, until somebody says that it is as it was.
    key = SigningKey(tmp_path / "a.key")
    assert key.public.name
    monkeypatch.setenv("PENSTOCK_SIGNING_KEY_FILE", str(key.file))
    assert "is not signed" in penstock("audit", "verify", "--data", str(tmp_path)).stderr
    assert "chains are signed" in said(tmp_path, ["audit", "sign"])
    assert "unaltered; head" in said(tmp_path, ["audit", "verify"])
    assert "the history is unaltered" in said(tmp_path, ["channels", "history", "production"])
    assert "signatures" not in said(tmp_path, ["prove", "one"])


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
