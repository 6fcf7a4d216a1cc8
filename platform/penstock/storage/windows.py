"""A file that is far away, read in few and large pieces."""

import io
from collections.abc import Callable

import pyarrow as pa

#: Less is not worth a request: the way there and back takes longer than so many bytes.
WINDOW_BYTES = 256 * 1024

#: Takes an offset and a length.
Fetch = Callable[[int, int], pa.Buffer]


class WindowedFile(io.RawIOBase):
    """Keeps the last piece it read and the end of the file, where Parquet has its index."""

    def __init__(self, fetch: Fetch, size: int) -> None:
        super().__init__()
        self._fetch = fetch
        self._size = size
        self._position = 0
        self._windows: dict[str, tuple[int, pa.Buffer]] = {}

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = origin + offset
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        return bytes(self.read_buffer(size))

    def read_buffer(self, size: int | None = -1) -> pa.Buffer:
        """The same without a copy; Arrow prefers it."""
        left = max(0, self._size - self._position)
        length = left if size is None or size < 0 else min(size, left)
        piece = self._piece(self._position, length)
        self._position += length
        return piece

    def _piece(self, start: int, length: int) -> pa.Buffer:
        if not length:
            return pa.py_buffer(b"")
        for first, window in self._windows.values():
            if first <= start and start + length <= first + window.size:
                return window.slice(start - first, length)
        if length >= WINDOW_BYTES:
            return self._fetch(start, length)
        tail = max(0, self._size - WINDOW_BYTES)
        first = min(start, tail)
        window = self._fetch(first, min(WINDOW_BYTES, self._size - first))
        self._windows["end" if first == tail else "last"] = (first, window)
        return window.slice(start - first, length)
