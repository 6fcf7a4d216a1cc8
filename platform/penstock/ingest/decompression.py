"""Decompression of untrusted input, in bounded pieces and memory."""

import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from penstock.backends.http import BodyTooLarge
from penstock.core.errors import PenstockError

if sys.version_info >= (3, 14):
    from compression.zstd import DecompressionParameter, ZstdDecompressor, ZstdError
else:
    from backports.zstd import DecompressionParameter, ZstdDecompressor, ZstdError


class BodyUnreadable(PenstockError, exit_status=2, http_status=400):
    """The request body could not be read: {why}. Nothing of it was accepted."""


class EncodingUnknown(
    PenstockError, exit_status=2, http_status=415, http_headers={"Accept-Encoding": "gzip, zstd"}
):
    """The content encoding {encoding} is unknown; send gzip, zstd or none."""


#: Decompressed at a time, so that other requests get their turn.
PIECE_BYTES = 256 * 1024
_CODECS: dict[str, Callable[[], Any]] = {
    # 8 MiB, which every decoder must allow; more would use too much memory.
    "zstd": lambda: ZstdDecompressor(options={DecompressionParameter.window_log_max: 23}),
    # 16 selects the header and checksum of gzip.
    "gzip": lambda: zlib.decompressobj(zlib.MAX_WBITS + 16),
}
_CODECS["x-gzip"] = _CODECS["gzip"]


def decompressed(parts: Iterable[bytes], codec: str) -> Iterator[bytes]:
    """Decompress a file in pieces. Raises ValueError."""
    stream, full = None, False
    for part in parts:
        left = part
        # Output beyond a piece comes without more input.
        while left or full:
            if stream is None or stream.eof:
                stream = _CODECS[codec]()  # a file may hold several streams
            try:
                piece = stream.decompress(left, PIECE_BYTES)
            except (zlib.error, ZstdError) as error:
                raise ValueError(str(error)) from None
            yield piece
            left = getattr(stream, "unconsumed_tail", b"") or stream.unused_data
            full = len(piece) == PIECE_BYTES and not stream.eof
    if stream is not None and not stream.eof:
        raise ValueError("it ends in the middle")


def decompress(sent: Sequence[bytes], encoding: str, bytes_max: int) -> Iterator[bytes]:
    """Decompress a body up to the limit. Raises EncodingUnknown, BodyUnreadable, BodyTooLarge."""
    if encoding in ("", "identity"):
        if sum(map(len, sent)) > bytes_max:
            raise BodyTooLarge(limit_bytes=bytes_max, measure="after decompression")
        yield from sent
        return
    if encoding not in _CODECS:
        raise EncodingUnknown(encoding=encoding[:64])
    size = 0
    try:
        for part in decompressed(sent, encoding):
            size += len(part)
            if size > bytes_max:
                raise BodyTooLarge(limit_bytes=bytes_max, measure="after decompression")
            yield part
    except ValueError as error:
        raise BodyUnreadable(why=f"not valid {encoding}: {error}") from None
