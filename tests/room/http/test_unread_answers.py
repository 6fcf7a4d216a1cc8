"""How much memory slow clients hold with answers that they do not fetch."""

import asyncio
import gc
from typing import Any, cast

import pytest

from penstock.backends.http.request_limits import PIECE_BYTES, bounded_answer
from penstock.core.errors import TooManyRequests
from penstock.core.fairness import Holdings

ANSWER = bytes(range(256)) * (PIECE_BYTES // 256) * 2 + b"end"


def _pieces(answers: Holdings) -> Any:
    return cast(Any, bounded_answer(answers, "a", ANSWER, "text/plain")).iterator


async def _read(pieces: Any) -> bytes:
    return b"".join([piece async for piece in pieces])


def test_an_answer_counts_until_it_is_read() -> None:
    answers = Holdings("bytes", 4 * len(ANSWER))
    pieces = _pieces(answers)
    assert answers.total == len(ANSWER)
    assert asyncio.run(_read(pieces)) == ANSWER
    assert answers.total == 0


def test_an_answer_that_nobody_reads_counts_until_its_client_is_gone() -> None:
    answers = Holdings("bytes", len(ANSWER))
    pieces = _pieces(answers)
    asyncio.run(anext(pieces))
    with pytest.raises(TooManyRequests):
        _pieces(answers)
    del pieces
    gc.collect()
    assert answers.total == 0
