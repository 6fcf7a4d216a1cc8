"""What trainers share that are built on the Trainer of transformers, as TRL's are: the parent, the
data, snapshots that are whole, and the answer. trl_sft.py and trl_grpo.py use it.

One process. Of several, by `accelerate launch`, the first exports and answers; that was not tried.
"""

import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import torch
from accelerate import PartialState
from datasets import load_dataset
from transformers import TrainerCallback

import penstock

told = os.environ
#: Stays from one try to the next. Snapshots of another shard say nothing here.
work = Path(told["PENSTOCK_WORK"], told["PENSTOCK_SHARD"][-12:])
SETTINGS = {
    "bf16": torch.cuda.is_available(),
    "output_dir": str(work / "snapshots"),
    "save_steps": int(told.get("SAVE_STEPS", "50")),
    "save_total_limit": 2,  # the older one is there until the newer one is whole
}


def parent():
    """The folder of the checkpoint to train on from."""
    return url2pathname(urlsplit(told["PENSTOCK_PARENT_URI"]).path)


def exported(target, below=""):
    """The shard's split `train` in a form that TRL reads. An export appears whole or not at all."""
    folder = work / target
    with PartialState().main_process_first():
        if not folder.exists():
            command = [sys.executable, "-m", "penstock", "shards", "export", told["PENSTOCK_SHARD"]]
            where = ["--to", target, "--out", folder, "--data", told["PENSTOCK_DATA"]]
            subprocess.run([*command, *where], check=True)
        files = sorted(str(path) for path in Path(folder, below).glob("train-*.parquet"))
        return load_dataset("parquet", data_files=files, split="train", cache_dir=str(work))


class _Whole(TrainerCallback):
    """Marks a snapshot once all of it is there. One that was cut off by a kill has no mark."""

    def on_save(self, args, state, control, **_):
        PartialState().wait_for_everyone()
        Path(args.output_dir, f"checkpoint-{state.global_step}", "whole").touch()


def train(trainer):
    """From the newest snapshot on, to the answer."""
    trainer.add_callback(_Whole())
    marks = Path(trainer.args.output_dir).glob("checkpoint-*/whole")
    snapshots = sorted((mark.parent for mark in marks), key=lambda one: int(one.name[11:]))
    trainer.train(resume_from_checkpoint=str(snapshots[-1]) if snapshots else None)
    made = Path(told["PENSTOCK_OUTPUT"])
    trainer.save_model(str(made))
    if trainer.is_world_process_zero():
        (made / "training_args.bin").unlink()  # it names the folders of this try
        penstock.trained(made)
