"""The examples for TRL and plain PyTorch: killed at their snapshots, and as trainers of a loop."""

import json
import os
import re
import subprocess
import sys
from math import isfinite
from pathlib import Path
from typing import Any

import pytest

from penstock.backends.storage.object_store import FileStore
from penstock.core.settings import load_settings
from penstock.registry.checkpoints.digests import digest_files
from penstock_jobs.loop.cycles import cycles_of
from penstock_jobs.shards.export import export_shard
from tests.study.trainers.beginning import PARENT, begin
from tests.study.trainers.making import make_model, needs, sampled
from tests.support.export_rows import hinted
from tests.support.loop_world import TENANT, World, open_world
from tests.support.repository import ROOT
from tests.support.shards.making import stored_in

EXAMPLES = ROOT / "examples" / "trainers"
#: One thread, so that numbers are added in one order.
QUIET = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "SAVE_STEPS": "1",
    "TRL_EXPERIMENTAL_SILENCE": "1",
}
STEPS = ("--batch-tokens", "310", "--rate", "1e-3", "--epochs", "2")
PLAIN = (*STEPS, "--clip", "0.2", "0.28")
#: Those that read the shard itself.
OPTIONS = {"plain_torch": (*PLAIN, "--save-steps", "1"), "hints": (*STEPS, "--save-steps", "1")}
pytestmark = needs("torch", "trl")


@pytest.mark.parametrize("name", ["trl_sft", "trl_grpo", "plain_torch", "hints"])
def test_killed_at_its_snapshots_it_makes_the_same_checkpoint(
    tmp_path: Path, model_folder: Path, shard: Any, name: str
) -> None:
    rows = sampled(make_model(), groups=16)
    every = [hinted(row) if at % 4 else row for at, row in enumerate(rows)]
    manifest = shard(every if name == "hints" else rows)
    work = tmp_path / "work" / manifest.id[-12:]
    work.mkdir(parents=True)
    if name not in OPTIONS:  # as the example would, without a lake around the shard
        target = name.replace("_", "-")
        export_shard(stored_in(FileStore(tmp_path / "lake"), manifest), target, work / target)
    told = {
        "PENSTOCK_DATA": str(tmp_path),
        "PENSTOCK_PARENT_URI": model_folder.as_uri(),
        "PENSTOCK_SHARD": manifest.id,
        "HF_HOME": str(tmp_path / "hf"),
    }
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.study.trainers.dying",
            str(tmp_path),
            str(EXAMPLES / f"{name}.py"),
            *OPTIONS.get(name, ()),
        ],
        cwd=ROOT,
        env=os.environ | QUIET | told,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    once, killed = json.loads(done.stdout)
    assert once["begun"] == [None]
    steps = [one and one / (8 if name in OPTIONS else 1) for one in killed["begun"]]
    assert steps == [None, 1, 3, 4]  # of 8 samples
    assert once["digest"] == killed["digest"]
    parent = digest_files(str(model_folder), load_settings(tmp_path)).digest
    assert once["digest"] != parent
    if name == "plain_torch":
        said = re.findall(r"loss (\S+) ratio (\S+)", done.stderr)
        assert float(said[0][1]) == pytest.approx(1, abs=1e-3)
        assert all(isfinite(float(number)) for step in said for number in step)
    if name == "hints":
        assert "48 rows, and 16 without a hint" in done.stderr
        [first, *_] = re.findall(r"log q - log s (\S+) ratio (\S+)", done.stderr)
        assert float(first[1]) == pytest.approx(1, abs=1e-3)


def trained_by(world: World, program: str, *, killed_once: bool = False) -> None:
    """The loop file with this trainer; the first try of it may end right after a snapshot."""
    command = f"{sys.executable} {EXAMPLES}/{program}"
    if killed_once:
        world.write("dies.py", DIES)
        command = f"{sys.executable} dies.py {EXAMPLES / program}"
    world.loop(('command = "sh trainer.sh"', f'command = "{command}"'), ('"60s"', '"10m"'))


DIES = """
import os, pathlib, runpy, signal, sys
died, touch = pathlib.Path(os.environ["PENSTOCK_WORK"], "died"), pathlib.Path.touch
def die(self):
    touch(self)
    if self.name == "whole" and not died.exists():
        touch(died)
        os.kill(os.getpid(), signal.SIGKILL)
pathlib.Path.touch = die
sys.path.insert(0, str(pathlib.Path(sys.argv[1]).parent))
runpy.run_path(sys.argv[1], run_name="__main__")
"""


def test_a_loop_trains_with_them_each_on_what_the_one_before_made(
    tmp_path: Path, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (QUIET | {"HF_HOME": str(tmp_path / "hf")}).items():
        monkeypatch.setenv(name, value)
    with open_world(tmp_path / "data") as world:
        begin(world, model_folder)
        world.talk(PARENT, first=100, count=8)
        trained_by(world, "trl_sft.py", killed_once=True)
        cycle = world.run_once()
        assert (cycle.outcome, cycle.parent, cycle.checkpoint) == ("promoted", PARENT, "mini-0001")
        assert cycle.stage("train").failures == 1
        plain = " ".join(("plain_torch.py", *PLAIN))
        for number, program in ((2, "trl_grpo.py"), (3, plain)):
            before = f"mini-000{number - 1}"
            world.talk(before, first=100 * number, count=8)
            trained_by(world, program)
            cycle = world.run_once()
            assert (cycle.outcome, cycle.parent) == ("promoted", before), cycle.why
        made = [one.stage("train").result or {} for one in cycles_of(world.database, TENANT)]
        assert len({one["digest"] for one in made}) == 3
