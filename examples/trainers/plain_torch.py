"""Policy gradients in plain PyTorch, straight from the shard: no export, no trainer's library.
It may be killed at any moment, and makes the checkpoint that it would have made.

    [trainer]
    command = "python3 {here}/../trainers/plain_torch.py"

The weights, the optimizer and the place in the shard are one file that is replaced whole.
"""

import os
from functools import partial
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer

import penstock
from penstock.shards.torch import ShardDataset

told = os.environ
snapshot = Path(told["PENSTOCK_WORK"], told["PENSTOCK_SHARD"][-12:] + ".pt")
save_steps = int(told.get("SAVE_STEPS", "50"))
device = "cuda" if torch.cuda.is_available() else "cpu"

parent = url2pathname(urlsplit(told["PENSTOCK_PARENT_URI"]).path)
model = AutoModelForCausalLM.from_pretrained(parent).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
dataset = ShardDataset(
    partial(
        penstock.read_shard,
        told["PENSTOCK_DATA"],
        told["PENSTOCK_SHARD"],
        seed=7,
        batch_tokens=int(told.get("BATCH_TOKENS", "65536")),
    )
)


def load():
    if snapshot.exists():
        saved = torch.load(snapshot)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        dataset.load_state_dict(saved["reader"])


def save(state):
    part = snapshot.with_suffix(".part")
    learned = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(learned | {"reader": state}, part)
    part.rename(snapshot)


def sequences(batch):
    """Each row that is trained: ids, which of them count, the sampler's log-probabilities."""
    begins = batch["input_ids.offsets"].tolist()
    for row, (begin, end) in enumerate(pairwise(begins)):
        names = ("input_ids", "loss_mask", "rollout_logprobs")
        ids, mask, sampled = (batch[name][begin:end].to(device) for name in names)
        if mask.any():
            yield ids.long(), mask[1:].bool(), sampled[1:], batch["advantage"][row].to(device)


def loss_of(ids, mask, sampled, advantage):
    """Summed over the tokens that the model wrote: token i is foretold by those before it."""
    logits = model(ids[None]).logits[0, :-1].float()
    logprobs = logits.log_softmax(-1).gather(1, ids[1:, None])[:, 0]
    ratio = (logprobs - sampled).exp()[mask]
    return -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).sum()


load()
for step, batch in enumerate(DataLoader(dataset, batch_size=None), 1):
    trained = max(int(batch["loss_mask"].sum()), 1)
    for sequence in sequences(batch):
        (loss_of(*sequence) / trained).backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % save_steps == 0:
        save(batch["state"])

made = told["PENSTOCK_OUTPUT"]
model.save_pretrained(made)
AutoTokenizer.from_pretrained(parent).save_pretrained(made)
penstock.trained(made)
