"""Compressed input: as it was written, cut, damaged, and made to hurt."""

import gzip
import sys
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.ingest.decompression import PIECE_BYTES, decompressed

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

COMPRESS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "zstd": zstd.compress}
codecs = pytest.mark.parametrize("codec", COMPRESS)


@codecs
@given(
    contents=st.lists(st.binary(max_size=5_000).map(lambda some: some * 50), max_size=3),
    part_bytes=st.integers(1, 10_000),
)
def test_all_members_come_however_they_are_cut(
    codec: str, contents: list[bytes], part_bytes: int
) -> None:
    sent = b"".join(map(COMPRESS[codec], contents))
    parts = [sent[at : at + part_bytes] for at in range(0, len(sent), part_bytes)]
    assert b"".join(decompressed(parts, codec)) == b"".join(contents)


@codecs
@given(content=st.binary(max_size=3_000), cut=st.floats(0, 1, exclude_max=True))
def test_an_end_in_the_middle_is_an_error(codec: str, content: bytes, cut: float) -> None:
    sent = COMPRESS[codec](content)
    left = sent[: int(len(sent) * cut)]
    if left:
        with pytest.raises(ValueError, match=r".+"):
            list(decompressed([left], codec))


@codecs
def test_what_follows_must_be_compressed_too(codec: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        list(decompressed([COMPRESS[codec](b"content") + b"more"], codec))


@codecs
def test_a_bomb_comes_in_bounded_pieces(codec: str) -> None:
    bomb = COMPRESS[codec](bytes(64 * PIECE_BYTES))
    sizes = [len(piece) for piece in decompressed([bomb], codec)]
    assert sum(sizes) == 64 * PIECE_BYTES
    assert max(sizes) <= PIECE_BYTES


def test_a_window_that_asks_for_our_memory_is_refused() -> None:
    options: dict[int, int] = {
        zstd.CompressionParameter.window_log: 27,
        zstd.CompressionParameter.enable_long_distance_matching: 1,
    }
    bomb = zstd.compress(bytes(200 * PIECE_BYTES), options=options)
    with pytest.raises(ValueError, match="memory"):
        list(decompressed([bomb], "zstd"))


@codecs
def test_broken_bodies_leave_memory_flat(codec: str) -> None:
    whole = COMPRESS[codec](bytes(range(256)) * 40)
    tracemalloc.start()
    for number in range(300):
        with pytest.raises(ValueError, match=r".+"):
            list(decompressed([whole[: 30 + number % 200]], codec))
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < PIECE_BYTES
