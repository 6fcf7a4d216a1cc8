"""Learning from hints in plain PyTorch, straight from a shard of hint rows. It may be killed at any
moment, and makes the checkpoint that it would have made.

    [trainer]
    command = "python3 {here}/../trainers/hints.py --rate 1e-6 --advantage 3"

Nothing is generated: the teacher, a slow copy of the model, reads the recorded completion with the
hint before it, and the model moves towards it on the tokens that the hint is about.
"""

import argparse
import os
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer

import penstock
from penstock.shards.torch import ShardDataset

COLUMNS = (
    "input_ids", "loss_mask", "rollout_logprobs", "temperature",
    "hint_ids", "hint_position", "hint_start", "hint_end",
)  # fmt: skip
#: How much of the running mean is kept at each row.
DECAY = 0.95


@dataclass
class Row:
    """A completion with its hint. `told` is what the teacher reads. `places` are those of the
    trained tokens in `ids`; in `told` they come `len(told) - len(ids)` later."""

    ids: torch.Tensor
    told: torch.Tensor
    places: torch.Tensor
    sampled: torch.Tensor
    temperature: float


@dataclass
class Progress:
    """Rows that were learned from, the others, and the mean size of the advantages."""

    learned: int = 0
    left_out: int = 0
    mean: float = 0.0

    def add(self, size):
        """The first row's own is where the mean begins."""
        self.mean = DECAY * self.mean + (1 - DECAY) * size if self.mean else size


def of_row(batch, name, row):
    begin, end = batch[f"{name}.offsets"][row : row + 2].tolist()
    return batch[name][begin:end]


def hinted(batch, device):
    """The rows with a hint about trained tokens, and with what their sampler thought of them. The
    others give no gradient."""
    for row in range(len(batch["hint_position"])):
        names = ("input_ids", "loss_mask", "rollout_logprobs", "hint_ids")
        ids, mask, sampled, hint = (of_row(batch, name, row) for name in names)
        names = ("hint_position", "hint_start", "hint_end")
        position, start, stop = (int(batch[name][row]) for name in names)
        if not len(hint) or not len(sampled) or not mask[start:stop].any():
            continue
        places = start + mask[start:stop].nonzero()[:, 0]
        temperature = float(batch["temperature"][row])
        yield Row(
            ids=ids.long().to(device),
            told=torch.cat([ids[:position], hint, ids[position:]]).long().to(device),
            places=places.to(device),
            sampled=sampled[places].to(device),
            temperature=temperature if temperature > 0 else 1.0,
        )


def foretold(model, ids, places, temperature):
    """Log-probabilities of all tokens at each place, which those before it foretell."""
    logits = model(ids[None]).logits[0, places - 1].float() / temperature
    return logits.log_softmax(-1)


def in_buckets(logprobs, kept):
    """The kept tokens, and all others as one more."""
    best = logprobs.gather(-1, kept)
    others = best.logsumexp(-1, keepdim=True).clamp(max=-1e-6)
    return torch.cat([best, (-others.expm1()).log()], -1)


def divergence(student, teacher, row, progress, asked):
    """The loss, summed over the row's tokens; log q - log s and the ratio of the recorded tokens.

    Its gradient is that of KL(student || teacher), apart from two limits. The advantage of no
    bucket, log q - log s, is larger than a multiple of its running mean; and a token that the model
    of then would not have written counts `clip` times at most."""
    kept = student.detach().topk(min(asked.top, student.shape[-1])).indices
    buckets = in_buckets(student, kept)
    advantage = (in_buckets(teacher, kept) - buckets).detach()
    progress.add((buckets.detach().exp() * advantage.abs()).sum(-1).mean().item())
    limit = asked.advantage * progress.mean
    recorded = row.ids[row.places, None]
    own, taught = (each.detach().gather(-1, recorded)[:, 0] for each in (student, teacher))
    ratio = (own - row.sampled).exp()
    gain = (buckets.exp() * advantage.clamp(-limit, limit)).sum(-1)
    return -(ratio.clamp(max=asked.clip) * gain).sum(), taught - own, ratio


@torch.no_grad()
def follow(teacher, model, rate):
    """The teacher keeps most of itself."""
    for kept, new in zip(teacher.parameters(), model.parameters(), strict=True):
        kept.lerp_(new, rate)


def learn(models, optimizer, rows, progress, asked):
    """One step. Returns the means of log q - log s and of the ratio over the recorded tokens."""
    model, teacher = models
    tokens, told = sum(len(row.places) for row in rows), []
    for row in rows:
        student = foretold(model, row.ids, row.places, row.temperature)
        with torch.no_grad():
            later = row.places + len(row.told) - len(row.ids)
            taught = foretold(teacher, row.told, later, row.temperature)
        loss, gap, ratio = divergence(student, taught, row, progress, asked)
        (loss / tokens).backward()
        told.append(torch.stack([gap, ratio]))
    torch.nn.utils.clip_grad_norm_(model.parameters(), asked.norm)
    optimizer.step()
    optimizer.zero_grad()
    follow(teacher, model, asked.teacher_rate)
    progress.learned += len(rows)
    return torch.cat(told, -1).mean(-1).tolist()


def options(*given):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rate", type=float, default=1e-5, help="learning rate of AdamW")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--top", type=int, default=100, help="likeliest tokens to compare")
    parser.add_argument("--clip", type=float, default=2.0, help="largest ratio to the sampler")
    parser.add_argument("--advantage", type=float, default=3.0, help="largest, in running means")
    parser.add_argument("--teacher-rate", type=float, default=0.05, help="how fast it follows")
    parser.add_argument("--norm", type=float, default=1.0, help="longest gradient of a step")
    parser.add_argument("--batch-tokens", type=int, default=65_536)
    parser.add_argument("--save-steps", type=int, default=50)
    return parser.parse_args(given or None)


def main():
    asked, told = options(), os.environ
    snapshot = Path(told["PENSTOCK_WORK"], told["PENSTOCK_SHARD"][-12:] + ".pt")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    parent = url2pathname(urlsplit(told["PENSTOCK_PARENT_URI"]).path)
    model, teacher = (AutoModelForCausalLM.from_pretrained(parent).to(device) for _ in range(2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=asked.rate)
    parts = {"model": model, "teacher": teacher, "optimizer": optimizer}
    progress, begun, place = Progress(), 0, None
    if snapshot.exists():
        saved = torch.load(snapshot)
        for name, part in parts.items():
            part.load_state_dict(saved[name])
        progress, begun, place = Progress(**saved["progress"]), saved["epoch"], saved["reader"]

    for epoch in range(begun, asked.epochs):
        source = partial(
            penstock.read_shard,
            told["PENSTOCK_DATA"],
            told["PENSTOCK_SHARD"],
            seed=7,
            epoch=epoch,
            batch_tokens=asked.batch_tokens,
            columns=COLUMNS,
        )
        dataset = ShardDataset(source)
        if place is not None:
            dataset.load_state_dict(place)
        for step, batch in enumerate(DataLoader(dataset, batch_size=None), 1):
            rows = list(hinted(batch, device))
            progress.left_out += len(batch["hint_position"]) - len(rows)
            if rows:
                gap, ratio = learn((model, teacher), optimizer, rows, progress, asked)
                print(f"epoch {epoch} step {step}: log q - log s {gap:.4f} ratio {ratio:.4f}")
            if step % asked.save_steps == 0:
                part = snapshot.with_suffix(".part")
                states = {name: kept.state_dict() for name, kept in parts.items()}
                states |= {"epoch": epoch, "reader": batch["state"], "progress": asdict(progress)}
                torch.save(states, part)
                part.rename(snapshot)
        place = None
    print(f"{progress.learned} rows, and {progress.left_out} without a hint or log-probabilities")
    if not progress.learned:
        raise SystemExit("No row has a hint about tokens of an engine: build with [hints].")

    made = told["PENSTOCK_OUTPUT"]
    model.save_pretrained(made)
    AutoTokenizer.from_pretrained(parent).save_pretrained(made)
    penstock.trained(made)


if __name__ == "__main__":
    main()
