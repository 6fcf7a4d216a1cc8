"""The examples in shell for SkyRL and prime-rl. They start `standing_in`, since those want GPUs."""

import json
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import msgspec
import pytest

from penstock.backends.storage.object_store import FileStore
from penstock_jobs.shards import export
from penstock_jobs.shards.export import export_shard
from tests.room.shards.test_export_tokens import MicroBatch, cut, steps_of
from tests.study.trainers.beginning import PARENT, begin
from tests.study.trainers.shell_examples import EXAMPLES, Example
from tests.support.export_rows import in_order, stored, talked
from tests.support.loop_world import World, open_world, talk
from tests.support.shards.making import stored_in

TARGETS = {"skyrl.sh": "skyrl", "prime_rl.sh": "prime-rl"}
DIED = (128 + signal.SIGKILL, -signal.SIGKILL)


@pytest.fixture(params=TARGETS)
def example(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Example:
    """Twelve samples: as many steps of SkyRL, and four of prime-rl."""
    monkeypatch.setattr(export, "STEP_SAMPLES", 3)
    store = FileStore(tmp_path / "lake")
    rows = [talked(f"g{group}", rollout) for group in range(4) for rollout in range(3)]
    manifest = stored(store, in_order(rows))
    for where in ("once", "killed", "late"):
        export_shard(stored_in(store, manifest), TARGETS[request.param], tmp_path / where / "data")
    parent = tmp_path / "parent"
    parent.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (parent / name).write_text(name)
    program = str(Path(__file__).with_name("standing_in.py"))
    return Example(
        request.param,
        tmp_path,
        [sys.executable, program, TARGETS[request.param], str(tmp_path)],
        ("ckpt_interval=4",) if request.param == "skyrl.sh" else (),
        {"LOOK_SECONDS": "0.1", "RANKS": "3"},
    )


def asked(example: Example) -> list[list[str]]:
    return [json.loads(line) for line in (example.folder / "asked").read_text().splitlines()]


def dies_in(example: Example, step: int) -> None:
    (example.folder / "die").write_text(str(step))


def test_killed_in_the_middle_it_makes_the_same_checkpoint(example: Example) -> None:
    assert example.run("once") == 0
    last = {"skyrl.sh": 12, "prime_rl.sh": 4}[example.name]
    for where, step in (("killed", last // 2 + 1), ("late", last)):
        dies_in(example, step)
        assert example.run(where) in DIED
        assert not (example.folder / where / "answer.json").exists()
        assert example.run(where) == 0
    digest = example.digest("once")
    (example.folder / "once" / "answer.json").unlink()
    assert example.run("once") == 0  # it was done, and nobody heard of it
    assert digest == example.digest("once") == example.digest("killed") == example.digest("late")
    made = {path.name for path in (example.folder / "once" / "output").iterdir()}
    parents = set() if example.name == "skyrl.sh" else {"config.json", "tokenizer.json"}
    assert made == {"model.safetensors"} | parents
    assert (example.folder / "once/output/model.safetensors").read_text() != "model.safetensors"


@pytest.mark.parametrize("example", ["prime_rl.sh"], indirect=True)
def test_prime_rl_takes_up_the_last_whole_checkpoint(example: Example) -> None:
    dies_in(example, 3)
    assert example.run("killed") in DIED
    assert example.run("killed") == 0
    told = [dict(zip(one[2::2], one[3::2], strict=True)) for one in asked(example)]
    assert [one.get("--resume.step") for one in told] == [None, "2"]
    assert {one["--max-steps"] for one in told} == {"4"}


def test_the_ranks_of_prime_rl_have_all_samples_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "STEP_SAMPLES", 6)
    store = FileStore(tmp_path / "lake")
    rows = [
        talked(f"g{group}", rollout, loss_weight=0.5) for group in range(4) for rollout in (0, 1)
    ]
    export_shard(stored_in(store, stored(store, in_order(rows))), "prime-rl", tmp_path / "data")
    arguments = [str(tmp_path / "data"), str(tmp_path / "run"), "4"]
    subprocess.run([sys.executable, EXAMPLES / "prime_rl_ranks.py", *arguments], check=True)
    for number, step in enumerate(steps_of(tmp_path / "data"), start=1):
        files = [tmp_path / f"run/batches/step_{number}/rank_{rank}.bin" for rank in range(4)]
        dealt = [msgspec.msgpack.decode(one.read_bytes(), type=list[MicroBatch]) for one in files]
        assert {len(batches) for batches in dealt} == {-(-len(step) // 4)}
        trained = [one for batches in dealt for batch in batches for one in cut(batch)]
        trained = [one for one in trained if any(one["loss_mask"])]
        before = [one for batch in step for one in cut(batch)]
        assert sorted(map(json.dumps, trained)) == sorted(map(json.dumps, before))


def test_nothing_to_train_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    arguments = [str(tmp_path / "data"), str(tmp_path / "run"), "2"]
    done = subprocess.run(
        [sys.executable, EXAMPLES / "prime_rl_ranks.py", *arguments],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1
    assert "nothing to train" in done.stderr


def talk_at_a_temperature(world: World) -> None:
    """Sessions of the parent that say how its answers were sampled."""
    for number in range(100, 108):
        events = talk(f"s{number}", number, PARENT)
        for event in events:
            if event["type"] == "model_call":
                event["payload"]["sampling"] = {"temperature": 1.0}
        world.hand.send(events)
    world.hand.writer().drain()


def test_a_loop_trains_with_it(
    example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the export of the loop's own shard, and one try that dies."""
    for name, value in example.environment.items():
        monkeypatch.setenv(name, value)
    dies_in(example, 1)
    with open_world(tmp_path / "data") as world:
        begin(world, tmp_path / "parent")
        talk_at_a_temperature(world)
        world.loop(('"sh trainer.sh"', json.dumps(shlex.join(example.command))))
        done = world.run_once()
        assert done.outcome == "promoted", done.why
        train = done.stage("train")
        assert train.failures == 1
        made = Path(url2pathname(urlsplit((train.result or {})["uri"]).path))
        assert (made / "model.safetensors").is_file()
