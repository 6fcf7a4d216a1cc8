"""The form of a sealed file, and what becomes of one that was changed."""

import io
import random
from collections.abc import Callable

import pyarrow as pa
import pytest

from penstock.encryption.errors import SealedFileDamaged
from penstock.encryption.sealed_file import (
    BLOCK_BYTES,
    HEADER_BYTES,
    DataKey,
    SealedHeader,
    SealingFile,
    UnsealedFile,
)

KEY = DataKey.new()
SIZES = [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 2 * BLOCK_BYTES, 300_000]


def sealed(content: bytes, piece: int = 10_000, name: str = "a") -> bytes:
    file = io.BytesIO()
    sealing = SealingFile(file, KEY, name)
    for start in range(0, len(content), piece):
        sealing.write(content[start : start + piece])
    assert sealing.tell() == len(content)
    sealing.finish()
    return file.getvalue()


def unsealed(content: bytes, name: str = "a", key: DataKey = KEY) -> UnsealedFile:
    header = SealedHeader.read(content[:HEADER_BYTES])
    assert header is not None
    return UnsealedFile(pa.BufferReader(content), header, key, name)


@pytest.mark.parametrize("size", SIZES)
def test_what_was_sealed_comes_back_from_any_place(size: int) -> None:
    chance = random.Random(size)
    content = chance.randbytes(size)
    file = unsealed(sealed(content, piece=chance.choice([7_000, 65_536, 200_000])))
    assert file.size() == size
    assert file.read() == content
    for _ in range(50):
        start, count = chance.randrange(size + 1), chance.randrange(size + 100)
        file.seek(start)
        assert file.read(count) == content[start : start + count]


def test_nothing_of_the_text_is_seen_and_two_files_differ() -> None:
    content = b"MARKER " * 30_000
    first, second = sealed(content), sealed(content)
    assert b"MARKER" not in first
    assert first[HEADER_BYTES:] != second[HEADER_BYTES:]


def _flipped(content: bytes) -> bytes:
    at = HEADER_BYTES + BLOCK_BYTES // 2
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def _swapped(content: bytes) -> bytes:
    block = BLOCK_BYTES + 16
    head, body = content[:HEADER_BYTES], content[HEADER_BYTES:]
    return head + body[block : 2 * block] + body[:block] + body[2 * block :]


@pytest.mark.parametrize(
    "change",
    [
        _flipped,
        _swapped,
        lambda content: content[: HEADER_BYTES + 2 * (BLOCK_BYTES + 16)],
        lambda content: content[:-1],
        lambda content: content[: HEADER_BYTES + 3],
        lambda content: content + content[-100:],
    ],
)
def test_a_changed_file_does_not_open(change: Callable[[bytes], bytes]) -> None:
    content = change(sealed(random.Random(1).randbytes(3 * BLOCK_BYTES)))
    with pytest.raises(SealedFileDamaged):
        unsealed(content).read()


def test_a_file_opens_under_its_name_and_its_key_alone() -> None:
    content = sealed(b"text", name="events/t-a/p-0000/x.parquet")
    with pytest.raises(SealedFileDamaged):
        unsealed(content, "events/t-a/p-0000/y.parquet").read()
    with pytest.raises(SealedFileDamaged):
        unsealed(content, "events/t-a/p-0000/x.parquet", DataKey(KEY.id, bytes(32))).read()
