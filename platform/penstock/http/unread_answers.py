"""Large answers that their clients have not fetched yet: memory that slow clients hold."""

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from typing import Any

from litestar import Response
from litestar.response import Stream

from penstock.errors import TooManyRequests

#: What is handed to the connection at once. Answers up to this size are not counted: connections
#: are.
PIECE_BYTES = 256 * 1024


class UnreadAnswers:
    """Counts their bytes, bounded for all tenants together and at half of that for each. For one
    event loop."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._by_tenant: Counter[str] = Counter()

    @property
    def held_bytes(self) -> int:
        return self._by_tenant.total()

    def hold(self, tenant: str, answer: bytes) -> AsyncIterator[bytes]:
        """The pieces of an answer, which counts until the last of them is taken or the iterator is
        gone. Raises TooManyRequests."""
        own = self._by_tenant[tenant]
        if own and own + len(answer) > self._bytes_max // 2:
            raise TooManyRequests(why=f"{own} bytes of earlier answers were not fetched yet")
        if self.held_bytes and self.held_bytes + len(answer) > self._bytes_max:
            raise TooManyRequests(why=f"{self.held_bytes} bytes of answers were not fetched yet")
        return _AnswerPieces(self._by_tenant, tenant, answer)


def held_answer(
    answers: UnreadAnswers,
    tenant: str,
    answer: bytes,
    media_type: str,
    headers: Mapping[str, str] | None = None,
) -> Response[Any]:
    """The response with these bytes. Raises TooManyRequests."""
    if len(answer) <= PIECE_BYTES:
        return Response(answer, media_type=media_type, headers=headers)
    length = {"Content-Length": str(len(answer))}
    pieces = answers.hold(tenant, answer)
    return Stream(pieces, media_type=media_type, headers=length | dict(headers or {}))


class _AnswerPieces:
    """Not a generator: one that was never begun has no end either."""

    def __init__(self, counts: Counter[str], tenant: str, answer: bytes) -> None:
        self._counts, self._tenant = counts, tenant
        self._answer: bytes | None = answer
        self._size = len(answer)
        self._next = 0
        counts[tenant] += self._size

    def __aiter__(self) -> "_AnswerPieces":
        return self

    async def __anext__(self) -> bytes:
        if self._answer is None or self._next >= self._size:
            self._release()
            raise StopAsyncIteration
        start, self._next = self._next, self._next + PIECE_BYTES
        return self._answer[start : self._next]

    def _release(self) -> None:
        if self._answer is not None:
            self._answer = None
            self._counts[self._tenant] -= self._size
            if not self._counts[self._tenant]:
                del self._counts[self._tenant]

    def __del__(self) -> None:
        self._release()
