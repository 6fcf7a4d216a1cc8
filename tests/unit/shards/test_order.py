"""The order of an epoch."""

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.shards.manifest import Counts, Manifest, PartFile
from penstock.shards.sources import Chunk, Order, chunks_of, permute


def permutation(count: int, key: bytes = b"k") -> list[int]:
    found: list[int] = permute(count, key).tolist()
    return found


@settings(max_examples=40)
@given(count=st.integers(0, 3000), key=st.binary(max_size=8))
def test_it_is_a_permutation(count: int, key: bytes) -> None:
    assert sorted(permutation(count, key)) == list(range(count))


def test_it_is_the_same_for_ever() -> None:
    """Whoever changes this changes the order of every run that is resumed."""
    assert permutation(12, b"pinned") == PINNED
    order = Order("sha256:00", [Chunk(0, (0,), 0, 10)] * 9, seed=7, epoch=1)
    assert [order.window(one) for one in range(order.windows)] == PINNED_WINDOWS
    assert order.units(0, 10).tolist() == PINNED_UNITS


PINNED = [2, 10, 8, 9, 1, 4, 3, 6, 5, 0, 11, 7]
PINNED_WINDOWS = [[5, 7, 4, 8], [3, 1, 2, 0], [6]]
PINNED_UNITS = [4, 5, 9, 0, 2, 8, 7, 6, 1, 3]


def part(name: str, row_groups: list[int], continued: list[int]) -> PartFile:
    return PartFile(
        name=name, sha256="0" * 64, bytes=0, rows=sum(row_groups), tokens=0, trainable=0, groups=0,
        first="", last="", row_groups=row_groups, continued=continued,
    )  # fmt: skip


def test_a_chunk_is_a_row_group_or_those_that_a_group_joins() -> None:
    files = [part("a", [3, 4, 5, 6], [2]), part("b", [7], []), part("c", [1, 1, 1], [1, 2])]
    manifest = Manifest(name="m", files=files, counts=Counts())
    assert chunks_of(manifest) == [
        Chunk(0, (0,), 0, 3),
        Chunk(0, (1, 2), 3, 9),
        Chunk(0, (3,), 12, 6),
        Chunk(1, (0,), 0, 7),
        Chunk(2, (0, 1, 2), 0, 3),
    ]
