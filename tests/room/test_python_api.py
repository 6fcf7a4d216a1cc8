"""What Python programs rely on: `import penstock`."""

import pydoc
import sys
from pathlib import Path
from typing import TYPE_CHECKING, assert_type

import pyarrow as pa
import pytest

import penstock
from penstock.core.errors import LibraryMissing, PenstockError
from penstock.doors.python import RemoteLake, RemoteQuery
from penstock.lake import LakeMissing
from penstock.lake.query.lake_query import LakeQuery
from penstock.registry.channels.change import ChannelState
from penstock.registry.channels.promotion_endpoints import PromotionAnswer, RollbackAnswer
from penstock.registry.checkpoints.checkpoint import Checkpoint
from penstock.shards.manifest import Manifest
from penstock_jobs.rewards.definition import find_definition
from tests.support.checkpoint_factory import add, promote
from tests.support.lakes import hand_lake, make_event
from tests.support.repository import ROOT
from tests.support.reward_events import DAY_US
from tests.support.reward_runs import run_at, store_samples

SQL = "select type, count(*) as n from events group by all order by all"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with hand_lake(tmp_path) as by_hand:
        by_hand.send([make_event("s-1", number) for number in range(3)])
    return tmp_path


def test_a_folder_without_a_lake_is_said_to_be_none_and_stays_as_it_is(tmp_path: Path) -> None:
    for folder in (tmp_path / "nothing", tmp_path):
        with pytest.raises(LakeMissing, match="holds no lake yet"):
            penstock.open(folder)
    with pytest.raises(LakeMissing):
        penstock.read_shard(tmp_path, "a-name")
    assert list(tmp_path.iterdir()) == []


def test_rows_come_in_the_form_that_is_asked_for(data: Path) -> None:
    with penstock.open(data) as lake:
        query = lake.query(SQL)
        rows = [{"type": "user_message", "n": 3}]
        assert isinstance(query.arrow(), pa.Table)
        assert query.arrow().to_pylist() == rows
        assert pa.Table.from_batches(query.batches()).to_pylist() == rows
        assert query.df().to_dict("records") == rows


def test_polars_has_them_where_it_is_installed(data: Path) -> None:
    pytest.importorskip("polars")
    with penstock.open(data) as lake:
        assert lake.query(SQL).pl().to_dicts() == [{"type": "user_message", "n": 3}]


@pytest.mark.parametrize(("form", "library"), [("df", "pandas"), ("pl", "polars")])
def test_a_library_that_is_not_installed_is_named(
    data: Path, monkeypatch: pytest.MonkeyPatch, form: str, library: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with penstock.open(data) as lake, pytest.raises(LibraryMissing, match=f"pip install {library}"):
        getattr(lake.query(SQL), form)()


EVIL = "<script>alert(1)</script>\u202e" + "x" * 500


def test_a_notebook_shows_the_first_rows_and_hostile_text_stays_text(data: Path) -> None:
    with hand_lake(data) as by_hand:
        by_hand.send([make_event("s-2", 1, payload={"text": EVIL})])
    with penstock.open(data) as lake:
        html = lake.query("select text from user_messages")._repr_html_()
        assert "&lt;script&gt;" in html
        assert "<script" not in html
        assert "\u202e" not in html
        assert "x" * 300 not in html
        assert "<td>s-2</td>" in lake.sessions()._repr_html_()
        many = lake.query("select i as n from range(51) t(i)")._repr_html_()
    assert many.count("<tr>") == 51
    assert "The first 50 rows." in many


def test_a_lake_completes_what_is_public(data: Path) -> None:
    with penstock.open(data) as lake:
        assert dir(lake) == [
            "channel", "checkpoint", "checkpoints", "close", "promote", "query", "read_shard",
            "rewards", "rollback", "sessions", "shards",
        ]  # fmt: skip
        assert dir(lake.query(SQL)) == ["arrow", "batches", "df", "pl"]
        assert all(hasattr(lake, name) for name in dir(lake))
    assert dir(penstock) == sorted(penstock.__all__)


def test_sessions_and_rewards_are_queries(data: Path) -> None:
    with penstock.open(data) as lake:
        [row] = lake.sessions("user_messages = 3  -- so many").arrow().to_pylist()
        assert row["session_id"] == "s-1"
        assert lake.sessions("project = 'none'").arrow().num_rows == 0
        assert lake.rewards("definition = 'default'").arrow().num_rows == 0


def test_a_shard_is_built_and_a_checkpoint_promoted_and_rolled_back(tmp_path: Path) -> None:
    examples = ROOT / "examples"
    with hand_lake(tmp_path) as by_hand:
        store_samples(by_hand)
        run_at(by_hand, DAY_US / 1_000_000, find_definition())
        add(by_hand.lake.database, "one", "two", note="<script>alert(1)</script>")
        for name in ("one", "two"):
            promote(by_hand.lake.database, name)
    with penstock.open(tmp_path) as lake:
        manifest = lake.shards.build(examples / "recipes" / "sft-persistent.toml")
        assert manifest.counts.samples > 0
        assert lake.shards.build(examples / "recipes" / "sft-persistent.toml").id == manifest.id
        with pytest.raises(PenstockError, match="No such file"):
            lake.shards.build("nope.toml")
        back = lake.rollback(reason="it errs")
        assert (back.checkpoint, back.left) == ("one", "two")
        with pytest.raises(PenstockError, match="is pinned"):
            lake.promote("two", reason="it is better")
        assert "<td>checkpoint</td><td>one</td>" in lake.channel("production")._repr_html_()
        html = lake.checkpoint("two")._repr_html_()
    assert "<td>name</td><td>two</td>" in html
    assert "&lt;script&gt;" in html
    assert "<script" not in html


if TYPE_CHECKING:  # what editors show: `make lint` checks it
    _lake, _remote = penstock.open("data"), penstock.open("http://x", key="k")
    assert_type(_lake.query("x"), LakeQuery)
    assert_type(_lake.sessions(), LakeQuery)
    assert_type(_lake.rewards("true"), LakeQuery)
    assert_type(_lake.shards.build("x"), Manifest)
    assert_type(_lake.promote("x", reason="y"), PromotionAnswer)
    assert_type(_lake.rollback(reason="y"), RollbackAnswer)
    assert_type(_lake.checkpoint("x"), Checkpoint)
    assert_type(_lake.channel("x"), ChannelState)
    assert_type(_remote, RemoteLake)
    assert_type(_remote.sessions(), RemoteQuery)


def test_help_explains_the_package_and_each_name() -> None:
    text = pydoc.plain(pydoc.render_doc(penstock))
    assert "penstock.open(" in text
    for name in set(penstock.__all__) - {"__version__"}:
        assert (getattr(penstock, name).__doc__ or "").strip(), name
        assert name in text
