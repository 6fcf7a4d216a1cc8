"""Decompression in bounded pieces and bounded memory: what comes in was compressed by others."""

import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence

from penstock.errors import PenstockError
from penstock.http.errors import BodyTooLarge

if sys.version_info >= (3, 14):
    from compression.zstd import DecompressionParameter, ZstdDecompressor, ZstdError
else:
    from backports.zstd import DecompressionParameter, ZstdDecompressor, ZstdError


class BodyUnreadable(PenstockError, exit_status=2, http_status=400):
    """The request body could not be read: {why}. Nothing of it was accepted."""


class EncodingUnknown(
    PenstockError, exit_status=2, http_status=415, http_headers={"Accept-Encoding": "gzip, zstd"}
):
    """The content encoding {encoding} is not known; send gzip, zstd or none."""


#: So much is decompressed at once, so that other requests get their turn in between.
PIECE_BYTES = 256 * 1024
#: How far back a zstd stream may refer: 8 MiB, as every decoder must allow. One that asks for more
#: asks for our memory.
_ZSTD_WINDOW: dict[int, int] = {DecompressionParameter.window_log_max: 23}
#: The window of zlib, and 16: with the header and the checksum of gzip.
_GZIP_WINDOW_BITS = zlib.MAX_WBITS + 16


class _GzipMember:
    """A stream of its own, of which a file may hold several."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(_GZIP_WINDOW_BITS)

    @property
    def ended(self) -> bool:
        return self._stream.eof

    def take(self, content: bytes) -> tuple[bytes, bytes]:
        """A piece, and what is left of `content`."""
        piece = self._stream.decompress(content, PIECE_BYTES)
        return piece, self._stream.unconsumed_tail or self._stream.unused_data


class _ZstdFrame:
    """As _GzipMember. It keeps what it has not looked at yet."""

    def __init__(self) -> None:
        self._stream = ZstdDecompressor(options=_ZSTD_WINDOW)

    @property
    def ended(self) -> bool:
        return self._stream.eof

    def take(self, content: bytes) -> tuple[bytes, bytes]:
        piece = self._stream.decompress(content, PIECE_BYTES)
        return piece, self._stream.unused_data if self.ended else b""


#: By the name that a content encoding has.
CODECS: dict[str, type[_GzipMember] | type[_ZstdFrame]] = {
    "gzip": _GzipMember,
    "x-gzip": _GzipMember,
    "zstd": _ZstdFrame,
}


def decompressed(parts: Iterable[bytes], codec: str) -> Iterator[bytes]:
    """Pieces of what these parts of a compressed file hold. Raises ValueError."""
    kind = CODECS[codec]
    stream = None
    for part in parts:
        left = part
        while left:
            if stream is None or stream.ended:
                stream = kind()
            try:
                piece, left = stream.take(left)
                yield piece
                # Output that did not fit into a piece comes without more input.
                while not left and len(piece) == PIECE_BYTES and not stream.ended:
                    piece, left = stream.take(b"")
                    yield piece
            except (zlib.error, ZstdError) as error:
                raise ValueError(str(error)) from None
    if stream is not None and not stream.ended:
        raise ValueError("it ends in the middle")


def decompress(sent: Sequence[bytes], encoding: str, bytes_max: int) -> Iterator[bytes]:
    """A body before its `Content-Encoding`, a part at a time, and no further than the limit.
    Raises EncodingUnknown, BodyUnreadable, BodyTooLarge."""
    if encoding in ("", "identity"):
        if sum(map(len, sent)) > bytes_max:
            raise BodyTooLarge(limit_bytes=bytes_max, measure="after decompression")
        yield from sent
        return
    if encoding not in CODECS:
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
