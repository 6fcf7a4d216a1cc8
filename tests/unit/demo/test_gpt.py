"""The transformer of the demonstration: its gradients are the slopes of its loss, and its samples
have the log-probabilities that training finds."""

from typing import Any

import numpy as np
import pytest

from tests.support.demo_model import FIRST, demo_module

gpt: Any = demo_module("gpt")
VOCABULARY = len(gpt.TOKENS)
LENGTH = 9


def test_gradients_are_finite_differences() -> None:
    dice = np.random.default_rng(3)
    model = gpt.Gpt.new(seed=1)
    # Single precision would hide the slopes; and gains of 1 would hide errors.
    model.weights = {
        name: one + 0.05 * dice.standard_normal(one.shape) for name, one in model.weights.items()
    }
    ids = dice.integers(0, VOCABULARY, (2, LENGTH))
    wanted = dice.standard_normal((2, LENGTH, VOCABULARY))

    def loss() -> float:
        return float((gpt.log_softmax(model.forward(ids)) * wanted).sum())

    tape = gpt.Tape(ids)
    chances = np.exp(gpt.log_softmax(model.forward(ids, tape)))
    found = model.backward(tape, wanted - chances * wanted.sum(-1, keepdims=True))
    assert found.keys() == model.weights.keys()
    for name, weights in model.weights.items():
        for _ in range(5):
            at = tuple(dice.integers(0, size) for size in weights.shape)
            at = (at[0] % LENGTH, *at[1:]) if name == "places" else at
            kept, slopes = weights[at], []
            for move in (1e-5, -1e-5):
                weights[at] = kept + move
                slopes.append(loss() / (2 * move))
            weights[at] = kept
            assert found[name][at] == pytest.approx(sum(slopes), rel=1e-4, abs=1e-6), name


def test_samples_have_the_log_probabilities_of_a_whole_pass() -> None:
    model = gpt.Gpt.load(FIRST)
    prompts = [
        [gpt.USER, *gpt.encode(text), gpt.AGENT]
        for text in ("7 + 8 = ?", "No, that total is wrong. 1 + 3 = ?", "2 + 2 = ?")
    ]
    dice = [np.random.default_rng(seed) for seed in range(3)]
    for prompt, (tokens, logprobs) in zip(prompts, model.sample(prompts, dice, 12), strict=True):
        assert tokens.index(gpt.END) == len(tokens) - 1
        whole = gpt.log_softmax(model.forward(np.array([prompt + tokens])))[0]
        found = [whole[len(prompt) - 1 + at, token] for at, token in enumerate(tokens)]
        assert logprobs == pytest.approx(found, abs=1e-5)


def test_padding_changes_nothing() -> None:
    model = gpt.Gpt.load(FIRST)
    short, long = gpt.encode("1 + 1 = ?"), gpt.encode("thanks! 9 + 9 = ?")
    alone = model.forward(np.array([short]))
    together = model.forward(gpt.padded([short, long]))
    assert together[0, : len(short)] == pytest.approx(alone[0], abs=1e-4)


def test_text_is_characters() -> None:
    assert gpt.decode(gpt.encode("What is 7 + 8 = ?\n")) == "what is 7 + 8 = ?\n"
    assert gpt.encode("é…") == []


def test_a_conversation_that_does_not_fit_is_refused() -> None:
    messages = [
        {"role": "user", "content": "1 + 1 = ?"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "ok"},
    ]
    ids = gpt.prompt_of(messages, 100)
    ends = [gpt.USER, gpt.AGENT, gpt.END, gpt.USER, gpt.AGENT]
    assert [token for token in ids if token <= gpt.END] == ends
    assert len(gpt.prompt_of(messages, len(ids))) == len(ids)
    with pytest.raises(ValueError, match=f"the prompt has {len(ids)} tokens"):
        gpt.prompt_of(messages, len(ids) - 1)
