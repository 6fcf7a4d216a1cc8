"""A trainer: learns from hints of what users did, for the GPT of the demonstration.

A row has the tokens that were sampled, and a hint that nobody could know when they were: the text
that the user wrote instead. The parent reads the hint, where `hint_position` says, and the new
model learns to say without it what the parent says with it, at each token of the hint's span.
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

BATCH, PASSES_MAX = 32, 8
#: A token that has become so many times likelier counts no more than that.
RATIO_MAX = 3.0


class HintedRow(NamedTuple):
    """A conversation as it was, the same with its hint, and the tokens that the hint is about."""

    ids: np.ndarray
    hinted: np.ndarray
    start: int
    end: int
    logprobs: np.ndarray


class Pass(NamedTuple):
    """What one pass over the rows showed, in nats a token."""

    first_ratio: float
    #: How much likelier the parent with the hint held what was said than the model without it.
    gain: float
    distance: float


def read_rows(data: str, shard: str) -> list[HintedRow]:
    columns = (
        "input_ids", "rollout_logprobs", "hint_ids", "hint_position", "hint_start", "hint_end"
    )  # fmt: skip
    rows = []
    for batch in penstock.read_shard(data, shard, seed=7, columns=columns):
        for ids, logprobs, hint, place, start, end in zip(
            *(batch[name] for name in columns), strict=True
        ):
            hinted = np.concatenate([ids[:place], hint, ids[place:]])
            if len(hinted) <= gpt.CONTEXT:
                rows.append(HintedRow(ids.copy(), hinted, int(start), int(end), logprobs.copy()))
    return rows


def train(model: gpt.Gpt, rows: Sequence[HintedRow], *, furthest: float, rate: float) -> list[Pass]:
    """Come closer to the parent with its hints, pass after pass, until the model is far enough from
    the one that sampled."""
    parent = gpt.Gpt({name: each.copy() for name, each in model.weights.items()})
    order = np.argsort([len(row.hinted) for row in rows], kind="stable")
    batches = [
        HintedBatch.of([rows[one] for one in order[at : at + BATCH]], parent)
        for at in range(0, len(rows), BATCH)
    ]
    optimizer, dice, passes = gpt.Adam(model), np.random.default_rng(7), list[Pass]()
    for _ in range(PASSES_MAX):
        steps = [
            batches[at].descend(model, optimizer, rate) for at in dice.permutation(len(batches))
        ]
        means = np.mean(steps, 0)
        passes.append(Pass(steps[0].first_ratio, float(means[1]), float(means[2])))
        if passes[-1].distance >= furthest:
            break
    return passes


@dataclass
class HintedBatch:
    ids: np.ndarray
    #: Of each token behind the first: whether the hint is about it, and how likely it was then.
    about: np.ndarray
    before: np.ndarray
    #: What the parent thinks of each next token when it has read the hint.
    wanted: np.ndarray

    @classmethod
    def of(cls, rows: Sequence[HintedRow], parent: gpt.Gpt) -> "HintedBatch":
        ids, hinted = (gpt.padded([row[at] for row in rows]) for at in (0, 1))
        thought = gpt.log_softmax(parent.forward(hinted))
        about, before = np.zeros(ids.shape, bool), np.zeros(ids.shape, np.float32)
        wanted = np.zeros((*ids.shape, len(gpt.TOKENS)), np.float32)
        for at, row in enumerate(rows):
            span, later = slice(row.start, row.end), len(row.hinted) - len(row.ids)
            about[at, span] = True
            before[at, span] = row.logprobs[span]
            wanted[at, span] = thought[at, row.start + later - 1 : row.end + later - 1]
        return cls(ids, about[:, 1:], before[:, 1:], wanted[:, 1:])

    def descend(self, model: gpt.Gpt, optimizer: gpt.Adam, rate: float) -> Pass:
        """Take a step down the divergence from what the parent thinks to what the model does."""
        tape, token = gpt.Tape(self.ids), self.ids[:, 1:, None]
        logits = model.forward(self.ids, tape)
        logprobs = gpt.log_softmax(logits[:, :-1])
        now, then = (np.take_along_axis(one, token, 2)[..., 0] for one in (logprobs, self.wanted))
        gone = np.where(self.about, now - self.before, 0)
        ratios = np.exp(gone)
        weights = np.where(self.about, np.minimum(ratios, RATIO_MAX), 0) / self.about.sum()
        slope = np.zeros_like(logits)
        apart = np.exp(logprobs) - np.exp(self.wanted)
        slope[:, :-1] = apart * weights[..., None].astype(np.float32)
        optimizer.step(model.backward(tape, slope), rate)
        return Pass(
            float(ratios[self.about].mean()),
            float((then - now)[self.about].mean()),
            float((ratios - 1 - gone)[self.about].mean()),
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--furthest", type=float, default=0.05, help="nats a token, from the parent"
    )
    parser.add_argument("--rate", type=float, default=1e-3, help="of learning")
    said = parser.parse_args()
    told = os.environ

    model = gpt.Gpt.load(Path(url2pathname(urlsplit(told["PENSTOCK_PARENT_URI"]).path)))
    rows = read_rows(told["PENSTOCK_DATA"], told["PENSTOCK_SHARD"])
    passes = train(model, rows, furthest=said.furthest, rate=said.rate)
    weights = Path(told["PENSTOCK_OUTPUT"], f"{told['PENSTOCK_CHECKPOINT']}.npz")
    model.save(weights)
    print(
        f"{len(rows)} rows, {len(passes)} passes; the first ratio was {passes[0].first_ratio:.6f},"
        f" the hints were worth {passes[0].gain:.3f} nats a token, then {passes[-1].gain:.3f}"
    )
    penstock.trained(weights)


if __name__ == "__main__":
    main()
