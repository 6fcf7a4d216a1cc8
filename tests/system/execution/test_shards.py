"""A shard has the same bytes on every executor."""

from pathlib import Path

import pytest

from penstock.execution import Executor
from penstock.execution.calls import InlineExecutor
from penstock_jobs.shards import build
from penstock_jobs.shards.build import build_shard
from penstock_jobs.shards.recipe import load_recipe
from tests.support.engine_lake import QUERY, RECIPE, fill
from tests.support.lakes import hand_lake


def test_a_shard_is_the_same_on_every_executor(
    tmp_path: Path, executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "SLICE_EVENTS", 12)
    (tmp_path / "all.sql").write_text(QUERY)
    (tmp_path / "engine.toml").write_text(RECIPE)
    recipe = load_recipe(tmp_path / "engine.toml")
    ids = set()
    for name, runs_on in (("here", InlineExecutor()), ("there", executor)):
        with hand_lake(tmp_path / name) as lake:
            fill(lake)
            built = build_shard(lake.lake, runs_on, recipe, tenant="default")
            assert built.new
            ids.add(built.manifest.id)
    assert len(ids) == 1
