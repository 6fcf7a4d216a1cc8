"""The demo's trainer of hints comes closer to what the parent says with them, and its tokenizer is
the model's."""

from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from tests.support.demo_model import DEMO, FIRST, demo_module

gpt: Any = demo_module("gpt")
trainer: Any = demo_module("hints")
PROMPT = [gpt.USER, *gpt.encode("4 + 5 = ?"), gpt.AGENT]
#: The parent knows no hints, but thinks otherwise behind another sum.
HINT = [gpt.USER, *gpt.encode("8 + 8 = ?")]


def rows_of(model: Any, count: int) -> list[Any]:
    dice = [np.random.default_rng(seed) for seed in range(count)]
    rows = []
    for tokens, logprobs in model.sample([PROMPT] * count, dice, 12):
        ids, at = np.array(PROMPT + tokens), len(PROMPT) - 1
        known = np.concatenate([np.zeros(len(PROMPT)), logprobs]).astype(np.float32)
        hinted = np.concatenate([ids[:at], HINT, ids[at:]])
        rows.append(trainer.HintedRow(ids, hinted, len(PROMPT), len(ids), known))
    return rows


def chances(model: Any, prompt: list[int]) -> Any:
    return np.exp(gpt.log_softmax(model.forward(np.array([prompt])))[0, -1])


def test_it_says_without_the_hint_what_the_parent_says_with_it() -> None:
    parent, model = gpt.Gpt.load(FIRST), gpt.Gpt.load(FIRST)
    passes = trainer.train(model, rows_of(parent, 64), furthest=0.2, rate=1e-3)
    assert passes[0].first_ratio == pytest.approx(1.0, abs=1e-5)
    wanted = chances(parent, [*PROMPT[:-1], *HINT, gpt.AGENT])
    before, after = (np.abs(chances(each, PROMPT) - wanted).sum() for each in (parent, model))
    assert after < before - 0.1


def test_the_slope_is_that_of_the_divergence_within_the_span() -> None:
    """By finite differences, for weights that the tokens alone have."""
    model = gpt.Gpt.load(FIRST)
    [row] = rows_of(model, 1)
    batch = trainer.HintedBatch.of([row], model)
    taken: list[Any] = []

    class Watched:
        def step(self, grads: Any, _rate: float) -> None:
            taken.append(grads)

    batch.descend(model, Watched(), 0.0)
    span = slice(row.start - 1, row.end - 1)

    def divergence() -> float:
        found = gpt.log_softmax(model.forward(row.ids[None])[0, span].astype(np.float64))
        wanted = batch.wanted[0, span].astype(np.float64)
        return float((np.exp(wanted) * (wanted - found)).sum() / (row.end - row.start))

    gain = model.weights["norm"]
    for place in (0, 17, 40):
        kept, step = gain[place], 1e-2
        gain[place] = kept + step
        higher = divergence()
        gain[place] = kept - step
        lower = divergence()
        gain[place] = kept
        assert taken[0]["norm"][place] == pytest.approx((higher - lower) / (2 * step), abs=2e-3)


def test_the_same_rows_make_the_same_checkpoint() -> None:
    rows, made = rows_of(gpt.Gpt.load(FIRST), 40), []
    for _ in range(2):
        model = gpt.Gpt.load(FIRST)
        trainer.train(model, rows, furthest=0.01, rate=3e-4)
        made.append(model.weights)
    assert all(np.array_equal(made[0][name], made[1][name]) for name in made[0])


def test_the_tokenizer_is_the_models() -> None:
    text = "3 + 4 = ? No!\n# seven, by hand — é"
    found = Tokenizer.from_file(str(DEMO / "tokenizer.json"))
    ids = found.encode(f"<user>{text}<agent>7<end>", add_special_tokens=False).ids
    assert ids == [gpt.USER, *gpt.encode(text), gpt.AGENT, *gpt.encode("7"), gpt.END]
