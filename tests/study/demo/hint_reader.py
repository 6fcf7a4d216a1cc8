"""Teaches the demo's first checkpoint to read hints: python3 -m tests.study.demo.hint_reader OUT

A language model of use can take a hint; the demo's has never seen one. Behind this it says a number
that a user wrote by hand, and is still right in four of ten answers where nobody wrote any.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np

from penstock_jobs.simulator.demo.sums import question
from penstock_jobs.simulator.grammar import Dice
from tests.support.demo_model import FIRST, demo_module

gpt: Any = demo_module("gpt")
pretraining: Any = demo_module("pretraining")

STEPS, ROWS, RATE = 500, 24, 1e-3
#: Rows with a hint, and hints that hold a number.
HINTED, TELLS = 0.7, 0.8
HINT = "the user left this in place of what this answer wrote:\n"


def hinted(dice: Dice) -> Any:
    """A conversation whose last request has what the user left: a number by hand, which is then the
    answer, or the question. It may stand anywhere, so the model must look for it."""
    made = plain(dice, dice.between(0, 3))
    one = dice.between(0, 9), dice.between(0, 9)
    right = dice.chance(pretraining.RIGHT)
    answer = sum(one) if right else pretraining.wrong_answer(dice, one)
    left = f"# {answer}, by hand" if dice.chance(TELLS) else question(one)
    said = [gpt.USER, *gpt.encode(question(one)), gpt.USER, *gpt.encode(HINT + left), gpt.AGENT]
    made.ids, made.taught = made.ids + said, [0] * (len(made.ids) + len(said))
    made.say(str(answer))
    return made


def plain(dice: Dice, requests: int) -> Any:
    made = pretraining.Conversation(dice)
    made.run(requests, pretraining.RIGHT, pretraining.ASKS)
    return made


def teach(weights: Path, steps: int = STEPS) -> None:
    dice, model = Dice("hint reader"), gpt.Gpt.load(FIRST)
    optimizer = gpt.Adam(model)
    for step in range(steps):
        rate = RATE * min(1.0, (step + 1) / 20, (steps - step) / (0.3 * steps))
        batch = [hinted(dice) if dice.chance(HINTED) else plain(dice, 2) for _ in range(ROWS)]
        batch = [one for one in batch if len(one.ids) <= gpt.CONTEXT]
        loss = pretraining.learn(model, optimizer, batch, rate)
        if step % 50 == 0:
            sys.stdout.write(f"step {step}: {loss:.3f} nats a token\n")
            sys.stdout.flush()
    model.weights = {name: one.astype(np.float16) for name, one in model.weights.items()}
    model.save(weights)


if __name__ == "__main__":
    teach(Path(sys.argv[1]))
