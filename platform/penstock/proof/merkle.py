"""The hash tree of RFC 9162 over a sorted list of leaves: its root stands for all of them, and a
path shows that a leaf is one of them. Leaves come in order, and only a path's worth is kept."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

_LEAF, _NODE = b"\x00", b"\x01"
#: The root of no leaves.
EMPTY_ROOT = hashlib.sha256(b"").digest()


def leaf_hash(content: bytes) -> bytes:
    return hashlib.sha256(_LEAF + content).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(_NODE + left + right).digest()


def merkle_root(hashes: Iterable[bytes]) -> bytes:
    """Of the hashes of leaves."""
    #: The roots of whole subtrees, each smaller than the one before it.
    subtrees: list[bytes] = []
    for count, leaf in enumerate(hashes):
        root, whole = leaf, count
        while whole & 1:
            root = node_hash(subtrees.pop(), root)
            whole >>= 1
        subtrees.append(root)
    if not subtrees:
        return EMPTY_ROOT
    root = subtrees.pop()
    while subtrees:
        root = node_hash(subtrees.pop(), root)
    return root


def merkle_path(hashes: Iterator[bytes], index: int, size: int) -> list[bytes]:
    """What the leaf at `index` of `size` is hashed with on its way to the root."""
    ranges = sibling_ranges(index, size)
    roots: dict[tuple[int, int], bytes] = {}
    at = 0
    for start, end in sorted(ranges):
        at += sum(1 for _ in islice(hashes, start - at))
        roots[start, end] = merkle_root(islice(hashes, end - start))
        at = end
    return [roots[place] for place in ranges]


def sibling_ranges(index: int, size: int) -> list[tuple[int, int]]:
    """The leaves below each sibling on the way from a leaf to the root."""
    ranges: list[tuple[int, int]] = []
    start, end = 0, size
    while end - start > 1:
        middle = start + (1 << (end - start - 1).bit_length() - 1)
        if index < middle:
            ranges.append((middle, end))
            end = middle
        else:
            ranges.append((start, middle))
            start = middle
    return ranges[::-1]


def root_by_path(leaf: bytes, index: int, size: int, path: Sequence[bytes]) -> bytes | None:
    """The root that a path leads to; None where a tree of this size has no such path."""
    if not 0 <= index < size or len(path) != len(sibling_ranges(index, size)):
        return None
    root = leaf
    for (start, _), sibling in zip(sibling_ranges(index, size), path, strict=True):
        root = node_hash(root, sibling) if start > index else node_hash(sibling, root)
    return root
