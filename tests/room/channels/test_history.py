"""The history of a channel: told as it was, and nobody can change it unseen."""

import hashlib
import json
from dataclasses import asdict, fields, replace
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from penstock.backends.audit.entry import Flaw, Head, first_flaw, hash_of
from penstock.backends.audit.hash_chain import chain_head
from penstock.backends.database import DatabaseUnreachable
from penstock.backends.database.engine import Database
from penstock.registry.channels.change import Change, HistoryDamaged
from penstock.registry.channels.channel import channel_state, policy_of
from penstock.registry.channels.history import channel_changes, verify_history
from penstock.registry.channels.promotion import rollback_candidates
from penstock.registry.channels.tables import channel_change
from penstock.registry.checkpoints.tables import checkpoint_move
from penstock.registry.gate.tables import verdict
from tests.support.channels.forged_evidence import CHANNEL, by_hand, forge, is_head_of
from tests.support.checkpoint_factory import (
    TENANT,
    add,
    digest_of,
    promote,
    release,
    rollback,
    says,
    set_policy,
)


def sealed(change: Change) -> Change:
    return replace(change, hash=hash_of(asdict(change)))


def flaw_in(changes: list[Change], head: Head) -> Flaw | None:
    return first_flaw(map(asdict, changes), head, numbered="version")


def make(*actions: tuple[str, str | None]) -> list[Change]:
    found: list[Change] = []
    for action, name in actions:
        found.append(
            Change(
                tenant=TENANT,
                channel="production",
                version=len(found) + 1,
                action=action,  # type: ignore[arg-type]
                checkpoint=name,
                digest=digest_of(name) if name else None,
                actor="ann",
                reason="why not",
                at=1_000 + len(found),
                previous_hash=found[-1].hash if found else Change.previous_hash,
            )
        )
        found[-1] = sealed(found[-1])
    return found


CHANGES = make(("policy", None), ("promote", "a"), ("promote", "b"), ("rollback", "a"))
HEAD = Head(4, CHANGES[-1].hash)

# Pure


def test_a_change_has_the_columns_of_its_table() -> None:
    assert {one.name for one in fields(Change)} == set(channel_change.columns.keys())


def test_the_hash_is_of_all_columns_as_sorted_json() -> None:
    one = Change(
        tenant="t", channel="c", version=1, action="canary", checkpoint="a", digest="sha256:0",
        previous=None, canary="b", canary_share=0.05, pinned=False, policy=None, verdict="v",
        overridden=True, actor="ann", reason="süß", at=1,
    )  # fmt: skip
    facts = asdict(one)
    del facts["hash"]
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert hash_of(asdict(one)) == hashlib.sha256(text.encode()).hexdigest()


@given(st.data())
def test_whatever_is_changed_in_a_history_is_seen(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(CHANGES) - 1))
    name = data.draw(st.sampled_from([one.name for one in fields(Change)]))
    was = getattr(CHANGES[at], name)
    other: Any = not was if isinstance(was, bool) else was + 1 if isinstance(was, int) else "x"
    wrong = [*CHANGES]
    wrong[at] = replace(CHANGES[at], **{name: other})
    found = flaw_in(wrong, HEAD)
    assert found is not None
    assert found.number in (at + 1, at + 2)


@given(st.sets(st.integers(0, 3), min_size=1), st.randoms(use_true_random=False))
def test_whatever_is_left_out_or_moved_is_seen(left_out: set[int], dice: Any) -> None:
    assert flaw_in([c for n, c in enumerate(CHANGES) if n not in left_out], HEAD) is not None
    moved = [*CHANGES]
    dice.shuffle(moved)
    assert (flaw_in(moved, HEAD) is None) == (moved == CHANGES)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ("", ""),
        ("+a", ""),
        ("+a +b", "a"),
        ("+a +b +c", "b a"),
        ("+a +b +c -b", "a"),
        ("+a +b +c -b -a", ""),
        ("+a +b -a +c", "a"),
        ("+a +b -a +b +c", "b a"),  # promoted again, it is good again
        ("+a +b +a", "b"),
        ("+a =a =a +b", "a"),
        ("+a +b -x -a", ""),  # x is an ancestor of b; neither x nor b is good
    ],
)
def test_where_a_channel_may_go_back_to(steps: str, expected: str) -> None:
    actions = {"+": "promote", "-": "rollback", "=": "policy"}
    found = [(actions[one[0]], one[1:]) for one in steps.split()]
    assert rollback_candidates(found) == expected.split()


# In the database


def a_story(database: Database) -> None:
    add(database, "a", "b", "c")
    set_policy(database)
    promote(database, "a")
    promote(database, "b", says("FAIL"), override=True)
    rollback(database)
    release(database)
    promote(database, "c", share=0.1)


def test_evidence_refuses_to_be_changed(database: Database) -> None:
    a_story(database)
    for table in (channel_change, checkpoint_move, verdict):
        for statement in (sa.update(table).values(tenant="other"), sa.delete(table)):
            with (
                pytest.raises((sa.exc.DBAPIError, DatabaseUnreachable), match="evidence and stay"),
                database.write() as connection,
            ):
                connection.execute(statement)
    assert verify_history(database, TENANT, "production") is None


def test_a_history_is_read_as_it_was_written(database: Database) -> None:
    a_story(database)
    found = channel_changes(database, TENANT, "production")
    assert [one.action for one in found] == [
        "policy", "promote", "promote", "rollback", "release", "canary",
    ]  # fmt: skip
    assert channel_changes(database, TENANT, "production", after=2, limit=2) == found[2:4]
    assert channel_changes(database, TENANT, "production", limit=2, latest=True) == found[-2:]
    assert flaw_in(found, Head(6, found[-1].hash)) is None
    assert [one.at for one in found] == sorted(one.at for one in found)


@pytest.mark.parametrize(
    ("statement", "version"),
    [
        ("UPDATE channel_change SET overridden = 0 WHERE version = 3", 3),
        ("UPDATE channel_change SET actor = 'x' WHERE version = 1", 1),
        ("UPDATE channel_change SET at = at + 1 WHERE version = 6", 6),
        ("DELETE FROM channel_change WHERE version = 4", 4),
        ("DELETE FROM channel_change WHERE version = 6", 6),
        ("DELETE FROM channel_change", 1),
        ("UPDATE chain_head SET number = 7 WHERE entries = 'channel_change'", 7),
        ("UPDATE chain_head SET hash = 'x' WHERE entries = 'channel_change'", 7),
        ("UPDATE verdict SET document = '{}' WHERE document LIKE '%\"outcome\":\"FAIL\"%'", 3),
        ("DELETE FROM verdict", 2),
    ],
)
def test_what_is_changed_by_hand_is_seen(embedded: Database, statement: str, version: int) -> None:
    a_story(embedded)
    with by_hand(embedded) as connection:
        connection.exec_driver_sql(statement)
    found = verify_history(embedded, TENANT, "production")
    assert found is not None
    assert found.number == version


def test_a_policy_that_was_changed_by_hand_is_seen(embedded: Database) -> None:
    set_policy(embedded)
    at = channel_state(embedded, TENANT, "production")
    with embedded.write() as connection:
        connection.exec_driver_sql("UPDATE gate_policy SET text = text || '# easier'")
    with pytest.raises(HistoryDamaged, match="is missing or changed"):
        policy_of(embedded, at)
    found = verify_history(embedded, TENANT, "production")
    assert found is not None
    assert (found.number, "policy" in found.why) == (1, True)


def test_time_in_a_history_never_runs_back(embedded: Database) -> None:
    add(embedded, "a", "b")
    first = promote(embedded, "a")
    ahead = first.at + 10**12
    with by_hand(embedded) as connection:
        forge(connection, CHANNEL, lambda entry: entry | {"at": ahead})
        connection.execute(sa.update(chain_head).where(is_head_of(CHANNEL)).values(at=ahead))
    after = promote(embedded, "b")
    assert after.at == ahead
    assert verify_history(embedded, TENANT, "production") is None
