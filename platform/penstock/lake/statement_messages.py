"""What the server and a statement's process say to each other, over a socket.

The process may be taken over by the statement that it runs, so the server decodes its messages
into these types and nothing else; only the server's own messages may hold what it likes.
"""

import socket
import struct
import threading
from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from penstock.errors import PenstockError

_LENGTH = struct.Struct("<I")
#: Of one message: a batch of rows, or a piece of a file.
MESSAGE_BYTES_MAX = 1 << 30


class Parse(msgspec.Struct, tag=True, frozen=True):
    """Which of these views does the statement read?"""

    sql: str
    names: list[str]


class Prepare(msgspec.Struct, tag=True, frozen=True):
    """Run the statement on a connection that has these tables and files."""

    sql: str
    steps: list[tuple[str, bytes | list[str | list[str]]]]
    paths: list[str]
    #: Files that the server reads for the process, by their sizes.
    distant: list[str]


class FileContent(msgspec.Struct, tag=True, frozen=True):
    """A piece of a file; None where it could not be read."""

    request: int
    content: bytes | None


class ViewsRead(msgspec.Struct, tag=True, frozen=True):
    views: list[str]


class Columns(msgspec.Struct, tag=True, frozen=True):
    schema: bytes


class Rows(msgspec.Struct, tag=True, frozen=True):
    batch: bytes


class Finished(msgspec.Struct, tag=True, frozen=True):
    """All rows are sent."""


class Refused(msgspec.Struct, tag=True, frozen=True):
    """The statement cannot be answered: the name of an error of the lake, and its facts."""

    error: str
    facts: dict[str, str]


class FileRequest(msgspec.Struct, tag=True, frozen=True):
    """Send these bytes of a file; without a length, its size as text."""

    request: int
    name: str
    start: int = 0
    length: int | None = None


ToProcess = Parse | Prepare | FileContent
FromProcess = ViewsRead | Columns | Rows | Finished | Refused | FileRequest


class Connection:
    """Sends from any thread; receives in one."""

    def __init__(self, end: socket.socket, expected: Any) -> None:
        self._end = end
        self._decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(expected)
        self._encoder = msgspec.msgpack.Encoder()
        self._lock = threading.Lock()

    def send(self, message: msgspec.Struct) -> None:
        """Raises OSError where the other end is gone."""
        content = self._encoder.encode(message)
        with self._lock:
            self._end.sendall(_LENGTH.pack(len(content)))
            self._end.sendall(content)

    def receive(self) -> Any:
        """Raises EOFError where the other end is gone, or says what it must not."""
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size))
        if length > MESSAGE_BYTES_MAX:
            raise EOFError
        try:
            return self._decoder.decode(self._read(length))
        except msgspec.MsgspecError as error:
            raise EOFError from error

    def _read(self, length: int) -> bytearray:
        content = bytearray(length)
        view = memoryview(content)
        while view:
            try:
                count = self._end.recv_into(view)
            except OSError as error:
                raise EOFError from error
            if not count:
                raise EOFError
            view = view[count:]
        return content

    def close(self) -> None:
        self._end.close()


def encode_table(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def decode_table(content: bytes) -> pa.Table:
    return pa.ipc.open_stream(content).read_all()


def refusal_of(error: PenstockError) -> Refused:
    facts = {name: str(value) for name, value in error.facts.items()}
    return Refused(type(error).__name__, facts)


def steps_of(
    steps: Sequence[tuple[str, pa.Table | Sequence[str | Sequence[str]]]],
) -> list[tuple[str, bytes | list[str | list[str]]]]:
    """A preparation's steps as a message holds them."""
    encoded: list[tuple[str, bytes | list[str | list[str]]]] = []
    for text, content in steps:
        if isinstance(content, pa.Table):
            encoded.append((text, encode_table(content)))
        else:
            values = [value if isinstance(value, str) else list(value) for value in content]
            encoded.append((text, values))
    return encoded
