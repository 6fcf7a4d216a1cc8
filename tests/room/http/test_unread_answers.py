"""How much memory slow clients hold with answers that they do not fetch."""

import asyncio
import gc

import pytest

from penstock.backends.http.request_limits import PIECE_BYTES, UnreadAnswers
from penstock.core.errors import TooManyRequests

ANSWER = bytes(range(256)) * (PIECE_BYTES // 256) * 2 + b"end"


async def _read(pieces: object) -> bytes:
    return b"".join([piece async for piece in pieces])  # type: ignore[attr-defined]


def test_an_answer_counts_until_it_is_read() -> None:
    answers = UnreadAnswers(4 * len(ANSWER))
    pieces = answers.hold("a", ANSWER)
    assert answers.held_bytes == len(ANSWER)
    assert asyncio.run(_read(pieces)) == ANSWER
    assert answers.held_bytes == 0


def test_an_answer_that_nobody_reads_counts_until_its_client_is_gone() -> None:
    answers = UnreadAnswers(4 * len(ANSWER))
    pieces = answers.hold("a", ANSWER)
    asyncio.run(anext(pieces))  # type: ignore[arg-type]
    assert answers.held_bytes == len(ANSWER)
    del pieces
    gc.collect()
    assert answers.held_bytes == 0


def test_each_tenant_has_half_and_always_one() -> None:
    answers = UnreadAnswers(2 * len(ANSWER))
    held = [answers.hold("a", ANSWER)]
    with pytest.raises(TooManyRequests, match=f"{len(ANSWER)} bytes of earlier answers"):
        answers.hold("a", ANSWER)
    held.append(answers.hold("b", ANSWER))
    with pytest.raises(TooManyRequests, match="bytes of answers were not fetched"):
        answers.hold("c", ANSWER)
    held.clear()
    gc.collect()
    assert answers.hold("a", ANSWER * 9), "one that is larger than all may be"
