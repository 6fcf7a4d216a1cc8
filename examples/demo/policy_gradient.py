"""A trainer: policy gradient on the tokens of a shard, for the GPT of the demonstration.

The shard is read by `read_shard`. Each place where `loss_mask` is set has the log-probability with
which its token was sampled, and its row has an advantage. Tokens count by how likely they have
become meanwhile, and training ends where the model is far enough from the one that sampled.
"""

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit
from urllib.request import url2pathname

import gpt
import numpy as np

import penstock

BATCH = 32
PASSES_MAX = 8
#: A token that has become so many times likelier counts no more than that.
RATIO_MAX = 3.0


class Row(NamedTuple):
    """A conversation: its tokens, which of them were sampled and how likely, and its advantage."""

    ids: np.ndarray
    sampled: np.ndarray
    logprobs: np.ndarray
    advantage: float


class Pass(NamedTuple):
    """What one pass over the rows showed: how far the model had gone, in nats for an answer."""

    first_ratio: float
    distance: float


def read_rows(data: str, shard: str) -> list[Row]:
    columns = ("input_ids", "loss_mask", "rollout_logprobs", "advantage")
    rows = []
    for batch in penstock.read_shard(data, shard, seed=7):
        for ids, mask, logprobs, advantage in zip(*(batch[name] for name in columns), strict=True):
            cut = slice(0, gpt.CONTEXT)
            rows.append(Row(ids[cut].copy(), mask[cut] > 0, logprobs[cut].copy(), float(advantage)))
    return rows


def train(model: gpt.Gpt, rows: Sequence[Row], *, furthest: float, rate: float) -> list[Pass]:
    """Climb the policy gradient, pass after pass, until the model has gone far enough."""
    advantages = np.array([row.advantage for row in rows])
    scaled = (advantages - advantages.mean()) / (advantages.std() + 1e-9)
    mean_sampled = sum(int(row.sampled.sum()) for row in rows) / len(rows)
    # Rows of like length go together: padding costs as much as text.
    order = np.argsort([len(row.ids) for row in rows], kind="stable")
    batches = [order[at : at + BATCH] for at in range(0, len(rows), BATCH)]
    optimizer, dice, passes = gpt.Adam(model), np.random.default_rng(7), list[Pass]()
    for _ in range(PASSES_MAX):
        ratios, distances = list[float](), list[float]()
        for at in dice.permutation(len(batches)):
            batch = Batch.of([rows[one] for one in batches[at]], scaled[batches[at]])
            ratios.append(batch.climb(model, optimizer, mean_sampled, rate))
            distances.append(batch.distance)
        passes.append(Pass(ratios[0], float(np.mean(distances))))
        if passes[-1].distance >= furthest:
            break
    return passes


@dataclass
class Batch:
    ids: np.ndarray
    #: Of each token behind the first: whether it was sampled, and how likely it was then.
    sampled: np.ndarray
    before: np.ndarray
    advantages: np.ndarray
    #: From the model that sampled, in nats a token, before the step.
    distance: float = 0.0

    @classmethod
    def of(cls, rows: Sequence[Row], advantages: np.ndarray) -> "Batch":
        ids = gpt.padded([row.ids for row in rows])
        sampled, before = np.zeros(ids.shape, bool), np.zeros(ids.shape, np.float32)
        for at, row in enumerate(rows):
            sampled[at, : len(row.ids)] = row.sampled
            before[at, : len(row.ids)] = row.logprobs
        return cls(ids, sampled[:, 1:], before[:, 1:], advantages[:, None])

    def climb(self, model: gpt.Gpt, optimizer: gpt.Adam, mean_sampled: float, rate: float) -> float:
        """Take a step. Returns the mean ratio of the tokens' chances, now and when sampled."""
        tape, token = gpt.Tape(self.ids), self.ids[:, 1:, None]
        logits = model.forward(self.ids, tape)
        logprobs = gpt.log_softmax(logits[:, :-1])
        gone = np.take_along_axis(logprobs, token, 2)[..., 0] - self.before
        gone = np.where(self.sampled, gone, 0)
        ratios = np.exp(gone)
        weights = np.where(self.sampled, np.minimum(ratios, RATIO_MAX) * self.advantages, 0)
        weights = (weights / (mean_sampled * len(self.ids)))[..., None].astype(np.float32)
        slope = np.zeros_like(logits)
        slope[:, :-1] = np.exp(logprobs) * weights
        own = np.take_along_axis(slope[:, :-1], token, 2) - weights
        np.put_along_axis(slope[:, :-1], token, own, 2)
        optimizer.step(model.backward(tape, slope), rate)
        # An estimate of the divergence that is never negative.
        self.distance = float((ratios - 1 - gone)[self.sampled].mean())
        return float(ratios[self.sampled].mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--furthest", type=float, default=0.05, help="nats a token, from the parent"
    )
    parser.add_argument("--rate", type=float, default=3e-4, help="of learning")
    parser.add_argument("--wrong-way", action="store_true", help="a bug, to see what it does")
    said = parser.parse_args()
    told = os.environ

    model = gpt.Gpt.load(Path(url2pathname(urlsplit(told["PENSTOCK_PARENT_URI"]).path)))
    rows = read_rows(told["PENSTOCK_DATA"], told["PENSTOCK_SHARD"])
    if said.wrong_way:
        rows = [row._replace(advantage=-row.advantage) for row in rows]
    passes = train(model, rows, furthest=said.furthest, rate=said.rate)
    weights = Path(told["PENSTOCK_OUTPUT"], f"{told['PENSTOCK_CHECKPOINT']}.npz")
    model.save(weights)
    print(
        f"{len(rows)} rows, {len(passes)} passes; the first ratio was {passes[0].first_ratio:.6f},"
        f" and the model went {passes[-1].distance:.3f} nats a token from its parent"
    )
    penstock.trained(weights)


if __name__ == "__main__":
    main()
