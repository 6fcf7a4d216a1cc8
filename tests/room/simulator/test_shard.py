"""A shard of simulated sessions holds what a trainer needs to learn from them."""

from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.backends.execution.calls import InlineExecutor
from penstock_jobs.rewards.definition import find_definition
from penstock_jobs.rewards.runs import RunRequest, run
from penstock_jobs.shards.build import build_shard
from penstock_jobs.shards.export import export_shard
from penstock_jobs.shards.recipe import load_recipe
from penstock_jobs.simulator.policy import END, POLICIES, TASK_IDS
from penstock_jobs.simulator.production import Checkpoint, Production
from tests.support.engine_lake import QUERY, RECIPE
from tests.support.lakes import hand_lake
from tests.support.shards.making import stored_in
from tests.support.simulator.agreement import LATER_US

POLICY = POLICIES["fair"]


def test_log_probabilities_of_a_shard_are_recomputed_from_its_ids(tmp_path: Path) -> None:
    production = Production(7, [Checkpoint("ckpt", POLICY)])
    (tmp_path / "all.sql").write_text(QUERY)
    (tmp_path / "recipe.toml").write_text(RECIPE)
    with hand_lake(tmp_path / "data") as lake:
        for some in production.sessions(60):
            for one in some:
                lake.send(b"\n".join(line for _, _, line in one.lines))
        lake.writer().drain()
        now_us = production.begins_us(60) + LATER_US
        run(lake.lake, InlineExecutor(), RunRequest(find_definition()), now_us=now_us)
        recipe = load_recipe(tmp_path / "recipe.toml")
        manifest = build_shard(lake.lake, InlineExecutor(), recipe, tenant="default").manifest
        report = export_shard(
            stored_in(lake.lake.store, manifest), "prime-rl", tmp_path / "prime-rl"
        )
    shard = manifest.id
    assert "no_temperature" not in report.left_out
    assert report.rows > 30
    sampled = decided = 0
    for batch in penstock.read_shard(str(tmp_path / "data"), shard, batch_samples=8):
        rows = zip(batch["input_ids"], batch["loss_mask"], batch["rollout_logprobs"], strict=True)
        for ids, mask, logprobs in rows:
            for at in np.flatnonzero(mask):
                before, token = int(ids[at - 1]), int(ids[at])
                assert logprobs[at] == pytest.approx(
                    POLICY.log_probability(before, token), abs=1e-6
                )
                sampled += 1
                decided += before in TASK_IDS.values()
                assert token == END or before != END
    assert sampled > 300
    assert decided > 60
