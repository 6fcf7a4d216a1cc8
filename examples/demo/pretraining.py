"""Makes the first checkpoint of the demonstration: python3 pretraining.py first.npz

First sums alone, all right. Then conversations as in production, in which four of ten answers are
right and some are questions: so the model knows what it is to learn, and does it seldom.
"""

import argparse
from pathlib import Path

import gpt
import numpy as np

from penstock_jobs.simulator.demo.sums import NAMES, Sum, question
from penstock_jobs.simulator.grammar import Dice, phrases

STEPS, MATURE = 1_500, 1_050
RATE = 2e-3
QUESTION = "base ten?"
RIGHT, ASKS = 0.4, 0.12
CONTENT = ("accept", "small_talk")
DISSATISFIED = ("incomplete", "correct", "failure", "revert", "complain")


class Conversation:
    """Tokens of a conversation, and which of them the agent says."""

    def __init__(self, dice: Dice) -> None:
        self._dice = dice
        self.ids: list[int] = []
        self.taught: list[int] = []

    def hear(self, text: str) -> None:
        self._add([gpt.USER, *gpt.encode(text), gpt.AGENT], taught=0)

    def say(self, text: str) -> None:
        self._add([*gpt.encode(text), gpt.END], taught=1)

    def run(self, requests: int, right: float, asks: float) -> None:
        dice, content = self._dice, None
        for _ in range(requests):
            one = dice.between(0, 9), dice.between(0, 9)
            before = ""
            if content is not None and dice.chance(0.6):
                before = self._phrase(dice.pick(CONTENT if content else DISSATISFIED)) + " "
            self.hear(before + question(one))
            while dice.chance(asks):
                self.say(QUESTION)
                self.hear(self._phrase("answer" if dice.chance(0.75) else "complain"))
            content = dice.chance(right)
            self.say(str(sum(one) if content else wrong_answer(dice, one)))

    def _phrase(self, act: str) -> str:
        return phrases("en").expand(act, self._dice, NAMES)

    def _add(self, ids: list[int], *, taught: int) -> None:
        self.ids += ids
        self.taught += [taught] * len(ids)


def wrong_answer(dice: Dice, one: Sum) -> int:
    found = dice.between(0, 17)
    return found + (found >= sum(one))


def batch(dice: Dice, step: int) -> list[Conversation]:
    mature = step >= MATURE
    short = not mature and step % 3 > 0
    found = [Conversation(dice) for _ in range(128 if short else 24)]
    for one in found:
        one.run(
            1 if short else dice.between(1, 3), RIGHT if mature else 1.0, ASKS if mature else 0.0
        )
    return found


def learn(
    model: gpt.Gpt, optimizer: gpt.Adam, conversations: list[Conversation], rate: float
) -> float:
    """Take one step of cross entropy. Returns the loss, in nats a token."""
    ids = gpt.padded([one.ids for one in conversations])
    taught = gpt.padded([one.taught for one in conversations])[:, 1:]
    weights = (taught / taught.sum()).astype(np.float32)
    token = ids[:, 1:, None]
    tape = gpt.Tape(ids)
    logits = model.forward(ids, tape)
    logprobs = gpt.log_softmax(logits[:, :-1])
    said = np.take_along_axis(logprobs, token, 2)
    slope = np.zeros_like(logits)
    slope[:, :-1] = np.exp(logprobs) * weights[..., None]
    behind = slope[:, :-1]
    np.put_along_axis(behind, token, np.take_along_axis(behind, token, 2) - weights[..., None], 2)
    optimizer.step(model.backward(tape, slope), rate)
    return -float((said[..., 0] * weights).sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("weights", type=Path)
    said = parser.parse_args()
    dice, model = Dice("pretraining"), gpt.Gpt.new(seed=0)
    optimizer = gpt.Adam(model)
    for step in range(STEPS):
        rate = RATE * min(1.0, (step + 1) / 50, (STEPS - step) / (0.3 * STEPS))
        loss = learn(model, optimizer, batch(dice, step), rate)
        if step % 100 == 0:
            print(f"step {step}: {loss:.3f} nats a token", flush=True)
    # Half precision is a file of half the size.
    model.weights = {name: one.astype(np.float16) for name, one in model.weights.items()}
    model.save(said.weights)


if __name__ == "__main__":
    main()
