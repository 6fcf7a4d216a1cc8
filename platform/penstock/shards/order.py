"""The order of an epoch: a pure function of manifest, seed and epoch, with access at any place.

It has two levels, so that each row group is decoded once in an epoch and few are in memory. A chunk
is a row group, or several where a group goes on from one into the next. The chunks are permuted.
Each `WINDOW_CHUNKS` of them are a window, and the groups of a window are permuted among themselves.
Ranks, workers, batches and reading ahead are no part of it.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from penstock.shards.manifest import Manifest

#: How many chunks a window mixes. A part of the order: another number is another order.
WINDOW_CHUNKS = 4
_ROUNDS = 8


def permute(count: int, key: bytes, places: np.ndarray) -> np.ndarray:
    """The values at these places of a permutation of range(count), each computed by itself.

    A Feistel network over the next power of four, walked until it is back within range.
    """
    if count <= 1:
        return np.zeros(len(places), np.int64)
    half = max(1, ((count - 1).bit_length() + 1) // 2)
    keys = np.frombuffer(hashlib.shake_256(key).digest(8 * _ROUNDS), np.uint64)
    permuted = _feistel(places.astype(np.uint64), keys, np.uint64(half))
    while (outside := permuted >= count).any():
        permuted[outside] = _feistel(permuted[outside], keys, np.uint64(half))
    return permuted.astype(np.int64)


def _feistel(values: np.ndarray, keys: np.ndarray, half: np.uint64) -> np.ndarray:
    low = np.uint64((1 << int(half)) - 1)
    left, right = values >> half, values & low
    for key in keys:
        left, right = right, left ^ (_scatter(right ^ key) & low)
    return np.asarray((left << half) | right)


def _scatter(values: np.ndarray) -> np.ndarray:
    """Each bit of a number changes about half of all bits (the last steps of SplitMix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(values ^ (values >> np.uint64(31)))


@dataclass(frozen=True)
class Chunk:
    """Row groups of a file that are decoded together: `first_row` is the first row's number in
    its file."""

    file: int
    row_groups: tuple[int, ...]
    first_row: int
    rows: int


def chunks_of(manifest: Manifest) -> list[Chunk]:
    """The chunks of a shard as they lie in its files."""
    chunks = []
    for number, part in enumerate(manifest.files):
        continued = set(part.continued)
        begun, first, rows = 0, 0, 0
        for row_group, count in enumerate(part.row_groups):
            if row_group and row_group not in continued:
                chunks.append(Chunk(number, tuple(range(begun, row_group)), first, rows))
                begun, first, rows = row_group, first + rows, 0
            rows += count
        if rows:
            chunks.append(Chunk(number, tuple(range(begun, len(part.row_groups))), first, rows))
    return chunks


@dataclass(frozen=True)
class Order:
    """The order of one epoch; that of the files where it is not `shuffled`."""

    shard_id: str
    chunks: Sequence[Chunk]
    seed: int
    epoch: int
    shuffled: bool = True

    @cached_property
    def rows(self) -> int:
        return int(self._rows_before[-1])

    @property
    def windows(self) -> int:
        return -(-len(self.chunks) // WINDOW_CHUNKS)

    def window(self, number: int) -> list[int]:
        """The chunks of a window, by their places in `chunks`."""
        first = number * WINDOW_CHUNKS
        return [int(chunk) for chunk in self._permuted[first : first + WINDOW_CHUNKS]]

    def units(self, window: int, count: int) -> np.ndarray:
        """The order of a window's groups, of which the files hold `count`."""
        places = np.arange(count)
        return permute(count, self._key(f"window {window}"), places) if self.shuffled else places

    def find(self, sample: int) -> tuple[int, int]:
        """The window with this sample of the epoch, and how many samples of it stand before."""
        window = int(np.searchsorted(self._rows_before, sample, side="right")) - 1
        return window, sample - int(self._rows_before[window])

    @cached_property
    def _permuted(self) -> np.ndarray:
        places = np.arange(len(self.chunks))
        return permute(len(places), self._key("chunks"), places) if self.shuffled else places

    @cached_property
    def _rows_before(self) -> np.ndarray:
        """The rows before each window, and of all."""
        rows = np.array([chunk.rows for chunk in self.chunks], np.int64)[self._permuted]
        before = np.append(0, np.cumsum(rows))
        begins = np.append(np.arange(0, len(rows), WINDOW_CHUNKS), len(rows))
        return np.asarray(before[begins])

    def _key(self, subject: str) -> bytes:
        return f"{self.shard_id} {self.seed} {self.epoch} {subject}".encode()
