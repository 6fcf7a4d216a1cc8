"""A lake with a shard, a checkpoint that learned it, and a channel that serves it."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from penstock.access.privacy.erasure import carry_out, order_erasure
from penstock.access.privacy.orders import ErasureScope
from penstock.core.endpoint import Caller
from penstock.registry.channels.promotion import Promotion, gate_judge, promote
from penstock.registry.checkpoints.registration import register
from penstock.registry.fleet.replicas import Report, record_report
from penstock.registry.proof.document import prove_checkpoint
from penstock_jobs.shards.build import ShardBuild
from penstock_jobs.shards.recipe import load_recipe
from tests.support.engine_lake import QUERY, RECIPE, built, fill
from tests.support.lakes import START_US, HandLake, hand_lake

DIGEST = "sha256:" + "1" * 64
PARENT_DIGEST = "sha256:" + "0" * 64


@dataclass
class ProvenLake:
    hand: HandLake
    shard: ShardBuild
    data: Path

    @property
    def lake(self) -> Any:
        return self.hand.lake

    @property
    def caller(self) -> Caller:
        return Caller("default", "tester", is_local=True)

    def proof(self, name: str = "ckpt-2", *, read_files: bool = False) -> dict[str, Any]:
        return prove_checkpoint(self.lake, self.caller, name, read_files=read_files)

    def promote(self, name: str, reason: str = "better") -> None:
        order = Promotion(
            tenant="default",
            channel="production",
            checkpoint=name,
            reason=reason,
            actor="an-engineer",
            override=True,
        )
        promote(self.lake.database, order, gate_judge(self.lake.database, "default"))

    def load(self, replica: str, digest: str = DIGEST) -> None:
        report = Report(
            name="production",
            replica=replica,
            state="loaded",
            sidecar="s",
            wanted="ckpt-2",
            version=1,
            loaded="ckpt-2",
            digest=digest,
        )
        record_report(self.lake.database, self.lake.settings, "default", report)

    def erase(self, session: str) -> dict[str, Any]:
        scope = ErasureScope("default", "session", session, START_US + 10**12)
        return carry_out(self.lake, order_erasure(self.lake, scope, reason="asked", by="tester"))

    def register(self, name: str, digest: str, **more: Any) -> None:
        place: dict[str, Any] = {"tenant": "default", "actor": "an-engineer"}
        place["uri"] = f"s3://weights/{name}"
        register(self.lake.database, self.lake.settings, name=name, digest=digest, **place, **more)


@pytest.fixture(scope="session")
def proven_template(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ShardBuild]:
    """Filled once; each test has a copy."""
    folder = tmp_path_factory.mktemp("proven")
    (folder / "recipe.toml").write_text(RECIPE)
    (folder / "all.sql").write_text(QUERY)
    data = folder / "data"
    with hand_lake(data) as hand:
        fill(hand)
        shard = built(hand, load_recipe(folder / "recipe.toml"))
        proven = ProvenLake(hand, shard, data)
        proven.register("ckpt-1", PARENT_DIGEST)
        proven.register("ckpt-2", DIGEST, parent="ckpt-1", shards=[shard.manifest.id])
        proven.promote("ckpt-2")
        proven.load("engine-a")
        proven.proof()  # the key is made
    return data, shard


@pytest.fixture
def proven(tmp_path: Path, proven_template: tuple[Path, ShardBuild]) -> Iterator[ProvenLake]:
    template, shard = proven_template
    data = tmp_path / "data"
    shutil.copytree(template, data)
    with hand_lake(data) as hand:
        yield ProvenLake(hand, shard, data)
