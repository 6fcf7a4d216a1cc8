"""A trainer: policy gradient on the log-probabilities of sampled tokens, in numpy.

The model of the demonstration is a table of logits, seven for each kind of task:
bench/pages/simulator.md. All else is as for a large one. The shard is read by `read_shard`; each
place where `loss_mask` is set has the log-probability with which its token was sampled, and its
sequence has an advantage; samples are weighted by how likely the token has become meanwhile; and
the new policy stays close to the one that sampled.
"""

import argparse
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import numpy as np

import penstock

#: Behind these tokens the policy chooses: what it was asked to do. All others are followed by one
#: token, always, and have nothing to learn.
TASKS = {"clear": 16, "risky": 17}
STYLES_FROM = 32
STEPS_MAX = 200
STEP_SIZE = 0.05


def read_choices(data: str, shard: str) -> Iterator[tuple[int, int, float, float]]:
    """Of each choice in the shard the row and column of the logits, the log-probability with which
    it was sampled, and the advantage."""
    first = min(TASKS.values())
    for batch in penstock.read_shard(data, shard, seed=7):
        rows = zip(
            batch["input_ids"],
            batch["loss_mask"],
            batch["rollout_logprobs"],
            batch["advantage"],
            strict=True,
        )
        for ids, mask, logprobs, advantage in rows:
            for at in np.flatnonzero(mask):
                if ids[at - 1] in TASKS.values():
                    style = ids[at] - STYLES_FROM
                    yield ids[at - 1] - first, style, logprobs[at], advantage


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def divergence(before: np.ndarray, after: np.ndarray, tasks: np.ndarray) -> float:
    """How far a policy has gone from the one that sampled, in nats a choice."""
    by_task = (before * np.log(before / after)).sum(axis=1)
    return float(by_task[tasks].mean())


def train(
    logits: np.ndarray, choices: list[tuple[int, int, float, float]], *, furthest: float
) -> np.ndarray:
    """Steps of Adam up the policy gradient, until the policy has gone far enough for one cycle."""
    tasks, styles = (np.array(column, int) for column in list(zip(*choices, strict=True))[:2])
    sampled, advantages = (
        np.array(column, float) for column in list(zip(*choices, strict=True))[2:]
    )
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-9)
    before, found = softmax(logits), logits
    speed, size = np.zeros_like(logits), np.zeros_like(logits)
    for step in range(1, STEPS_MAX + 1):
        policy = softmax(found)
        if divergence(before, policy, tasks) >= furthest:
            break
        # How much likelier the token is by now than when it was sampled.
        ratios = np.exp(np.log(policy[tasks, styles]) - sampled)
        weights = ratios * advantages / len(choices)
        gradient = np.zeros_like(logits)
        np.add.at(gradient, (tasks, styles), weights)
        gradient -= np.bincount(tasks, weights, len(logits))[:, None] * policy
        speed = 0.9 * speed + 0.1 * gradient
        size = 0.99 * size + 0.01 * gradient**2
        uphill = (speed / (1 - 0.9**step)) / (np.sqrt(size / (1 - 0.99**step)) + 1e-8)
        found = found + STEP_SIZE * uphill
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--furthest", type=float, default=0.3, help="in nats, from the parent")
    parser.add_argument("--wrong-way", action="store_true", help="a bug, to see what it does")
    said = parser.parse_args()
    told = os.environ

    address = urlsplit(told["PENSTOCK_PARENT_URI"])
    parent: dict[str, Any] = json.loads(Path(url2pathname(address.path)).read_text())
    logits = np.array([list(parent["logits"][task].values()) for task in TASKS])
    choices = list(read_choices(told["PENSTOCK_DATA"], told["PENSTOCK_SHARD"]))
    if said.wrong_way:
        choices = [
            (task, style, sampled, -advantage) for task, style, sampled, advantage in choices
        ]
    learned = train(logits, choices, furthest=said.furthest)

    names = list(parent["logits"]["clear"])
    found = {
        task: {name: round(float(value), 9) for name, value in zip(names, row, strict=True)}
        for task, row in zip(TASKS, learned, strict=True)
    }
    weights = Path(told["PENSTOCK_OUTPUT"], f"{told['PENSTOCK_CHECKPOINT']}.json")
    weights.write_text(json.dumps({"version": parent["version"] + 1, "logits": found}) + "\n")
    print(f"{len(choices)} choices from {told['PENSTOCK_SHARD']}")
    penstock.trained(weights)


if __name__ == "__main__":
    main()
