"""Consent by user, project and session: the strictest counts, when a shard is built and after."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import penstock
from penstock.access.privacy.consents import decided_consents
from penstock.access.privacy.erasure import carry_out, order_erasure
from penstock.access.privacy.orders import ErasureScope
from penstock.access.tables import consent_decision
from penstock.core.endpoint import Caller
from penstock.events.event import TENANT_DEFAULT
from penstock.lake.client import open_client, perform
from penstock.lake.tables import lake_head
from penstock.shards.endpoints import READ_SHARD_FILE, ShardFileRequest
from penstock.shards.registered_shards import check_withdrawn, marks_of
from penstock.shards.shard import ShardWithdrawn
from penstock.shards.shard_places import shard_at_hand
from penstock_jobs.shards.consents import (
    DECIDE_CONSENT,
    LIST_DECISIONS,
    DecideRequest,
    DecisionsRequest,
    WithdrawalAnswer,
)
from penstock_jobs.shards.recipe import Recipe
from tests.support.checkpoint_factory import add
from tests.support.engine_lake import built, fill
from tests.support.lakes import START_US, HandLake, hand_lake, make_event

ADMIN = Caller("default", "tester", is_local=True)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory that each `lake` is a copy of."""
    data = tmp_path_factory.mktemp("filled") / "data"
    with hand_lake(data) as opened:
        opened.send([make_event("s03", 400, user="u-3"), make_event("s04", 400, project="shop")])
        opened.clock.advance(1)
        fill(opened)
    return data


@pytest.fixture
def lake(tmp_path: Path, filled: Path) -> Iterator[HandLake]:
    """`s03` names a second user, and `s04` a second project."""
    shutil.copytree(filled, tmp_path / "data")
    with hand_lake(tmp_path / "data") as opened:
        yield opened


def decide(lake: HandLake, kind: Any, subject: str, consent: Any = "no_train") -> WithdrawalAnswer:
    question = DecideRequest(kind=kind, subject=subject, consent=consent, reason="asked for")
    return perform(DECIDE_CONSENT, lake.lake, ADMIN, question)


def test_what_denies_a_session_is_named_when_a_shard_is_built(
    lake: HandLake, recipe: Recipe
) -> None:
    before = built(lake, recipe).manifest.counts
    decide(lake, "user", "u-3")
    decide(lake, "project", "shop")
    decide(lake, "session", "s05")
    counts = built(lake, recipe).manifest.counts
    assert counts.sessions == before.sessions - 3
    denied = {name: n for name, n in counts.excluded.items() if name.startswith("consent")}
    assert denied == {
        "consent_denied": 1,
        "consent_denied_by_user": 1,
        "consent_denied_by_project": 1,
    }


def test_no_train_of_one_outweighs_train_of_another(lake: HandLake) -> None:
    lake.store([make_event("s03", 401, project="shop")])
    decide(lake, "user", "u3", "train")
    decide(lake, "user", "u-3", "train")
    assert decided_consents(lake.lake, "default", ["s03", "s04"]).allowed == {"s03"}
    decide(lake, "project", "shop", "no_train")
    decided = decided_consents(lake.lake, "default", ["s03", "s04", "s05"])
    assert decided.denied == {"s03": "project", "s04": "project"}
    assert not decided.allowed
    decide(lake, "session", "s03", "train")
    assert decided_consents(lake.lake, "default", ["s03"]).denied == {"s03": "project"}


def test_all_users_of_a_session_have_to_be_willing(lake: HandLake) -> None:
    decide(lake, "user", "u-3", "train")
    assert not decided_consents(lake.lake, "default", ["s03"]).allowed
    decide(lake, "user", "u3", "train")
    assert decided_consents(lake.lake, "default", ["s03"]).allowed == {"s03"}


def test_a_decision_that_is_taken_back_holds_no_more(lake: HandLake, recipe: Recipe) -> None:
    first = built(lake, recipe)
    decide(lake, "user", "u-3")
    assert built(lake, recipe).manifest.id != first.manifest.id
    decide(lake, "session", "s05")
    decide(lake, "user", "u-3", "unknown")
    assert marks_of(lake.lake.database, TENANT_DEFAULT, first.manifest.id) == [("s05", "no_train")]
    decide(lake, "session", "s05", "unknown")
    assert marks_of(lake.lake.database, TENANT_DEFAULT, first.manifest.id) == []
    assert built(lake, recipe).manifest.id == first.manifest.id
    listed = perform(LIST_DECISIONS, lake.lake, ADMIN, DecisionsRequest()).decisions
    assert [(each.consent, each.holds) for each in listed] == [
        ("no_train", False),
        ("no_train", False),
        ("unknown", True),
        ("unknown", True),
    ]


def test_a_change_of_mind_reaches_what_was_built_before(lake: HandLake, recipe: Recipe) -> None:
    shard = built(lake, recipe).manifest.id
    add(lake.lake.database, "ckpt-1", shards=[shard])
    answer = decide(lake, "user", "u-3")
    assert answer.sessions == 1
    [marked] = answer.shards
    assert (marked.shard, marked.sessions, marked.checkpoints) == (shard, 1, ["ckpt-1"])
    assert marks_of(lake.lake.database, TENANT_DEFAULT, shard) == [("s03", "no_train")]
    assert decide(lake, "user", "u-3").shards == []


def test_a_decision_of_another_tenant_says_nothing_here(lake: HandLake) -> None:
    other = Caller("other", "tester")
    question = DecideRequest(kind="user", subject="u-3", consent="no_train")
    perform(DECIDE_CONSENT, lake.lake, other, question)
    assert not decided_consents(lake.lake, "default", ["s03"]).denied
    assert perform(LIST_DECISIONS, lake.lake, ADMIN, DecisionsRequest()).decisions == []


def test_what_a_session_refused_since_its_snapshot_counts(lake: HandLake) -> None:
    with lake.lake.database.read() as connection:
        snap = connection.scalar(sa.select(lake_head.c.snap))
    lake.store([make_event("s03", 900, "session_start", payload={"consent": "no_train"})])
    decided = decided_consents(lake.lake, "default", ["s03", "s04"], snap)
    assert decided.denied == {"s03": "session"}


def test_erasing_a_user_erases_what_was_decided_of_it(lake: HandLake) -> None:
    decide(lake, "user", "u-3")
    decide(lake, "session", "s03")
    decide(lake, "user", "u-4")
    scope = ErasureScope("default", "user", "u-3", START_US + 10**12)
    carry_out(lake.lake, order_erasure(lake.lake, scope, reason="", by="tester"))
    with lake.lake.database.read() as connection:
        assert list(connection.scalars(sa.select(consent_decision.c.subject))) == ["u-4"]


def test_a_shard_with_withdrawn_sessions_is_read_with_a_warning(
    lake: HandLake, recipe: Recipe, tmp_path: Path
) -> None:
    shard = built(lake, recipe).manifest.id
    decide(lake, "user", "u-3")
    for name in (shard, "engine"):
        with pytest.warns(UserWarning, match="1 sessions without consent"):
            penstock.read_shard(tmp_path / "data", name).close()
    assert check_withdrawn(lake.lake.database, lake.lake.settings, TENANT_DEFAULT, shard) == 1


def test_an_operator_refuses_to_have_it_read(
    lake: HandLake, recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = built(lake, recipe).manifest.id
    penstock.read_shard(tmp_path / "data", shard).close()
    decide(lake, "user", "u-3")
    monkeypatch.setenv("PENSTOCK_WITHDRAWN_SHARDS", "refuse")
    with pytest.raises(ShardWithdrawn):
        penstock.read_shard(tmp_path / "data", shard)
    with open_client(tmp_path / "data", None) as client:
        question = ShardFileRequest(shard=shard, name="manifest.json")
        with pytest.raises(ShardWithdrawn):
            client.call(READ_SHARD_FILE, question)
        with pytest.raises(ShardWithdrawn), shard_at_hand(client, shard, tmp_path):
            pass
