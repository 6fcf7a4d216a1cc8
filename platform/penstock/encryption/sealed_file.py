"""The form of a sealed file: blocks under AES-256-GCM, each of which opens by itself.

    mark (8) · id of the data key (8) · salt (32) · blocks of 64 KiB, each with its tag (16)

The key of a file is made of the data key, the salt and the file's name, so no nonce is used twice
under a key, and a file that was moved does not open. A nonce is the number of its block, and says
which one is the last: a file that was cut at a block does not open either.
"""

import io
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Self

import pyarrow as pa

from penstock.encryption.errors import SealedFileDamaged
from penstock.encryption.sealed_mark import SEALED_MARK, is_sealed

if TYPE_CHECKING:  # only type checkers know it before Python 3.12
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from typing_extensions import Buffer

_ID_BYTES, _SALT_BYTES, _TAG_BYTES = 8, 32, 16
HEADER_BYTES = len(SEALED_MARK) + _ID_BYTES + _SALT_BYTES
KEY_BYTES = 32
#: A reader of Parquet asks for columns; a smaller block has more calls, a larger one more waste.
BLOCK_BYTES = 64 * 1024
_SEALED_BLOCK_BYTES = BLOCK_BYTES + _TAG_BYTES


@dataclass(frozen=True)
class DataKey:
    #: 16 hexadecimal digits.
    id: str
    key: bytes

    @classmethod
    def new(cls) -> Self:
        return cls(secrets.token_hex(_ID_BYTES), secrets.token_bytes(KEY_BYTES))


@dataclass(frozen=True)
class SealedHeader:
    key_id: str
    salt: bytes

    @classmethod
    def new(cls, key_id: str) -> Self:
        return cls(key_id, secrets.token_bytes(_SALT_BYTES))

    @classmethod
    def read(cls, content: bytes) -> Self | None:
        """None where the file is not sealed."""
        if not is_sealed(content) or len(content) < HEADER_BYTES:
            return None
        at = len(SEALED_MARK) + _ID_BYTES
        return cls(content[len(SEALED_MARK) : at].hex(), content[at:HEADER_BYTES])

    @property
    def content(self) -> bytes:
        return SEALED_MARK + bytes.fromhex(self.key_id) + self.salt

    def cipher(self, key: DataKey, name: str) -> "AESGCM":
        # 7 MB, for those who seal files.
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        info = b"penstock sealed file\0" + name.encode()
        return AESGCM(HKDF(SHA256(), KEY_BYTES, self.salt, info).derive(key.key))


def _nonce(block: int, *, last: bool) -> bytes:
    return bytes([last]) + block.to_bytes(11, "big")


class SealingFile(io.RawIOBase):
    """Passes bytes on, sealed. `finish` writes the last block."""

    def __init__(self, file: BinaryIO, key: DataKey, name: str) -> None:
        super().__init__()
        self._file = file
        header = SealedHeader.new(key.id)
        self._cipher = header.cipher(key, name)
        self._waiting = bytearray()
        self._blocks = 0
        self._size = 0
        file.write(header.content)

    def writable(self) -> bool:
        return True

    def write(self, data: "Buffer") -> int:
        view = memoryview(data).cast("B")
        self._waiting += view
        self._size += view.nbytes
        # The last block is known when no more comes: a whole one waits until then.
        start = 0
        with memoryview(self._waiting) as waiting:
            while len(waiting) - start > BLOCK_BYTES:
                self._seal(waiting[start : start + BLOCK_BYTES], last=False)
                start += BLOCK_BYTES
        del self._waiting[:start]
        return view.nbytes

    def _seal(self, block: bytearray | memoryview, *, last: bool) -> None:
        nonce = _nonce(self._blocks, last=last)
        self._file.write(self._cipher.encrypt(nonce, block, None))
        self._blocks += 1

    def finish(self) -> None:
        self._seal(self._waiting, last=True)

    def tell(self) -> int:
        return self._size


class UnsealedFile(io.RawIOBase):
    """What a sealed file holds, from any place of it. Used by one thread at a time."""

    def __init__(self, source: pa.NativeFile, header: SealedHeader, key: DataKey, name: str):
        """Raises SealedFileDamaged."""
        super().__init__()
        self._source, self._name = source, name
        self._cipher = header.cipher(key, name)
        sealed = source.size() - HEADER_BYTES
        self._blocks = -(-sealed // _SEALED_BLOCK_BYTES)
        self.length: int = sealed - self._blocks * _TAG_BYTES
        if sealed < _TAG_BYTES or self.length < (self._blocks - 1) * BLOCK_BYTES:
            raise SealedFileDamaged(name=name, why="a part of it is missing")
        self._at = 0
        #: The block that was read last: readers go on where they were.
        self._block, self._content = -1, b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def size(self) -> int:
        return self.length

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.length}[whence]
        self._at = origin + offset
        return origin + offset

    def read(self, size: int | None = -1) -> bytes:
        """Raises SealedFileDamaged."""
        left = max(0, self.length - self._at)
        count = left if size is None or size < 0 else min(size, left)
        if not count:
            return b""
        first, skipped = divmod(self._at, BLOCK_BYTES)
        after = -(-(self._at + count) // BLOCK_BYTES)
        content = self._opened(first, after)
        self._at += count
        return content[skipped : skipped + count]

    def _opened(self, first: int, after: int) -> bytes:
        from cryptography.exceptions import InvalidTag

        pieces = []
        if first == self._block:
            pieces.append(self._content)
            first += 1
        if first < after:
            start = HEADER_BYTES + first * _SEALED_BLOCK_BYTES
            sealed = memoryview(self._source.read_at((after - first) * _SEALED_BLOCK_BYTES, start))
            for block in range(first, after):
                at = (block - first) * _SEALED_BLOCK_BYTES
                nonce = _nonce(block, last=block == self._blocks - 1)
                try:
                    pieces.append(
                        self._cipher.decrypt(nonce, sealed[at : at + _SEALED_BLOCK_BYTES], None)
                    )
                except InvalidTag:
                    why = f"block {block} does not fit its key"
                    raise SealedFileDamaged(name=self._name, why=why) from None
            self._block, self._content = after - 1, pieces[-1]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        if not self.closed:
            self._source.close()
        super().close()
