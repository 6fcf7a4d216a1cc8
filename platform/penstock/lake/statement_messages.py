"""What the server and a statement's process say to each other, over a socket.

The process may be taken over by the statement that it runs, so the server decodes its messages
into these types and nothing else; only the server's own messages may hold what it likes.
"""

import socket
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
import pyarrow as pa

from penstock.execution.guarded_process import Channel
from penstock.lake.row_formats import WireFormat

#: Of an answer, what one message of a process holds.
PIECE_BYTES_MAX = 256 << 10
#: Of what else a process says: the names of views, an error, the request for a piece of a file.
_REST_BYTES_MAX = 64 << 10


class Parse(msgspec.Struct, tag=True, frozen=True):
    """Which of these views does the statement read?"""

    sql: str
    names: list[str]


class Prepare(msgspec.Struct, tag=True, frozen=True):
    """Run the statements on a connection that has these tables and files. Of several, the answers
    come one behind the other."""

    sqls: list[str]
    form: WireFormat
    steps: list[tuple[str, memoryview | list[str | list[str]]]]
    paths: list[str]
    #: Files that the server reads for the process, by their sizes.
    distant: list[str]
    #: Of the files, those that it needs once the steps are done; None is all of them.
    left_paths: list[str] | None = None


class FileContent(msgspec.Struct, tag=True, frozen=True):
    """A piece of a file; None where it could not be read."""

    request: int
    content: bytes | None


class ViewsRead(msgspec.Struct, tag=True, frozen=True):
    views: list[str]


class Piece(msgspec.Struct, tag=True, frozen=True):
    """The next bytes of the answer."""

    content: memoryview


class Finished(msgspec.Struct, tag=True, frozen=True):
    """The answer is whole."""


class StatementRefused(msgspec.Struct, tag=True, frozen=True):
    """The guard, or the engine, does not take the statement."""

    why: str
    by_guard: bool


class LimitMet(msgspec.Struct, tag=True, frozen=True):
    kind: Literal["time", "memory"]


class FileRequest(msgspec.Struct, tag=True, frozen=True):
    """Send these bytes of a file; without a length, its size as text."""

    request: int
    name: str
    start: Annotated[int, msgspec.Meta(ge=0)] = 0
    length: Annotated[int, msgspec.Meta(ge=0)] | None = None


ToProcess = Parse | Prepare | FileContent
FromProcess = ViewsRead | Piece | Finished | StatementRefused | LimitMet | FileRequest
FROM_PROCESS_BYTES_MAX = PIECE_BYTES_MAX + _REST_BYTES_MAX


class Connection:
    """Sends from any thread; receives in one."""

    def __init__(
        self, end: socket.socket, expected: Any, *, message_bytes_max: int | None = None
    ) -> None:
        self._channel = Channel(end)
        self._message_bytes_max = message_bytes_max
        self._decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(expected)
        self._encoder = msgspec.msgpack.Encoder()
        self.end, self.close = self._channel.end, self._channel.close

    def send(self, message: msgspec.Struct) -> None:
        """Raises OSError where the other end is gone."""
        self._channel.send(self._encoder.encode(message))

    def receive(self) -> Any:
        """Raises EOFError where the other end is gone, or says what it must not."""
        try:
            return self._decoder.decode(self._channel.receive(self._message_bytes_max))
        except msgspec.MsgspecError as error:
            raise EOFError from error


def encode_table(table: pa.Table) -> memoryview:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return memoryview(sink.getvalue())


def decode_table(content: memoryview) -> pa.Table:
    return pa.ipc.open_stream(pa.py_buffer(content)).read_all()


def steps_of(
    steps: Sequence[tuple[str, pa.Table | Sequence[str | Sequence[str]]]],
) -> list[tuple[str, memoryview | list[str | list[str]]]]:
    """A preparation's steps as a message holds them."""
    encoded: list[tuple[str, memoryview | list[str | list[str]]]] = []
    for text, content in steps:
        if isinstance(content, pa.Table):
            encoded.append((text, encode_table(content)))
        else:
            values = [value if isinstance(value, str) else list(value) for value in content]
            encoded.append((text, values))
    return encoded
