"""The hash tree over sessions, compared with the definition in RFC 9162."""

import hashlib

import pytest

from penstock.proof.merkle import (
    EMPTY_ROOT,
    leaf_hash,
    merkle_path,
    merkle_root,
    node_hash,
    root_by_path,
)

SIZES = [1, 2, 3, 4, 5, 7, 8, 9, 31, 33]


def leaves(size: int) -> list[bytes]:
    return [leaf_hash(bytes([number])) for number in range(size)]


def defined_root(hashes: list[bytes]) -> bytes:
    """As the RFC says it: split at the largest power of two below the size."""
    if len(hashes) == 1:
        return hashes[0]
    split = max(1 << bit for bit in range(8) if 1 << bit < len(hashes))
    return node_hash(defined_root(hashes[:split]), defined_root(hashes[split:]))


@pytest.mark.parametrize("size", SIZES)
def test_the_root_is_that_of_the_definition(size: int) -> None:
    assert merkle_root(leaves(size)) == defined_root(leaves(size))


def test_no_leaves_have_a_root_too() -> None:
    assert merkle_root([]) == EMPTY_ROOT == hashlib.sha256().digest()


@pytest.mark.parametrize("size", SIZES)
def test_each_leaf_has_a_path_to_the_root_and_to_no_other_place(size: int) -> None:
    hashes = leaves(size)
    root = merkle_root(hashes)
    for index, leaf in enumerate(hashes):
        path = merkle_path(iter(hashes), index, size)
        assert root_by_path(leaf, index, size, path) == root
        assert root_by_path(leaf_hash(b"another"), index, size, path) != root
        assert root_by_path(leaf, index, size, [*path, root]) is None
        for other in range(size):
            if other != index:
                assert root_by_path(leaf, other, size, path) != root


def test_a_leaf_is_no_node() -> None:
    left, right = leaves(2)
    assert leaf_hash(left + right) != node_hash(left, right)


@pytest.mark.parametrize(("index", "size"), [(-1, 3), (3, 3), (0, 0)])
def test_a_place_that_is_not_there_leads_nowhere(index: int, size: int) -> None:
    assert root_by_path(leaf_hash(b""), index, size, []) is None
