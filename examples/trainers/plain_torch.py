"""Policy gradients in plain PyTorch, straight from the shard: no export, no trainer's library.
It may be killed at any moment, and makes the checkpoint that it would have made.

    [trainer]
    command = "python3 {here}/../trainers/plain_torch.py --rate 1e-6 --epochs 2 --clip 0.2 0.28"

The weights, the optimizer and the place in the shard are one file that is replaced whole. The first
ratio is 1 where engine and trainer agree.
"""

import argparse
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
from penstock.shards.batches import TRAINING_COLUMNS
from penstock.shards.torch import ShardDataset

parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("--rate", type=float, default=1e-5, help="learning rate of AdamW")
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--clip", type=float, nargs="+", default=[0.2], metavar="BELOW [ABOVE]",
                    help="how far from 1 a ratio still counts")  # fmt: skip
parser.add_argument("--norm", type=float, default=1.0, help="longest gradient of a step")
parser.add_argument("--batch-tokens", type=int, default=65_536)
parser.add_argument("--save-steps", type=int, default=50)
asked = parser.parse_args()

told = os.environ
snapshot = Path(told["PENSTOCK_WORK"], told["PENSTOCK_SHARD"][-12:] + ".pt")
device = "cuda" if torch.cuda.is_available() else "cpu"

parent = url2pathname(urlsplit(told["PENSTOCK_PARENT_URI"]).path)
model = AutoModelForCausalLM.from_pretrained(parent).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=asked.rate)


def batches(epoch, place):
    source = partial(
        penstock.read_shard,
        told["PENSTOCK_DATA"],
        told["PENSTOCK_SHARD"],
        seed=7,
        epoch=epoch,
        batch_tokens=asked.batch_tokens,
        columns=[*TRAINING_COLUMNS, "temperature"],
    )
    dataset = ShardDataset(source)
    if place is not None:
        dataset.load_state_dict(place)
    return DataLoader(dataset, batch_size=None)


def load():
    """The epoch and the place in it."""
    if not snapshot.exists():
        return 0, None
    saved = torch.load(snapshot)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    return saved["epoch"], saved["reader"]


def save(epoch, state):
    part = snapshot.with_suffix(".part")
    learned = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(learned | {"epoch": epoch, "reader": state}, part)
    part.rename(snapshot)


def sequences(batch):
    """Each row that is trained: ids, which of them count, the sampler's log-probabilities, the
    advantage and the sampler's temperature."""
    begins = batch["input_ids.offsets"].tolist()
    for row, (begin, end) in enumerate(pairwise(begins)):
        names = ("input_ids", "loss_mask", "rollout_logprobs")
        ids, mask, sampled = (batch[name][begin:end].to(device) for name in names)
        advantage, temperature = (
            batch[name][row].to(device) for name in ("advantage", "temperature")
        )
        if mask.any() and advantage.isfinite():
            temperature = temperature if temperature > 0 else torch.ones_like(temperature)
            yield ids.long(), mask[1:].bool(), sampled[1:], advantage, temperature


def loss_of(ids, mask, sampled, advantage, temperature):
    """Summed over the tokens that the model wrote: token i is foretold by those before it. And the
    ratios."""
    logits = model(ids[None]).logits[0, :-1].float() / temperature
    logprobs = logits.log_softmax(-1).gather(1, ids[1:, None])[:, 0]
    ratio = (logprobs - sampled).exp()[mask]
    kept = ratio.clamp(1 - asked.clip[0], 1 + asked.clip[-1])
    return -torch.min(ratio * advantage, kept * advantage).sum(), ratio.detach()


begun, place = load()
for epoch in range(begun, asked.epochs):
    for step, batch in enumerate(batches(epoch, place), 1):
        trained = max(int(batch["loss_mask"].sum()), 1)
        total, ratios = 0.0, [torch.empty(0, device=device)]
        for sequence in sequences(batch):
            loss, ratio = loss_of(*sequence)
            (loss / trained).backward()
            total += loss.item() / trained
            ratios.append(ratio)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), asked.norm)
        optimizer.step()
        optimizer.zero_grad()
        mean = torch.cat(ratios).mean().item()
        print(f"epoch {epoch} step {step}: loss {total:.5f} ratio {mean:.4f} gradient {norm:.3g}")
        if step % asked.save_steps == 0:
            save(epoch, batch["state"])
    place = None

made = told["PENSTOCK_OUTPUT"]
model.save_pretrained(made)
AutoTokenizer.from_pretrained(parent).save_pretrained(made)
penstock.trained(made)
