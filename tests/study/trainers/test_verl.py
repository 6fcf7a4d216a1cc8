"""Exports for verl, taken by verl: its data set, its advantages, its correction of rollouts, its
loss, and the worker by which its trainers update their actor."""

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.study.trainers.beginning import PARENT, begin
from tests.study.trainers.making import needs
from tests.support.export_rows import TOOLS, Row, in_table, stripped
from tests.support.loop_world import is_alive, open_world
from tests.support.repository import ROOT
from tests.support.waiting import eventually

TRAINERS = ROOT / "examples" / "trainers"
pytestmark = needs("torch", "verl")
ON_CPU = {
    "VERL_PLATFORM": "cpu",
    "VERL_ENGINE_DEVICE": "cuda",  # of the engines, those for GPUs
    "VERL_USE_EXTERNAL_MODULES": "verl_on_cpu",
    "PYTHONPATH": str(Path(__file__).parent),
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    "GLOO_SOCKET_IFNAME": "lo",
    "OMP_NUM_THREADS": "1",  # so that numbers are added in one order
    "HF_HUB_OFFLINE": "1",
    "ATTENTION": "sdpa",
    "DTYPE": "fp32",
    "RATE": "1e-3",
    "STEP": "2",
}
ALONE = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "", "MASTER_PORT": ""}


@pytest.fixture(scope="module")
def offline(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The example as a module, in the only rank that there is."""
    with pytest.MonkeyPatch.context() as patch:
        parent = {"PENSTOCK_PARENT_URI": model_folder.as_uri()}
        for name, value in (ON_CPU | ALONE | parent).items():
            patch.setenv(name, value)
        patch.syspath_prepend(Path(__file__).parent)
        patch.syspath_prepend(TRAINERS)
        from torch import distributed

        meeting = tmp_path_factory.mktemp("gloo") / "meeting"
        distributed.init_process_group("gloo", meeting.as_uri(), rank=0, world_size=1)
        yield importlib.import_module("verl_offline")
        distributed.destroy_process_group()


@pytest.fixture
def batch_of(
    offline: Any, exported: Callable[[list[Row], str], Path]
) -> Callable[[list[Row]], Any]:
    return lambda rows: offline.read(exported(rows, "verl") / "rollouts")


def test_its_data_set_reads_the_prompts(
    offline: Any, exported: Any, rows: list[Row], tokenizer: Any, tmp_path: Path
) -> None:
    from omegaconf import OmegaConf
    from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn

    folder = exported(rows, "verl")
    files = sorted(str(one) for one in (folder / "prompts").glob("train-*"))
    config = OmegaConf.create({"max_prompt_length": 512, "cache_dir": str(tmp_path / "cache")})
    found = RLHFDataset(files, tokenizer, config)
    written = in_table(folder, "train", "prompts")
    assert [stripped(one["raw_prompt"]) for one in found] == [
        stripped(one["prompt"]) for one in written
    ]
    batch = collate_fn([found[number] for number in range(len(found))])
    assert batch["index"].tolist() == list(range(len(written)))
    assert batch["data_source"].tolist() == [one["data_source"] for one in written]
    assert {one["tools"] for one in batch["extra_info"]} == {TOOLS}
    text = tokenizer.apply_chat_template(found[0]["raw_prompt"], tokenize=False)
    assert text.startswith("<|im_start|>system\nYou write code.\n<|im_end|>")


def test_its_options_are_called_so(offline: Any, tmp_path: Path) -> None:
    """What docs/training.md names: hydra refuses what is not there."""
    from hydra import compose, initialize_config_module
    from verl.utils.reward_score import default_compute_score

    correction = "algorithm.rollout_correction"
    options = [
        f"data.train_files={tmp_path}",
        f"data.val_files={tmp_path}",
        f"reward.custom_reward_function.path={tmp_path}",
        f"{correction}.rollout_is=token",
        f"{correction}.rollout_is_threshold=2.0",
        f"{correction}.bypass_mode=true",
        f"{correction}.loss_type=reinforce",
        f"trainer.default_local_dir={tmp_path}",
        "trainer.resume_mode=auto",
        "trainer.save_freq=50",
        "actor_rollout_ref.actor.checkpoint.save_contents=[model,optimizer,extra,hf_model]",
    ]
    with initialize_config_module("verl.trainer.config", version_base=None):
        compose("ppo_trainer", options)
        assert compose("ppo_trainer").trainer.save_freq == -1
    with pytest.raises(NotImplementedError, match="data_source='penstock'"):
        default_compute_score("penstock", "", "")


def test_a_batch_is_what_the_rows_say(batch_of: Any, rows: list[Row]) -> None:
    batch = batch_of(rows).batch
    for at, row in enumerate(rows):
        there = batch["attention_mask"][at].bool()
        first = row["prompt_len"]
        assert batch["input_ids"][at][there].tolist() == row["input_ids"].tolist()
        assert batch["position_ids"][at][there].tolist() == list(range(row["n_tokens"]))
        answered = there[batch["prompts"].shape[1] :]
        mask = batch["response_mask"][at]
        assert mask[answered].tolist() == row["loss_mask"][first:].tolist()
        assert not mask[~answered].any()
        scored = batch["rm_scores"][at].nonzero().flatten().tolist()
        assert scored == [row["n_tokens"] - first - 1]
        assert batch["rm_scores"][at].sum() == row["reward"]
        assert (batch["advantages"][at] == row["advantage"] * mask).all()


def test_only_tokens_of_the_mask_have_a_gradient(
    offline: Any, batch_of: Any, rows: list[Row]
) -> None:
    import torch

    batch = batch_of(rows)
    batch.batch["old_log_probs"] = batch.batch["rollout_log_probs"].clone()
    tokens = int(batch.batch["response_mask"].sum())
    data = offline.unpadded(batch, dp_size=1, batch_num_tokens=tokens, global_batch_size=len(batch))
    # What a model says at a token is of the next one.
    said = [torch.tensor([*row["rollout_logprobs"][1:], 0.0]) for row in rows]
    logprobs = torch.cat(said).requires_grad_()
    given = torch.nested.nested_tensor_from_jagged(logprobs, data["input_ids"].offsets())
    loss, _ = offline.ppo_loss(offline.ACTOR, {"log_probs": given}, data)
    loss.backward()
    assert logprobs.grad is not None
    gradients = logprobs.grad.split([row["n_tokens"] for row in rows])
    for row, gradient in zip(rows, gradients, strict=True):
        assert (gradient[:-1] != 0).tolist() == row["loss_mask"][1:].astype(bool).tolist()
        assert gradient[-1] == 0


def test_the_first_ratio_is_one(offline: Any, batch_of: Any, rows: list[Row]) -> None:
    """verl's worker finds the model's own tokens as likely as the model that wrote them."""
    batch = batch_of(rows)
    data = offline.unpadded(batch, compute_loss=False)
    found = offline.tensordict_utils.get(offline.start(1).infer_batch(data), "log_probs")
    gone = offline.no_padding_2_padding(found, data).float() - batch.batch["rollout_log_probs"]
    ratio = gone.exp()[batch.batch["response_mask"].bool()]
    assert int(ratio.numel()) == sum(row["n_trainable"] for row in rows)
    assert 0.999 < ratio.min() <= ratio.max() < 1.001


def test_a_loop_trains_with_it_through_a_kill(
    offline: Any, model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    died = tmp_path / "died"
    monkeypatch.setenv("VERL_DIES", str(died))
    command = f'command = "sh {TRAINERS / "verl.sh"}"'
    with open_world(tmp_path / "lake") as world:
        begin(world, model_folder)
        world.talk(PARENT, first=100)
        world.loop(('command = "sh trainer.sh"', command), ('"60s"', '"10m"'))
        cycle = world.run_once()
        assert (cycle.outcome, cycle.parent) == ("promoted", PARENT), cycle.why
        assert cycle.stage("train").failures == 1
        eventually(lambda: not is_alive(int(died.read_text())))
        made = Path(cycle.results["train"]["uri"].removeprefix("file://"))
        cycle_folder = tmp_path / "lake" / "loops" / "mini" / "cycle-0001"
        (work,) = (cycle_folder / "work").iterdir()
        log = cycle_folder / "try-002" / "trainer.log"
    begun = [line[0] for line in log.read_text().splitlines() if "'loss'" in line]
    assert begun[0] == "2", "it did not go on from its snapshot"
    learned = at_once(offline, work / "data" / "rollouts")
    assert weights_of(made) == listed(learned)
    assert weights_of(model_folder) != listed(learned)
    merge(work / "made", tmp_path / "merged")
    rounded = {name: one.bfloat16().float() for name, one in learned.items()}
    assert weights_of(tmp_path / "merged") == listed(rounded)


def at_once(offline: Any, rollouts: Path) -> dict[str, Any]:
    """The weights that one makes that nobody kills."""
    batch = offline.read(rollouts)
    steps = offline.in_steps(len(batch))
    worker = offline.start(len(steps))
    for rows in steps:
        offline.learn(worker, batch[rows])
    weights = worker.engine.module.state_dict()
    return {name: one.full_tensor() for name, one in weights.items()}


def merge(folder: Path, out: Path) -> None:
    from verl.model_merger.base_model_merger import ModelMergerConfig
    from verl.model_merger.fsdp_model_merger import FSDPModelMerger

    facts = {"local_dir": str(folder), "hf_model_config_path": str(folder / "huggingface")}
    config = ModelMergerConfig("merge", "fsdp", target_dir=str(out), **facts)
    FSDPModelMerger(config).merge_and_save()


def weights_of(folder: Path) -> dict[str, list[float]]:
    from safetensors.torch import load_file

    return listed(load_file(folder / "model.safetensors"))


def listed(weights: dict[str, Any]) -> dict[str, list[float]]:
    return {name: one.float().flatten().tolist() for name, one in weights.items()}
