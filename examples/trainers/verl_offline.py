"""Trains on rollouts of a shard with the worker by which verl's trainers update their actor: its
FSDP, its loss, its correction of rollouts. No Ray, and nothing is sampled.

    torchrun --standalone --nproc-per-node 8 verl_offline.py FOLDER

FOLDER/data is an export for verl. FOLDER/step_N are snapshots, and the last becomes FOLDER/made,
with the model in `huggingface`: verl.sh does all of it. One that was killed goes on from its last
snapshot, and learns what one that was never killed learns. RATE, STEP, TOKENS, ATTENTION and DTYPE
in the environment say more; the rest of what there is to choose is below, as verl calls it.
"""

import ctypes
import os
import shutil
import signal
import sys
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow.parquet as pq
import torch
from torch import distributed
from verl import DataProto
from verl.trainer.config import CheckpointConfig
from verl.trainer.config.algorithm import RolloutCorrectionConfig
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_add_to_batch
from verl.utils import tensordict_utils
from verl.utils.device import get_torch_device
from verl.workers.config import (
    FSDPActorConfig,
    FSDPEngineConfig,
    FSDPOptimizerConfig,
    HFModelConfig,
    TrainingWorkerConfig,
)
from verl.workers.engine_workers import TrainingWorker
from verl.workers.utils.losses import ppo_loss
from verl.workers.utils.padding import left_right_2_no_padding, no_padding_2_padding

told = os.environ
RATE = float(told.get("RATE", "1e-6"))
#: Samples of a step, and tokens that a device takes at once: no less than the longest sample.
STEP, TOKENS = int(told.get("STEP", "64")), int(told.get("TOKENS", "16384"))
ATTENTION, DTYPE = told.get("ATTENTION", "flash_attention_2"), told.get("DTYPE", "bf16")
#: Weighs each token by how likely the weights hold it against how likely the engine held it.
CORRECTION = RolloutCorrectionConfig(rollout_is="token", rollout_is_threshold=2.0)
#: The whole model too, in float32. verl's merger of shards would round it to bfloat16, and with it
#: most of what a short training at a low rate has learned.
KEPT = CheckpointConfig(save_contents=["model", "optimizer", "extra", "hf_model"])
ACTOR = FSDPActorConfig(strategy="fsdp2", rollout_n=1, use_dynamic_bsz=True)
_KINDS = {
    "prompts": torch.long, "responses": torch.long, "attention_mask": torch.long,
    "response_mask": torch.long, "rollout_log_probs": torch.float, "rm_scores": torch.float,
}  # fmt: skip


def read(folder):
    """What verl has after its own rollouts, of the whole split."""
    table = pq.ParquetDataset(sorted(folder.glob("train-*.parquet"))).read()
    batch = {
        name: torch.tensor(np.stack(table[name].to_numpy()), dtype=kind)
        for name, kind in _KINDS.items()
    }
    batch["input_ids"] = torch.cat([batch["prompts"], batch["responses"]], dim=1)
    batch["position_ids"] = (batch["attention_mask"].cumsum(1) - 1).clamp(min=0)
    # Where nobody said it, what verl samples by.
    batch["temperature"] = torch.tensor(table["temperature"].fill_null(1.0).to_numpy())
    batch["advantages"] = advantages(table, batch)
    return DataProto.from_dict(batch, {"uid": table["uid"].to_numpy()})


def advantages(table, batch):
    """The recipe's; where it asked for none, those of verl's GRPO."""
    mask = batch["response_mask"]
    if table["advantage"].null_count == 0:
        return torch.tensor(table["advantage"].to_numpy())[:, None] * mask
    return compute_grpo_outcome_advantage(batch["rm_scores"], mask, table["uid"].to_numpy())[0]


def in_steps(count):
    """Which rows each step takes: the same for whoever asks again."""
    return np.array_split(np.random.default_rng(7).permutation(count), max(1, count // STEP))


def start(steps):
    uri = urlsplit(told["PENSTOCK_PARENT_URI"])
    worker = TrainingWorker(
        TrainingWorkerConfig(
            model_type="language_model",
            model_config=HFModelConfig(
                path=unquote(uri.path) if uri.scheme == "file" else uri.geturl(),
                override_config={"attn_implementation": ATTENTION},
                use_remove_padding=ATTENTION.startswith("flash"),
            ),
            engine_config=FSDPEngineConfig(
                strategy="fsdp2",
                mixed_precision={"param_dtype": DTYPE},
                max_token_len_per_gpu=TOKENS,
                infer_max_token_len_per_gpu=TOKENS,
            ),
            optimizer_config=FSDPOptimizerConfig(lr=RATE, total_training_steps=steps),
            checkpoint_config=KEPT,
        )
    )
    worker.reset()
    worker.set_loss_fn(partial(ppo_loss, config=ACTOR))
    return worker


def unpadded(batch, **facts):
    data = left_right_2_no_padding(batch.to_tensordict())
    tensordict_utils.assign_non_tensor(data, **facts)
    return data


def learn(worker, batch):
    """A step as verl's trainers take it, of this rank's part of a batch."""
    mine = batch[distributed.get_rank() :: distributed.get_world_size()]
    data = unpadded(mine, compute_loss=False)
    found = tensordict_utils.get(worker.infer_batch(data), "log_probs")
    mine.batch["old_log_probs"] = no_padding_2_padding(found, data).float()
    mine, seen = compute_rollout_correction_and_add_to_batch(mine, CORRECTION)
    data = unpadded(mine, global_batch_size=len(batch), update_lr_scheduler=True)
    return seen | tensordict_utils.get(worker.train_batch(data), "metrics")


def put(made, name):
    """Under its name when all ranks have written it; then what was there before goes. What was only
    half written is written over."""
    distributed.barrier()
    if distributed.get_rank() == 0:
        made.rename(made.with_name(name))
        for old in made.parent.glob("step_*"):
            if old.name != name:
                shutil.rmtree(old)
    distributed.barrier()


def main(folder):
    # torchrun puts its workers where a signal to the group of the trainer's command does not come.
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    distributed.init_process_group()
    get_torch_device().set_device(int(told["LOCAL_RANK"]))
    rollouts = read(folder / "data" / "rollouts")
    steps = in_steps(len(rollouts))
    worker = start(len(steps))
    done = max((int(one.name[5:]) for one in folder.glob("step_*")), default=0)
    if done:
        worker.load_checkpoint(str(folder / f"step_{done}"))
    for number, rows in enumerate(steps[done:], start=done + 1):
        seen = learn(worker, rollouts[rows])
        if distributed.get_rank() == 0:
            print(number, {name: seen[name] for name in ("loss", "grad_norm", "lr")}, flush=True)
        worker.save_checkpoint(str(folder / "part"), global_step=number)
        put(folder / "part", f"step_{number}")
    put(folder / f"step_{len(steps)}", "made")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
