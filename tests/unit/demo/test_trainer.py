"""The trainer of the demonstration learns what advantages say, and not further than it may."""

from typing import Any

import numpy as np
import pytest

from tests.support.demo_model import FIRST, demo_module

gpt: Any = demo_module("gpt")
trainer: Any = demo_module("policy_gradient")


def rows_of(model: Any, count: int) -> list[Any]:
    """Answers to one sum. Questions are worth more than numbers."""
    prompt = [gpt.USER, *gpt.encode("4 + 5 = ?"), gpt.AGENT]
    dice = [np.random.default_rng(seed) for seed in range(count)]
    rows = []
    for tokens, logprobs in model.sample([prompt] * count, dice, 12):
        ids = np.array(prompt + tokens)
        known = np.concatenate([np.zeros(len(prompt)), logprobs]).astype(np.float32)
        sampled = np.arange(len(ids)) >= len(prompt)
        rows.append(trainer.Row(ids, sampled, known, float(asks(tokens))))
    return rows


def asks(tokens: list[int]) -> bool:
    text: str = gpt.decode(tokens)
    return text.endswith("?")


def share_of_questions(model: Any) -> float:
    prompt = [gpt.USER, *gpt.encode("4 + 5 = ?"), gpt.AGENT]
    dice = [np.random.default_rng(1_000 + seed) for seed in range(200)]
    return float(np.mean([asks(tokens) for tokens, _ in model.sample([prompt] * 200, dice, 12)]))


def test_what_was_better_than_the_rest_becomes_likelier() -> None:
    model = gpt.Gpt.load(FIRST)
    rows = rows_of(model, 256)
    before = share_of_questions(model)
    passes = trainer.train(model, rows, furthest=0.05, rate=3e-4)
    assert share_of_questions(model) > 2 * before
    assert passes[0].first_ratio == pytest.approx(1.0, abs=1e-5)
    distances = [one.distance for one in passes]
    assert distances[-1] >= 0.05 or len(passes) == trainer.PASSES_MAX
    assert all(one < 0.05 for one in distances[:-1])


def test_the_same_rows_make_the_same_checkpoint() -> None:
    """So a trainer that was killed makes what it would have made."""
    rows = rows_of(gpt.Gpt.load(FIRST), 64)
    made = []
    for _ in range(2):
        model = gpt.Gpt.load(FIRST)
        trainer.train(model, rows, furthest=0.01, rate=3e-4)
        made.append(model.weights)
    assert all(np.array_equal(made[0][name], made[1][name]) for name in made[0])
