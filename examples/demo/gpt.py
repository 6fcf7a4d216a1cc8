"""The model of the demonstration: a character-level GPT in numpy, forwards and backwards.

Three layers of causal attention and squared ReLU with RMS norms before them, and tied embeddings.
Weights are one `.npz` file.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

# Matrices are small: several threads would only wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
import numpy as np

Weights = dict[str, np.ndarray]

LAYERS, WIDTH, HEADS, CONTEXT = 3, 64, 4, 384
TEXT = "\n !\"#$%&'()*+,-./0123456789:;<=>?@[]_`abcdefghijklmnopqrstuvwxyz"
PAD, USER, AGENT, END = range(4)
TOKENS = [f"<{name}>" for name in ("pad", "user", "agent", "end")] + list(TEXT)
_IDS = {text: token for token, text in enumerate(TOKENS)}
_EPSILON = 1e-5
_MASKED = np.float32(-1e9)


def encode(text: str) -> list[int]:
    """Characters as tokens. Those that the model does not know are dropped."""
    return [_IDS[character] for character in text.lower() if character in _IDS]


def decode(ids: Iterable[int]) -> str:
    return "".join(TOKENS[token] for token in ids if token > END)


def prompt_of(messages: Sequence[Mapping[str, Any]], most: int) -> list[int]:
    """Tokens of a conversation, up to where the agent speaks. Raises ValueError if it is longer."""
    ids: list[int] = []
    for message in messages:
        said = encode(message["content"] or "")
        ids += [AGENT, *said, END] if message["role"] == "assistant" else [USER, *said]
    if len(ids) >= most:
        raise ValueError(f"the prompt has {len(ids) + 1} tokens, but at most {most} fit")
    return [*ids, AGENT]


@dataclass
class Tape:
    """What the layers of one forward pass leave to the backward pass."""

    ids: np.ndarray
    steps: list[tuple[np.ndarray, ...]] = field(default_factory=list)


class Memory:
    """Keys and values of each layer, by row and place, for answers that go on."""

    def __init__(self, rows: int, room: int) -> None:
        shape = (LAYERS, rows, room, HEADS, WIDTH // HEADS)
        self._keys, self._values = np.zeros(shape, np.float32), np.zeros(shape, np.float32)

    def add(
        self, layer: int, places: np.ndarray, key: np.ndarray, value: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Keep what stands at these places, and return all that is kept."""
        rows = np.arange(len(key))[:, None]
        for kept, new in ((self._keys, key), (self._values, value)):
            kept[layer, rows, places] = new.swapaxes(1, 2)
        return self._keys[layer].swapaxes(1, 2), self._values[layer].swapaxes(1, 2)


class Gpt:
    def __init__(self, weights: Weights) -> None:
        self.weights = weights

    @classmethod
    def new(cls, seed: int) -> Self:
        dice = np.random.default_rng(seed)

        def matrix(rows: int, columns: int, scale: float) -> np.ndarray:
            return (scale * dice.standard_normal((rows, columns))).astype(np.float32)

        weights = {
            "tokens": matrix(len(TOKENS), WIDTH, 0.05),
            "places": matrix(CONTEXT, WIDTH, 0.02),
            "norm": np.ones(WIDTH, np.float32),
        }
        thin, deep = WIDTH**-0.5, (2 * LAYERS * WIDTH) ** -0.5
        for layer in range(LAYERS):
            weights |= {
                f"{layer}.norm1": np.ones(WIDTH, np.float32),
                f"{layer}.attend": matrix(WIDTH, 3 * WIDTH, thin),
                f"{layer}.mix": matrix(WIDTH, WIDTH, deep),
                f"{layer}.norm2": np.ones(WIDTH, np.float32),
                f"{layer}.widen": matrix(WIDTH, 4 * WIDTH, thin),
                f"{layer}.narrow": matrix(4 * WIDTH, WIDTH, deep / 2),
            }
        return cls(weights)

    @classmethod
    def load(cls, path: Path) -> Self:
        with np.load(path) as file:
            return cls({name: file[name].astype(np.float32) for name in file.files})

    def save(self, path: Path) -> None:
        np.savez(path, **self.weights)

    def forward(self, ids: np.ndarray, tape: Tape | None = None) -> np.ndarray:
        """Logits of the token behind each token. Padding stands at the end of a row."""
        length = ids.shape[1]
        mask = np.triu(np.full((length, length), _MASKED), 1)
        return self._run(ids, np.arange(length)[None], mask, tape, None)

    def _run(
        self,
        ids: np.ndarray,
        places: np.ndarray,
        mask: np.ndarray,
        tape: Tape | None,
        memory: Memory | None,
    ) -> np.ndarray:
        weights = self.weights
        x = weights["tokens"][ids] + weights["places"][places]
        for layer in range(LAYERS):
            normed1, root1 = _norm(x, weights[f"{layer}.norm1"])
            query, key, value = map(
                _split_heads, np.split(normed1 @ weights[f"{layer}.attend"], 3, -1)
            )
            if memory is not None:
                key, value = memory.add(layer, places, key, value)
            attention = _softmax(query @ key.swapaxes(-1, -2) * (WIDTH // HEADS) ** -0.5 + mask)
            heard = _join_heads(attention @ value)
            y = x + heard @ weights[f"{layer}.mix"]
            normed2, root2 = _norm(y, weights[f"{layer}.norm2"])
            wide = np.maximum(normed2 @ weights[f"{layer}.widen"], 0)
            if tape is not None:
                tape.steps.append(
                    (
                        x,
                        root1,
                        normed1,
                        query,
                        key,
                        value,
                        attention,
                        heard,
                        y,
                        root2,
                        normed2,
                        wide,
                    )
                )
            x = y + (wide * wide) @ weights[f"{layer}.narrow"]
        last, root = _norm(x, weights["norm"])
        if tape is not None:
            tape.steps.append((x, root, last))
        return last @ weights["tokens"].T

    def backward(self, tape: Tape, d_logits: np.ndarray) -> Weights:
        """Gradients of the weights, from those of the logits."""
        weights, grads = self.weights, Weights()
        x, root, last = tape.steps[-1]
        grads["tokens"] = _outer(d_logits, last)
        d_x, grads["norm"] = _norm_back(x, root, weights["norm"], d_logits @ weights["tokens"])
        for layer in reversed(range(LAYERS)):
            x, root1, normed1, query, key, value, attention, heard, y, root2, normed2, wide = (
                tape.steps[layer]
            )
            grads[f"{layer}.narrow"] = _outer(wide * wide, d_x)
            d_wide = 2 * wide * (d_x @ weights[f"{layer}.narrow"].T)
            grads[f"{layer}.widen"] = _outer(normed2, d_wide)
            d_normed = d_wide @ weights[f"{layer}.widen"].T
            d_y, grads[f"{layer}.norm2"] = _norm_back(y, root2, weights[f"{layer}.norm2"], d_normed)
            d_x = d_x + d_y
            grads[f"{layer}.mix"] = _outer(heard, d_x)
            d_heard = _split_heads(d_x @ weights[f"{layer}.mix"].T)
            d_attention = d_heard @ value.swapaxes(-1, -2)
            d_value = attention.swapaxes(-1, -2) @ d_heard
            d_scores = attention * (d_attention - (d_attention * attention).sum(-1, keepdims=True))
            d_scores *= (WIDTH // HEADS) ** -0.5
            d_query, d_key = d_scores @ key, d_scores.swapaxes(-1, -2) @ query
            d_all = np.concatenate(list(map(_join_heads, (d_query, d_key, d_value))), -1)
            grads[f"{layer}.attend"] = _outer(normed1, d_all)
            d_normed = d_all @ weights[f"{layer}.attend"].T
            d_in, grads[f"{layer}.norm1"] = _norm_back(
                x, root1, weights[f"{layer}.norm1"], d_normed
            )
            d_x = d_x + d_in
        np.add.at(grads["tokens"], tape.ids, d_x)
        grads["places"] = np.zeros_like(weights["places"])
        grads["places"][: d_x.shape[1]] = d_x.sum(0)
        return grads

    def sample(
        self, prompts: Sequence[Sequence[int]], dice: Sequence[np.random.Generator], most: int
    ) -> list[tuple[list[int], list[float]]]:
        """Draw tokens behind each prompt, up to END or `most`, with their log-probabilities."""
        lengths = np.array([len(prompt) for prompt in prompts])
        longest = int(lengths.max())
        room = longest + most
        ids = padded(prompts)
        memory = Memory(len(prompts), room)
        mask = np.triu(np.full((longest, room), _MASKED), 1)
        logits = self._run(ids, np.arange(longest)[None], mask, None, memory)
        logits = logits[np.arange(len(prompts)), lengths - 1]
        answers: list[tuple[list[int], list[float]]] = [([], []) for _ in prompts]
        for step in range(most):
            logprobs = log_softmax(logits)
            drawn = np.array([_draw(row, each) for row, each in zip(logprobs, dice, strict=True)])
            for (tokens, chances), row, token in zip(answers, logprobs, drawn, strict=True):
                if END not in tokens:
                    tokens.append(int(token))
                    chances.append(float(row[token]))
            if step == most - 1 or all(END in tokens for tokens, _ in answers):
                break
            places = (lengths + step)[:, None]
            mask = np.where(np.arange(room) <= places, np.float32(0), _MASKED)[:, None, None]
            logits = self._run(drawn[:, None], places, mask, None, memory)[:, 0]
        return answers


class Adam:
    """AdamW on the weights of a model, with gradients clipped to a norm of 1."""

    def __init__(self, model: Gpt) -> None:
        self._weights = model.weights
        self._first = {name: np.zeros_like(each) for name, each in model.weights.items()}
        self._second = {name: np.zeros_like(each) for name, each in model.weights.items()}
        self._steps = 0

    def step(self, grads: Weights, rate: float) -> None:
        self._steps += 1
        norm = np.sqrt(sum(float((grad * grad).sum()) for grad in grads.values()))
        shrink = np.float32(min(1.0, 1.0 / (norm + 1e-9)))
        for name, whole in grads.items():
            grad, first, second = shrink * whole, self._first[name], self._second[name]
            first += np.float32(0.1) * (grad - first)
            second += np.float32(0.01) * (grad * grad - second)
            size = np.sqrt(second / (1 - 0.99**self._steps)) + np.float32(1e-8)
            self._weights[name] -= np.float32(rate) * first / (1 - 0.9**self._steps) / size


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def padded(rows: Sequence[Sequence[int]]) -> np.ndarray:
    ids = np.full((len(rows), max(map(len, rows))), PAD)
    for at, row in enumerate(rows):
        ids[at, : len(row)] = row
    return ids


def _softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    powers /= powers.sum(-1, keepdims=True)
    return powers


def _draw(logprobs: np.ndarray, dice: np.random.Generator) -> int:
    reached = np.cumsum(np.exp(logprobs.astype(np.float64)))
    return int(np.searchsorted(reached, dice.random() * reached[-1], side="right"))


def _norm(x: np.ndarray, gain: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    root = np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(_EPSILON))
    return x / root * gain, root


def _norm_back(
    x: np.ndarray, root: np.ndarray, gain: np.ndarray, d_out: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    unit = x / root
    d_unit = d_out * gain
    d_x = (d_unit - unit * (d_unit * unit).mean(-1, keepdims=True)) / root
    return d_x, (d_out * unit).sum((0, 1))


def _outer(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return left.reshape(-1, left.shape[-1]).T @ right.reshape(-1, right.shape[-1])


def _split_heads(x: np.ndarray) -> np.ndarray:
    return x.reshape(*x.shape[:2], HEADS, -1).swapaxes(1, 2)


def _join_heads(x: np.ndarray) -> np.ndarray:
    return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)
