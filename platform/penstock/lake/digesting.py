"""Files that are told apart by their checksum: it is taken while they are written."""

import hashlib
import io
from typing import BinaryIO


class Digesting(io.RawIOBase):
    """Passes bytes on to a file and keeps their checksum."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__()
        self._file = file
        self.digest = hashlib.sha256()
        self.size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        view = memoryview(data)  # type: ignore[arg-type]  # Arrow's buffers have no Python type
        self._file.write(view)
        self.digest.update(view)
        self.size += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        return self.size
