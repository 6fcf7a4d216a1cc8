"""The examples of trainers do what they say. `clusters` stands in for Slurm and Kubernetes."""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import numpy as np
import pytest

import penstock
from penstock.core.errors import InvalidInput
from penstock.core.settings import load_settings
from penstock.registry.checkpoints.digests import digest_files
from penstock_jobs.loop.cycles import TrainerFailed, cycles_of
from penstock_jobs.loop.trainers import TrainedCheckpoint
from tests.support.loop.clusters import JOBS, end_all, install
from tests.support.loop.trainers import by_command, task
from tests.support.loop_world import TENANT, World
from tests.support.repository import ROOT
from tests.support.waiting import eventually

EXAMPLES = ROOT / "examples" / "trainers"
#: What a job does: it says that it runs, waits until it may go on, fails once, and answers.
JOB = """
import hashlib, json, os, pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
with (folder / "ran").open("a") as ran:
    ran.write("run\\n")
while not (folder / "go").exists():
    time.sleep(0.02)
if (folder / "fail").exists():
    (folder / "fail").unlink()
    sys.exit("no memory")
made = pathlib.Path(os.environ["PENSTOCK_OUTPUT"], "weights")
made.write_text(os.environ["PENSTOCK_SHARD"])
digest = "sha256:" + hashlib.sha256(made.read_bytes()).hexdigest()
if not (folder / "mute").exists():
    answer = json.dumps({"uri": made.as_uri(), "digest": digest})
    pathlib.Path(os.environ["PENSTOCK_ANSWER"]).write_text(answer)
"""


@dataclass
class Cluster:
    folder: Path
    command: str

    @property
    def jobs(self) -> Path:
        return self.folder / "jobs"

    def train(self, attempt: int = 1) -> TrainedCheckpoint:
        return by_command(self.folder, self.command).train(task(attempt=attempt), Event())

    @property
    def ran(self) -> int:
        path = self.folder / "ran"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def submitted(self) -> int:
        asked = (self.jobs / "asked").read_text().splitlines()
        return sum(one.startswith(("sbatch ", "kubectl create")) for one in asked)


@pytest.fixture(params=["slurm", "kubernetes"])
def cluster(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cluster]:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "job.py").write_text(JOB)
    python = [sys.executable, str(tmp_path / "job.py"), str(tmp_path)]
    monkeypatch.setenv("PATH", f"{install(tmp_path)}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv(JOBS, str(tmp_path / "jobs"))
    monkeypatch.setenv("LOOK_SECONDS", "0.1")
    monkeypatch.setenv("SETTLE_SECONDS", "0.1")
    monkeypatch.setenv("TRAIN", shlex.join(python))
    files = {"slurm": EXAMPLES / "slurm.sh", "kubernetes": tmp_path / "job.yaml"}
    manifest = (EXAMPLES / "job.yaml").read_text()
    assert '["python3", "/app/train.py"]' in manifest
    manifest = manifest.replace('["python3", "/app/train.py"]', json.dumps(python))
    (tmp_path / "job.yaml").write_text(manifest)
    program = EXAMPLES / f"{request.param}.py"
    command = shlex.join([sys.executable, str(program), str(files[request.param])])
    yield Cluster(tmp_path, command)
    end_all(tmp_path / "jobs")


def test_a_job_is_submitted_once_and_found_again_after_a_kill(cluster: Cluster) -> None:
    script = (
        "import sys; from pathlib import Path; from threading import Event\n"
        "from tests.support.loop.trainers import by_command, task\n"
        "by_command(Path(sys.argv[1]), sys.argv[2]).train(task(), Event())"
    )
    runner = subprocess.Popen(
        [sys.executable, "-c", script, str(cluster.folder), cluster.command], cwd=ROOT
    )
    eventually(lambda: cluster.ran == 1)
    runner.kill()
    runner.wait()
    (cluster.jobs / "away").touch()  # nobody can tell for a while
    (cluster.folder / "go").touch()
    eventually(lambda: list(cluster.jobs.glob("*/status")))
    (cluster.jobs / "away").unlink()
    made = cluster.train(attempt=2)
    assert (cluster.ran, cluster.submitted()) == (1, 1)
    found = digest_files(made.uri, load_settings(cluster.folder))
    assert (found.digest, found.bytes) == (made.digest, len("sha256:1"))
    assert cluster.train(attempt=3) == made


def test_a_job_that_fails_is_a_failure_and_the_next_try_submits_another(cluster: Cluster) -> None:
    (cluster.folder / "go").touch()
    (cluster.folder / "fail").touch()
    with pytest.raises(TrainerFailed, match="there is no answer"):
        cluster.train()
    assert cluster.train(attempt=2).uri.endswith("/weights")
    assert (cluster.ran, cluster.submitted()) == (2, 2)


#: Killed right before or after the n-th snapshot takes its place.
DIES = """
import os, pathlib, runpy, signal, sys
left, before = int(sys.argv[1]), sys.argv[2] == "before"
rename = pathlib.Path.rename
def die(self, target):
    global left
    left -= 1
    if left == 0 and before:
        os.kill(os.getpid(), signal.SIGKILL)
    made = rename(self, target)
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return made
pathlib.Path.rename = die
runpy.run_path(sys.argv[3], run_name="__main__")
"""


def test_a_trainer_that_is_killed_at_any_snapshot_makes_the_same_checkpoint(world: World) -> None:
    program = EXAMPLES / "resumable.py"
    world.loop(("sh trainer.sh", f"{sys.executable} {program}"))
    done = world.run_once()
    assert done.outcome == "promoted"
    [cycle] = cycles_of(world.database, TENANT)
    made = cycle.stage("train").result or {}
    told = {
        "DATA": str(world.folder.parent),
        "SHARD": (cycle.stage("shard").result or {})["shard"],
        "PARENT_DIGEST": "sha256:1",
    }
    found = []
    for how in ("before", "after"):
        folder = world.folder / how
        for name in ("work", "output"):
            (folder / name).mkdir(parents=True)
        names = {"WORK": "work", "OUTPUT": "output", "ANSWER": "answer.json"}
        told |= {name: str(folder / path) for name, path in names.items()}
        environment = os.environ | {f"PENSTOCK_{name}": value for name, value in told.items()}
        for left in (1, 2):
            command = [sys.executable, "-c", DIES, str(left), how, str(program)]
            killed = subprocess.run(command, env=environment, check=False)
            assert killed.returncode == -signal.SIGKILL
        subprocess.run([sys.executable, str(program)], env=environment, check=True)
        answer = json.loads((folder / "answer.json").read_text())
        found.append(answer["digest"])
        assert np.load(folder / "output" / "weights.npy").any()
    assert found == [made["digest"]] * 2


def test_an_answer_is_the_address_and_the_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a b"
    folder.mkdir()
    with pytest.raises(InvalidInput, match="contains no files"):
        penstock.trained(folder)
    with pytest.raises(InvalidInput, match="What was trained"):
        penstock.trained(tmp_path / "nothing")
    (folder / "weights").write_text("1")
    digest = digest_files(str(folder), load_settings(tmp_path)).digest
    assert penstock.trained(folder) == {"uri": folder.as_uri(), "digest": digest, "form": "whole"}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_ANSWER", str(tmp_path / "answer.json"))
    uri = "https://models.test/1"
    answer = penstock.trained("a b", form="delta", note="step 7", uri=uri)
    assert answer == {"uri": uri, "digest": digest, "form": "delta", "note": "step 7"}
    assert json.loads((tmp_path / "answer.json").read_text()) == answer
    with pytest.raises(InvalidInput, match="must not contain keys"):
        penstock.trained("a b", uri="https://ann:hush@models.test/1")
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith(".")] == []
