"""Request bodies: decompressed within bounds."""

from collections.abc import Iterator

import pyarrow as pa

from penstock.http.errors import BodyTooLarge
from penstock.ingest.errors import BodyUnreadable, EncodingUnknown

_CODECS = {"gzip": "gzip", "x-gzip": "gzip", "zstd": "zstd"}
#: So much is decompressed at once: other requests get their turn in between.
_STEP_BYTES = 1024 * 1024


def decompress(body: bytes, encoding: str, bytes_max: int) -> Iterator[bytes]:
    """The body as it was before `Content-Encoding`, a part at a time; goes no further than the
    limit. Raises EncodingUnknown, BodyUnreadable, BodyTooLarge."""
    if encoding in ("", "identity"):
        parts = iter((body,))
    elif codec := _CODECS.get(encoding):
        parts = _inflate(body, codec)
    else:
        raise EncodingUnknown(encoding=encoding[:64])
    size = 0
    for part in parts:
        size += len(part)
        if size > bytes_max:
            raise BodyTooLarge(limit_bytes=bytes_max, measure="after decompression")
        yield part


def _inflate(body: bytes, codec: str) -> Iterator[bytes]:
    try:
        with pa.CompressedInputStream(pa.BufferReader(body), codec) as stream:
            while part := stream.read(_STEP_BYTES):
                yield part
    except OSError as error:
        raise BodyUnreadable(why=f"not valid {codec}: {error}") from None
