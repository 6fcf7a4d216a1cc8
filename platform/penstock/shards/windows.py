"""A window of the order: its row groups as numpy, its groups in the order they are given out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from penstock.shards.columns import Lists, Ragged


class Decoded(NamedTuple):
    """A chunk. `starts` says where groups begin among its rows."""

    columns: Mapping[str, np.ndarray | Lists]
    tokens: np.ndarray
    starts: np.ndarray


class Places(NamedTuple):
    """Where the values of each row of a window are, in the buffers of its chunks."""

    buffers: list[np.ndarray]
    starts: np.ndarray
    lengths: np.ndarray


@dataclass(frozen=True)
class Window:
    """Rows are numbered through all chunks; groups stand in the order they are given out."""

    numbers: dict[str, np.ndarray]
    lists: dict[str, Places]
    chunk: np.ndarray
    tokens: np.ndarray
    group_first: np.ndarray
    group_samples: np.ndarray
    group_tokens: np.ndarray


class Taken(NamedTuple):
    """Rows of a window, in the order they are given out."""

    window: Window
    rows: np.ndarray


def count_groups(chunks: Sequence[Decoded]) -> int:
    return sum(len(one.starts) for one in chunks)


def make_window(chunks: Sequence[Decoded], order: np.ndarray) -> Window:
    """`order` is the order of the groups, by their place in that of the chunks."""
    rows = [len(one.tokens) for one in chunks]
    before = np.cumsum([0, *rows[:-1]])
    tokens = np.concatenate([one.tokens for one in chunks]).astype(np.int64)
    starts = np.concatenate([one.starts + first for one, first in zip(chunks, before, strict=True)])
    samples = np.diff(np.append(starts, len(tokens)))
    numbers, lists = {}, {}
    for name in chunks[0].columns:
        parts = [one.columns[name] for one in chunks]
        if isinstance(parts[0], Lists):
            lists[name] = _places([one for one in parts if isinstance(one, Lists)])
        else:
            numbers[name] = np.concatenate(parts)
    return Window(
        numbers=numbers,
        lists=lists,
        chunk=np.repeat(np.arange(len(chunks)), rows),
        tokens=tokens,
        group_first=starts[order],
        group_samples=samples[order],
        group_tokens=np.add.reduceat(tokens, starts)[order],
    )


def _places(parts: Sequence[Lists]) -> Places:
    return Places(
        buffers=[one.values for one in parts],
        starts=np.concatenate([one.offsets[:-1] for one in parts]),
        lengths=np.concatenate([np.diff(one.offsets) for one in parts]),
    )


def gather(taken: Sequence[Taken]) -> dict[str, np.ndarray | Ragged]:
    """The rows as one. Lists stay where they are until someone asks for them in one piece."""
    found: dict[str, np.ndarray | Ragged] = {}
    first = taken[0].window
    for name in first.numbers:
        found[name] = _joined([one.window.numbers[name][one.rows] for one in taken])
    for name in first.lists:
        found[name] = _ragged([(one.window.lists[name], one) for one in taken])
    return found


def _ragged(parts: Sequence[tuple[Places, Taken]]) -> Ragged:
    buffers: list[np.ndarray] = []
    which = []
    for places, one in parts:
        which.append(one.window.chunk[one.rows] + len(buffers))
        buffers.extend(places.buffers)
    return Ragged(
        buffers,
        _joined(which),
        _joined([places.starts[one.rows] for places, one in parts]),
        _joined([places.lengths[one.rows] for places, one in parts]),
    )


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
